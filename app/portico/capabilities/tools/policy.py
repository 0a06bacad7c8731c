"""Policy: which tools are offered to a caller, and what happens with a call.

Rules take precedence in the order deny, approve, pre_authorise; without one, a call that acts outside waits for a
person. Where there are rules of `allow`, a tool must satisfy one of them. A rule without arguments decides at the
offer, one with arguments decides each call.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from portico.domain.access.tool_policy import (
    USUAL_TERMS,
    ApprovalReason,
    ApprovalTerms,
    CallCircumstances,
    CallVerdict,
    PolicyDecision,
    PolicyRule,
    PolicyRules,
    ToolCaller,
    matches_name,
)
from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.tools import OfferedTool
from portico.domain.value import value

if TYPE_CHECKING:
    import jsonschema_rs

NOT_PERMITTED: Final = "not permitted: a policy of the service refuses this call"
_RUNS: Final = PolicyDecision(CallVerdict.RUN)
_DENIED: Final = PolicyDecision(CallVerdict.DENY)
_NUMBERS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_TEXTS: Final = frozenset({"minLength", "maxLength", "pattern", "format"})


@value
class _CompiledRule:
    rule: PolicyRule
    validator: "jsonschema_rs.Validator | None"

    def concerns(self, tool: str, caller: ToolCaller) -> bool:
        """Return True if the rule is about this tool and this caller."""
        rule = self.rule
        named = ((rule.agent, caller.agent), (rule.tenant, caller.tenant), (rule.user, caller.user))
        further = ((rule.key, caller.key_id), (rule.channel, caller.channel))
        return matches_name(rule.tool, tool) and all(
            pattern is None or matches_name(pattern, name) for pattern, name in (*named, *further)
        )

    def accepts(self, arguments: Mapping[str, Any]) -> bool:
        return self.validator is None or self.validator.is_valid(arguments)


class ToolPolicy:
    """The rules of a deployment, compiled. Raises: ConfigurationFailure (CONFIG_INVALID) naming an unusable rule."""

    def __init__(self, rules: PolicyRules) -> None:
        self._deny = _compiled("deny", rules.deny, is_permissive=False)
        self._approve = _compiled("approve", rules.approve, is_permissive=False)
        self._pre_authorise = _compiled("pre_authorise", rules.pre_authorise, is_permissive=True)
        self._allow = _compiled("allow", rules.allow, is_permissive=True)
        self._trusted_output = rules.trusted_output
        self.is_empty = rules == PolicyRules()

    def trusts_output(self, tool: str) -> bool:
        """Return True if the results of the tool count as trusted text."""
        return any(matches_name(pattern, tool) for pattern in self._trusted_output)

    def may_ask(self, tool: str) -> bool:
        """Return True if a rule of `approve` names the tool, for some caller or some arguments."""
        return any(matches_name(each.rule.tool, tool) for each in self._approve)

    def decides_calls(self, tool: str) -> bool:
        """Return True if a rule looks at single calls of the tool, for some caller."""
        rules = (each for each in (*self._deny, *self._allow) if each.validator is not None)
        return self.may_ask(tool) or any(matches_name(each.rule.tool, tool) for each in rules)

    def offers(self, tool: str, caller: ToolCaller) -> bool:
        """Return True if the caller may be offered the tool, as far as its name alone decides."""
        if self.is_empty:
            return True
        if any(each.validator is None and each.concerns(tool, caller) for each in self._deny):
            return False
        return not self._allow or any(each.concerns(tool, caller) for each in self._allow)

    def denies(self, tool: str, arguments: Mapping[str, Any], caller: ToolCaller) -> bool:
        """Return True if the call is refused by `deny`, or permitted by no rule of `allow` where there are some."""
        if self.is_empty:
            return False
        return _any_applies(self._deny, tool, arguments, caller) or (
            bool(self._allow) and not _any_applies(self._allow, tool, arguments, caller)
        )

    def decide(
        self, offered: OfferedTool, arguments: Mapping[str, Any], caller: ToolCaller, about: CallCircumstances
    ) -> PolicyDecision:
        """Return what happens with the call, and why a person is asked about it."""
        tool = offered.name
        if self.denies(tool, arguments, caller):
            return _DENIED
        terms = self.approval_terms(tool, arguments, caller)
        if about.is_replica and (terms is not None or offered.unsafe or offered.approval):
            return _DENIED
        reason = self._reason(offered, arguments, caller, about) if terms is None else ApprovalReason.RULE
        if reason is None:
            return _RUNS
        terms = terms or USUAL_TERMS
        is_repeated = offered.unsafe and about.is_repeated
        return PolicyDecision(CallVerdict.ASK, reason, terms, grantable=terms.may_grant and not is_repeated)

    def approval_terms(self, tool: str, arguments: Mapping[str, Any], caller: ToolCaller) -> ApprovalTerms | None:
        """Return the terms of the first rule of `approve` that is about the call; None without one."""
        applying = (each for each in self._approve if each.concerns(tool, caller) and each.accepts(arguments))
        rule = next(applying, None)
        return None if rule is None else rule.rule.terms

    def _reason(
        self, offered: OfferedTool, arguments: Mapping[str, Any], caller: ToolCaller, about: CallCircumstances
    ) -> ApprovalReason | None:
        """Return why a call that no rule of `approve` is about waits for a person; None if it may run."""
        if offered.unsafe and about.is_repeated:
            return ApprovalReason.REPEATED
        if not offered.approval:
            return None
        if not _any_applies(self._pre_authorise, offered.name, arguments, caller):
            return ApprovalReason.TOOL
        return ApprovalReason.UNTRUSTED_TEXT if about.is_untrusted else None


def _any_applies(rules: Iterable[_CompiledRule], tool: str, arguments: Mapping[str, Any], caller: ToolCaller) -> bool:
    return any(each.concerns(tool, caller) and each.accepts(arguments) for each in rules)


def _compiled(kind: str, rules: Sequence[PolicyRule], *, is_permissive: bool) -> Sequence[_CompiledRule]:
    found = []
    for index, rule in enumerate(rules):
        schema = None if rule.arguments is None else _demanding(rule.arguments, is_permissive=is_permissive)
        try:
            validator = None if schema is None else _validator(schema)
        except ValueError as cause:
            message = f"policy.{kind}.{index}.arguments: {str(cause).partition(chr(10))[0]}"
            raise ConfigurationFailure(Code.CONFIG_INVALID, message) from cause
        found.append(_CompiledRule(rule, validator))
    return found


def _validator(schema: Mapping[str, Any]) -> "jsonschema_rs.Validator":
    import jsonschema_rs  # noqa: PLC0415 - for rules of arguments only

    return jsonschema_rs.validator_for(dict(schema), offline=True, pattern_options=jsonschema_rs.RegexOptions())


def _demanding(schema: Mapping[str, Any], *, is_permissive: bool) -> Mapping[str, Any]:
    """Return the schema with every property that it names required.

    In a permissive rule a limit of numbers accepts numbers only, and one of texts only texts, which JSON Schema itself
    does not demand: else a call could escape the limit with a value of another type.
    """
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return {"type": "object", **schema}
    typed = {name: _typed(each) if is_permissive else each for name, each in properties.items()}
    required = dict.fromkeys((*schema.get("required", ()), *properties))
    return {"type": "object", **schema, "properties": typed, "required": list(required)}


def _typed(schema: Any) -> Any:
    if not isinstance(schema, Mapping) or "type" in schema:
        return schema
    if schema.keys() & _NUMBERS:
        return {**schema, "type": "number"}
    return {**schema, "type": "string"} if schema.keys() & _TEXTS else schema


NO_POLICY: Final = ToolPolicy(PolicyRules())
"""The policy without rules."""
