"""Policy of tool calls: which rule wins, which calls it is about, and what cannot escape it."""

from typing import Any

import pytest

from portico.capabilities.tools.policy import NO_POLICY, ToolPolicy
from portico.domain.access.tool_policy import (
    ApprovalReason,
    CallCircumstances,
    CallVerdict,
    PolicyRule,
    PolicyRules,
    ToolCaller,
)
from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.ids import KeyId, TenantId, UserId
from portico.domain.tools import OfferedTool

ANN = ToolCaller(TenantId("acme"), UserId("ann"), KeyId("k1"), "support")
READ = OfferedTool("read_order", unsafe=False, idempotent=True)
WRITE = OfferedTool("write_note", unsafe=True, decided=True)
REFUND = OfferedTool("refund", unsafe=True, approval=True, decided=True)
AT_MOST_100 = {"properties": {"amount": {"maximum": 100}}}
FREE, TAINTED = CallCircumstances(), CallCircumstances(is_untrusted=True)


def decide(rules: PolicyRules, arguments: dict[str, Any], *, about: CallCircumstances = FREE) -> CallVerdict:
    return ToolPolicy(rules).decide(REFUND, arguments, ANN, about).verdict


@pytest.mark.parametrize(
    ("tool", "about", "verdict"),
    [
        (READ, FREE, CallVerdict.RUN),
        (READ, TAINTED, CallVerdict.RUN),
        (WRITE, TAINTED, CallVerdict.RUN),
        (WRITE, CallCircumstances(is_repeated=True), CallVerdict.ASK),
        (READ, CallCircumstances(is_repeated=True), CallVerdict.RUN),
        (REFUND, FREE, CallVerdict.ASK),
        (READ, CallCircumstances(is_replica=True), CallVerdict.RUN),
        (WRITE, CallCircumstances(is_replica=True), CallVerdict.DENY),
        (REFUND, CallCircumstances(is_replica=True), CallVerdict.DENY),
    ],
)
def test_without_rules_safety_decides(tool: OfferedTool, about: CallCircumstances, verdict: CallVerdict) -> None:
    assert NO_POLICY.decide(tool, {}, ANN, about).verdict is verdict


def test_deny_comes_before_approve_and_approve_before_pre_authorise() -> None:
    rule = (PolicyRule("refund"),)
    assert decide(PolicyRules(pre_authorise=rule), {}) is CallVerdict.RUN
    assert decide(PolicyRules(pre_authorise=rule, approve=rule), {}) is CallVerdict.ASK
    assert decide(PolicyRules(pre_authorise=rule, approve=rule, deny=rule), {}) is CallVerdict.DENY


@pytest.mark.parametrize(
    ("arguments", "verdict"),
    [
        ({"amount": 100}, CallVerdict.RUN),
        ({"amount": 100.5}, CallVerdict.ASK),
        ({"amount": "1e9"}, CallVerdict.ASK),
        ({"amount": None}, CallVerdict.ASK),
        ({"Amount": 5}, CallVerdict.ASK),
        ({}, CallVerdict.ASK),
    ],
)
def test_what_is_pre_authorised_is_bounded_by_its_arguments(arguments: dict[str, Any], verdict: CallVerdict) -> None:
    assert decide(PolicyRules(pre_authorise=(PolicyRule("refund", AT_MOST_100),)), arguments) is verdict


def test_untrusted_text_takes_pre_authorisation_away() -> None:
    rules = PolicyRules(pre_authorise=(PolicyRule("refund"),), trusted_output=("read_*",))
    assert decide(rules, {}, about=TAINTED) is CallVerdict.ASK
    assert ToolPolicy(rules).trusts_output("read_order")
    assert not ToolPolicy(rules).trusts_output("refund")


def test_a_repeated_unsafe_call_asks_although_it_is_pre_authorised() -> None:
    rules = PolicyRules(pre_authorise=(PolicyRule("refund"),))
    assert decide(rules, {}, about=CallCircumstances(is_repeated=True)) is CallVerdict.ASK


REPEATED, BOTH = CallCircumstances(is_repeated=True), CallCircumstances(is_repeated=True, is_untrusted=True)
EACH = (PolicyRule("refund"),)


