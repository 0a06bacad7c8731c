"""Policy of tool calls: its rules, its verdicts, and the callers that rules name."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Literal

from portico.domain.ids import API, ChannelName, KeyId, TenantId, UserId
from portico.domain.value import replace, value


class CallVerdict(StrEnum):
    """Decision about a tool call, from the mildest to the strictest: it runs, waits for a person, or is refused."""

    RUN = "run"
    ASK = "ask"
    DENY = "deny"

    @property
    def strictness(self) -> int:
        """Return a number that grows with the strictness."""
        return list(CallVerdict).index(self)


class ApprovalReason(StrEnum):
    """Reason why a person is asked to approve a call. The first that holds counts."""

    RULE = "rule"
    """A rule of `policy.approve` is about the call."""
    REPEATED = "repeated"
    """The call is unsafe to repeat, and the execution has made it before."""
    UNTRUSTED_TEXT = "untrusted_text"
    """A rule of `policy.pre_authorise` would cover the call if there were no untrusted text in the context."""
    TOOL = "tool"
    """The tool is declared to act outside."""


@value(slots=False)
class ApprovalTerms:
    """Terms of an approval: so many `approvers`, all different users, must agree.

    Without an answer within `expires_seconds` the execution is cancelled, or the call denied; None stands for the time
    in which every suspension expires. An answer may grant later calls, too, if it `grants`.
    """

    approvers: int = 1
    expires_seconds: int | None = None
    on_expiry: Literal["cancel", "deny"] = "cancel"
    grants: bool = True

    @property
    def may_grant(self) -> bool:
        """True if an answer may grant later calls, and a grant stand in for one."""
        return self.grants and self.approvers == 1


USUAL_TERMS: Final = ApprovalTerms()
"""The terms of an approval that no rule asks for."""


@value
class PolicyDecision:
    """Decision about a call; one that asks has a reason and terms, and is `grantable` if a grant can stand in."""

    verdict: CallVerdict
    reason: ApprovalReason | None = None
    terms: ApprovalTerms = USUAL_TERMS
    grantable: bool = False


@value
class PolicyRule:
    """Rule for calls of `tool`; with `arguments`, a JSON Schema of them, only for those that it accepts.

    The others limit it to an agent, a tenant, a user, a key or a channel. A name that ends with `*` stands for all that
    begin like it. The rule demands every property that `arguments` names. The `terms` are those of a rule of
    `approve`.
    """

    tool: str
    arguments: Mapping[str, Any] | None = None
    agent: str | None = None
    tenant: str | None = None
    user: str | None = None
    key: str | None = None
    channel: str | None = None
    terms: ApprovalTerms = USUAL_TERMS


@value
class PolicyRules:
    """Rules in the order in which they take precedence; `trusted_output` names tools whose results are trusted."""

    deny: tuple[PolicyRule, ...] = ()
    approve: tuple[PolicyRule, ...] = ()
    pre_authorise: tuple[PolicyRule, ...] = ()
    allow: tuple[PolicyRule, ...] = ()
    trusted_output: tuple[str, ...] = ()


@value
class ToolCaller:
    """Principal, agent and channel for which an execution calls tools."""

    tenant: TenantId
    user: UserId
    key_id: KeyId | None = None
    agent: str | None = None
    channel: ChannelName = API

    def acting_as(self, agent: str | None) -> "ToolCaller":
        """Return the caller with that agent, or without one."""
        return replace(self, agent=agent)


@value
class CallCircumstances:
    """Circumstances of a call besides its arguments.

    `is_untrusted` if untrusted text is in the context, `is_repeated` if the execution has made this call before,
    `is_replica` if several replicas would make it.
    """

    is_untrusted: bool = False
    is_repeated: bool = False
    is_replica: bool = False


def matches_name(pattern: str, name: str | None) -> bool:
    """Return True if the pattern is the name, or its beginning followed by `*`."""
    if name is None:
        return False
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
