"""The table `[policy]` of the configuration: rules for the calls of tools."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from portico.domain.access.tool_policy import ApprovalTerms, PolicyRule, PolicyRules
from portico.settings.values import Table

NamePattern = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._@|:-]{0,128}\*?$", min_length=1)]
ToolPattern = Annotated[str, StringConstraints(pattern=r"^(step:)?([a-zA-Z0-9_-]{1,64}|[a-zA-Z0-9_-]{0,63}\*)$")]


class RuleSettings(Table):
    """Rule: the tool it is about, and to what it is limited; a name may end with `*`."""

    tool: ToolPattern = Field(
        description="Name of the tool, or `step:NAME` for a step type; `*` at the end stands for any continuation"
    )
    arguments: dict[str, Any] | None = Field(
        None, description="JSON Schema of the arguments; every property that it names is required"
    )
    agent: NamePattern | None = Field(None, description="Agent that the rule is limited to")
    tenant: NamePattern | None = Field(None, description="Tenant that the rule is limited to")
    user: NamePattern | None = Field(None, description="User that the rule is limited to")
    key: NamePattern | None = Field(None, description="Public id of the key that the rule is limited to")
    channel: NamePattern | None = Field(None, description="Channel that the rule is limited to")


class ApproveRuleSettings(RuleSettings):
    """Rule of `approve`: for which calls persons are asked, how many, and until when."""

    approvers: int = Field(1, ge=1, le=5, description="Number of users who must approve")
    expires_seconds: int | None = Field(
        None, ge=1, le=366 * 86_400, description="Seconds for an answer; those of `limits.suspension_seconds` if absent"
    )
    on_expiry: Literal["cancel", "deny"] = Field(
        "cancel", description="Without an answer: cancel the execution, or deny the call and go on"
    )
    grants: bool = Field(True, description="If false, an answer may not let later calls run, too")

    def rule(self) -> PolicyRule:
        """Return the rule."""
        terms = ApprovalTerms(self.approvers, self.expires_seconds, self.on_expiry, self.grants)
        limits = {name: getattr(self, name) for name in RuleSettings.model_fields}
        return PolicyRule(**limits, terms=terms)


Rules = Annotated[tuple[RuleSettings, ...], Field(strict=False)]
ApproveRules = Annotated[tuple[ApproveRuleSettings, ...], Field(strict=False)]


class PolicySettings(Table):
    """Policy of tool calls: deny comes before approve, approve before pre_authorise; without a rule, a call of an
    external tool waits for a person.
    """

    allow: Rules = Field((), description="If there are any, a tool must satisfy one of them")
    deny: Rules = Field((), description="Calls that are refused")
    approve: ApproveRules = Field(
        (),
        description="Calls that wait for persons; each rule may also have `approvers` (1 to 5, default 1), "
        "`expires_seconds`, `on_expiry` (`cancel` or `deny`, default `cancel`) and `grants` (default true)",
    )
    pre_authorise: Rules = Field((), description="External calls that need no person while no untrusted text is read")
    trusted_output: Annotated[tuple[ToolPattern, ...], Field(strict=False)] = Field(
        (), description="Tools whose results count as trusted text"
    )
    self_approval: bool = Field(
        True, description="If false, the user who asked for a call that waits for an approval may not give it"
    )

    edit_on_approve: bool = Field(
        True, description="If false, no user may change the arguments of a call that is approved"
    )

    def rules(self) -> PolicyRules:
        """Return the rules."""
        return PolicyRules(
            deny=_rules(self.deny),
            approve=tuple([each.rule() for each in self.approve]),
            pre_authorise=_rules(self.pre_authorise),
            allow=_rules(self.allow),
            trusted_output=self.trusted_output,
        )


def _rules(settings: tuple[RuleSettings, ...]) -> tuple[PolicyRule, ...]:
    return tuple(PolicyRule(**vars(each)) for each in settings)