@pytest.mark.parametrize(
    ("rules", "tool", "about", "reason"),
    [
        (PolicyRules(approve=EACH, pre_authorise=EACH), REFUND, BOTH, ApprovalReason.RULE),
        (PolicyRules(pre_authorise=EACH), REFUND, BOTH, ApprovalReason.REPEATED),
        (PolicyRules(), WRITE, REPEATED, ApprovalReason.REPEATED),
        (PolicyRules(pre_authorise=EACH), REFUND, TAINTED, ApprovalReason.UNTRUSTED_TEXT),
        (PolicyRules(), REFUND, TAINTED, ApprovalReason.TOOL),
        (PolicyRules(pre_authorise=(PolicyRule("refund", AT_MOST_100),)), REFUND, TAINTED, ApprovalReason.TOOL),
        (PolicyRules(), REFUND, FREE, ApprovalReason.TOOL),
        (PolicyRules(pre_authorise=EACH), REFUND, FREE, None),
        (PolicyRules(deny=EACH, approve=EACH), REFUND, FREE, None),
        (PolicyRules(), WRITE, TAINTED, None),
    ],
)
def test_the_first_reason_that_holds_is_given(
    rules: PolicyRules, tool: OfferedTool, about: CallCircumstances, reason: ApprovalReason | None
) -> None:
    decision = ToolPolicy(rules).decide(tool, {"amount": 500}, ANN, about)
    assert decision.reason is reason
    assert (decision.verdict is CallVerdict.ASK) is (reason is not None)


@pytest.mark.parametrize(
    ("limits", "applies"),
    [
        ({"tool": "ref*"}, True),
        ({"tool": "Refund"}, False),
        ({"tool": "refund", "tenant": "acme", "user": "a*", "key": "k1", "agent": "support"}, True),
        ({"tool": "refund", "tenant": "other"}, False),
        ({"tool": "refund", "user": "an"}, False),
        ({"tool": "refund", "key": "k2"}, False),
        ({"tool": "refund", "agent": "sales"}, False),
    ],
)
def test_a_rule_concerns_the_tool_and_the_caller_that_it_names(limits: dict[str, str], applies: bool) -> None:
    assert (decide(PolicyRules(deny=(PolicyRule(**limits),)), {}) is CallVerdict.DENY) is applies


def test_a_rule_about_agents_and_keys_concerns_no_caller_without_them() -> None:
    caller = ToolCaller(TenantId("acme"), UserId("ann"))
    for limit in ({"agent": "*"}, {"key": "*"}):
        policy = ToolPolicy(PolicyRules(deny=(PolicyRule("refund", **limit),)))
        assert policy.offers("refund", caller)
        assert not policy.offers("refund", ANN)


def test_where_something_is_allowed_nothing_else_is() -> None:
    policy = ToolPolicy(PolicyRules(allow=(PolicyRule("read_*"), PolicyRule("refund", AT_MOST_100))))
    assert policy.offers("read_order", ANN)
    assert policy.offers("refund", ANN)
    assert not policy.offers("write_note", ANN)
    assert policy.denies("refund", {"amount": 101}, ANN)
    assert policy.denies("refund", {"amount": "101"}, ANN)
    assert not policy.denies("refund", {"amount": 99}, ANN)


def test_a_denial_without_arguments_takes_the_tool_away_and_one_with_arguments_the_call() -> None:
    large = {"properties": {"amount": {"minimum": 1000}}}
    policy = ToolPolicy(PolicyRules(deny=(PolicyRule("write_note"), PolicyRule("refund", large))))
    assert not policy.offers("write_note", ANN)
    assert policy.offers("refund", ANN)
    assert policy.denies("refund", {"amount": 1000}, ANN)
    assert policy.denies("refund", {"amount": "much"}, ANN), "a denial is not escaped by another type"
    assert not policy.denies("refund", {"amount": 10}, ANN)


def test_a_rule_that_is_no_schema_is_refused_by_its_place() -> None:
    with pytest.raises(ConfigurationFailure) as refused:
        ToolPolicy(PolicyRules(approve=(PolicyRule("a"), PolicyRule("b", {"type": 7}))))
    assert refused.value.code is Code.CONFIG_INVALID
    assert refused.value.message.startswith("policy.approve.1.arguments: ")
