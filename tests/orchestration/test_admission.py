"""Admission and quotes ask the pattern of a mode and never the mode itself."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from portico.bootstrap.service import PATTERNS
from portico.domain.contract.request import SystemRequest
from portico.domain.failures import Code, ConfigurationFailure, RequestFailure
from portico.domain.lifecycle import Mode
from portico.domain.limits import CAPS, ConfiguredLimits
from portico.orchestration.admission import Admission
from portico.orchestration.admission_checks import CHECKS, PLAIN, PLAIN_CHECKS, Check, CheckInputs, is_plain
from portico.orchestration.execution.pattern import BoundInputs, FieldError, Pattern, UpperBound
from portico.orchestration.quote import QuoteCalculator
from tests.support.harness import Harness, chat_request, make_harness, scripted_engine
from tests.support.memory import FixedMemory
from tests.support.tools import FakeTool
from tests.support.virtual_time import VirtualClock

LIMITS = ConfiguredLimits(
    messages=10,
    tools=10,
    tool_rounds=10,
    calls_per_reply=10,
    tool_calls=10,
    timeout=60,
    attempts=3,
    replicas=5,
    plan_steps=10,
    passes=4,
    history_messages=50,
    history_tokens=8_000,
    flow_steps=500,
)


def only_short(request: SystemRequest, *_: object) -> Iterator[FieldError]:
    if len(request.messages) > 1:
        yield FieldError("messages", "must be one message")


def seven(_inputs: BoundInputs) -> UpperBound:
    return UpperBound(inferences=7, tokens=70)


FLOW: Pattern = replace(
    PATTERNS[Mode.CHAT],
    upper_bound=seven,
    admit=only_short,
    own_fields=frozenset({"plan"}),
    required_output=("schema", "grammar"),
)
WITH_FLOW = {**PATTERNS, Mode.FLOW: FLOW}
MESSAGE = {"messages": [{"role": "user", "content": "a"}]}
SCHEMA = {"schema": {"type": "object"}}


@pytest.fixture
def here(clock: VirtualClock) -> Harness:
    return make_harness(clock, scripted_engine(clock, "a"))


def admission(here: Harness, patterns: dict[Mode, Pattern]) -> Admission:
    return Admission(LIMITS, here.environment, patterns)


def errors_of(failure: RequestFailure) -> list[dict[str, str]]:
    found: list[dict[str, str]] = failure.details["errors"]
    return found


def test_a_mode_without_a_pattern_is_refused_and_not_quoted_as_another(here: Harness) -> None:
    request = chat_request(mode=Mode.FLOW)
    without_flows = {mode: pattern for mode, pattern in PATTERNS.items() if mode is not Mode.FLOW}
    with pytest.raises(RequestFailure) as refused:
        admission(here, without_flows).admit(request)
    assert errors_of(refused.value) == [{"field": "mode", "message": "flow is not in this version"}]
    environment = here.environment
    calculator = QuoteCalculator(environment.catalogue, environment.tool_registry, "USD", without_flows)
    with pytest.raises(KeyError):
        calculator.quote(request, here.limits)


def test_a_new_mode_is_admitted_and_quoted_by_the_hooks_of_its_pattern(here: Harness) -> None:
    request = chat_request(mode=Mode.FLOW, output=SCHEMA, plan={})
    limits = admission(here, WITH_FLOW).admit(request)
    environment = here.environment
    quote = QuoteCalculator(environment.catalogue, environment.tool_registry, "USD", WITH_FLOW).quote(request, limits)
    assert (quote.inferences, quote.tokens) == (7, 70)


def test_the_errors_of_a_pattern_are_listed_with_all_others(here: Harness) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    request = SystemRequest.model_validate({"messages": messages, "mode": "flow", "redundancy": {"n": 2}})
    with pytest.raises(RequestFailure) as refused:
        admission(here, WITH_FLOW).admit(request)
    assert errors_of(refused.value) == [
        {"field": "redundancy", "message": "has no effect in mode flow"},
        {"field": "messages", "message": "must be one message"},
    ]


@pytest.mark.parametrize(
    ("fields", "has_memory", "errors"),
    [
        ({"context": {"retrieve": True}}, False, {"context.retrieve": "needs a memory of documents"}),
        ({"context": {"retrieve": True, "max_chunks": 3, "min_score": 0.5}}, True, {}),
        ({"context": {"retrieve": True}, "mode": "plan"}, True, {"context.retrieve": "has no effect in mode plan"}),
        (
            {"context": {"max_chunks": 3, "min_score": 0.0}},
            True,
            {"context.max_chunks": "has no effect unless", "context.min_score": "has no effect unless"},
        ),
        ({"context": {"retrieve": False, "skills": []}}, False, {}),
    ],
)
def test_context_options_that_could_have_no_effect_are_refused_by_name(
    here: Harness, fields: dict[str, Any], has_memory: bool, errors: dict[str, str]
) -> None:
    environment = replace(here.environment, memory=FixedMemory() if has_memory else None)
    admission = Admission(LIMITS, environment, PATTERNS)
    request = SystemRequest.model_validate(MESSAGE | fields)
    if not errors:
        admission.admit(request)
        return
    with pytest.raises(RequestFailure) as refused:
        admission.admit(request)
    found = {error["field"]: error["message"] for error in errors_of(refused.value)}
    assert found.keys() == errors.keys()
    assert all(found[field].startswith(errors[field]) for field in errors)


def listed(field: str, count: int) -> dict[str, Any]:
    """Return the request fields with that many entries in `field`."""
    match field:
        case "messages":
            return {"messages": [{"role": "user", "content": "a"}] * count}
        case "tools":
            return {"tools": ["act"] * count}
        case "client_tools":
            return {"client_tools": [{"name": f"tool_{number}"} for number in range(count)]}
        case _:
            steps = [{"name": f"s{number}", "type": "infer", "input": "a"} for number in range(count)]
            return {"mode": "plan", "plan": {"steps": steps}}


def nested(field: str, value: float) -> dict[str, Any]:
    """Return the request fields with that value in `field`, a path of names."""
    *names, last = field.split(".")
    fields: dict[str, Any] = {last: value}
    for name in reversed(names):
        fields = {name: fields}
    return fields | ({"mode": "plan"} if names[0] == "plan" else {})


@pytest.mark.parametrize(("field", "cap"), [(cap.field, getattr(LIMITS, limit)) for _, limit, cap in CAPS])
def test_a_cap_is_admitted_exactly_and_one_more_is_refused_by_name(clock: VirtualClock, field: str, cap: float) -> None:
    here = make_harness(clock, scripted_engine(clock, "a"), tools=[FakeTool()])
    fields = listed if field in {"messages", "tools", "client_tools", "plan.steps"} else nested
    at_cap, above = (SystemRequest.model_validate(MESSAGE | fields(field, int(cap) + more)) for more in (0, 1))
    admission(here, {**PATTERNS}).admit(at_cap)
    with pytest.raises(RequestFailure) as refused:
        admission(here, {**PATTERNS}).admit(above)
    assert errors_of(refused.value) == [{"field": field, "message": f"must be at most {cap:g}"}]


@pytest.mark.parametrize(
    ("mode", "field", "message"),
    [
        (Mode.FLOW, "output", "output: flow needs a schema or a grammar"),
        (Mode.STRUCTURED, "output", "output: structured needs a schema or a grammar"),
        (Mode.REDUNDANT, "output.schema", "output.schema: redundant needs a schema"),
    ],
)
def test_a_pattern_that_requires_an_output_format_refuses_a_request_without_one(
    here: Harness, mode: Mode, field: str, message: str
) -> None:
    with pytest.raises(ConfigurationFailure) as refused:
        admission(here, WITH_FLOW).admit(chat_request(mode=mode))
    assert (refused.value.code, refused.value.details) == (Code.CONFIG_SCHEMA_REQUIRED, {"field": field})
    assert refused.value.message == message


PLAIN_REQUESTS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"messages": []}, ["messages"]),
    ({"messages": MESSAGE["messages"] * 11}, ["messages"]),
    ({"messages": MESSAGE["messages"] * 11, "model": "nowhere"}, ["model"]),
    ({"model": "nowhere"}, ["model"]),
    ({"session_id": "s", "request_id": "q", "metadata": {"a": "b"}}, []),
    ({"mode": "chat", "store": True, "tools": None, "hints": {}, "output": {}, "limits": {"cost": None}}, []),
]


@pytest.mark.parametrize(("given", "fields"), PLAIN_REQUESTS)
def test_a_plain_request_is_answered_by_its_few_checks_as_by_all_of_them(
    here: Harness, given: dict[str, Any], fields: list[str]
) -> None:
    request = SystemRequest.model_validate(MESSAGE | given)
    assert is_plain(request)
    assert [check.name for group in PLAIN_CHECKS for check in group] == [
        "messages above a cap",
        "no messages, or URLs that are not fetched",
        "unknown model",
    ]
    for checks in (CHECKS, PLAIN_CHECKS):
        inputs = CheckInputs(request, PATTERNS[Mode.CHAT], here.limits, LIMITS, here.environment)
        assert fields_at_fault(inputs, checks) == fields


def fields_at_fault(inputs: CheckInputs, checks: Sequence[Sequence[Check]]) -> list[str]:
    try:
        return [error.field for group in checks for check in group for error in check.errors(inputs)]
    except RequestFailure as failure:
        return [error["field"] for error in errors_of(failure)]


UNUSUAL: dict[str, Any] = {
    "after": "q",
    "mode": "plan",
    "agent": "a",
    "hints": {"seed": 1},
    "output": {"semantic": True},
    "input": {},
    "tools": [],
    "client_tools": [{"name": "read_file"}],
    "on_client_call": "end",
    "context": {"skills": []},
    "plan": {},
    "redundancy": {},
    "flow": {"name": "f", "input": 1},
    "limits": {"cost": 1.0},
    "store": False,
    "webhooks": ["orders"],
    "background": True,
    "run_at": "2026-12-01T00:00:00Z",
    "on_disconnect": "cancel",
    "if_session_busy": "enqueue",
    "on_limit": "salvage",
}


def test_a_request_that_gives_another_field_is_not_plain() -> None:
    assert UNUSUAL.keys() == SystemRequest.model_fields.keys() - PLAIN
    requests = {field: SystemRequest.model_validate({**MESSAGE, field: given}) for field, given in UNUSUAL.items()}
    assert [field for field, request in requests.items() if is_plain(request)] == []


def test_every_check_names_fields_of_requests_and_has_a_name_of_its_own() -> None:
    checks = [check for group in CHECKS for check in group]
    assert len({check.name for check in checks}) == len(checks)
    assert all(check.fields and check.fields <= SystemRequest.model_fields.keys() for check in checks)


def client_tool(name: str = "read_file", **fields: Any) -> dict[str, Any]:
    return {"name": name, **fields}


@pytest.mark.parametrize(
    ("given", "errors"),
    [
        ({"on_client_call": "end"}, {"on_client_call": "has no effect without client_tools"}),
        ({"client_tools": [client_tool()], "mode": "plan"}, {"client_tools": "has no effect in mode plan"}),
        ({"client_tools": [client_tool(), client_tool()]}, {"client_tools.1.name": "occurs twice"}),
        (
            {"client_tools": [client_tool("act")]},
            {"client_tools.0.name": "is the name of a tool that the service may offer"},
        ),
        (
            {"client_tools": [client_tool(parameters={"type": "array"})]},
            {"client_tools.0.parameters": "must be a JSON Schema of type object"},
        ),
        (
            {"client_tools": [client_tool(parameters={"type": "object", "description": "x" * 262_144})]},
            {"client_tools.0.parameters": "it is longer than 262144 bytes"},
        ),
        (
            {"client_tools": [client_tool(parameters={"type": "object", "enum": [[]] * 2_000})]},
            {"client_tools.0.parameters": "it has more than 2,000 nodes"},
        ),
        (
            {"client_tools": [client_tool()], "tools": [], "hints": {"tool_choice": {"name": "other"}}},
            {"hints.tool_choice": "must name one of the request's tools"},
        ),
    ],
)
def test_client_tools_that_cannot_be_offered_are_refused_by_name(
    clock: VirtualClock, given: dict[str, Any], errors: dict[str, str]
) -> None:
    here = make_harness(clock, scripted_engine(clock, "a"), tools=[FakeTool(), FakeTool("other")])
    with pytest.raises(RequestFailure) as refused:
        admission(here, {**PATTERNS}).admit(SystemRequest.model_validate(MESSAGE | given))
    assert {error["field"]: error["message"] for error in errors_of(refused.value)} == errors


@pytest.mark.parametrize(
    "given",
    [
        {"client_tools": [client_tool("act")], "tools": []},
        {"client_tools": [client_tool("act")], "mode": "structured", "output": SCHEMA},
        {"client_tools": [client_tool()], "tools": [], "hints": {"tool_choice": {"name": "read_file"}}},
        {"client_tools": [client_tool()], "hints": {"tool_choice": {"name": "read_file"}}, "on_client_call": "end"},
    ],
)
def test_client_tools_beside_those_that_are_offered_are_admitted(clock: VirtualClock, given: dict[str, Any]) -> None:
    here = make_harness(clock, scripted_engine(clock, "a"), tools=[FakeTool()])
    admission(here, {**PATTERNS}).admit(SystemRequest.model_validate(MESSAGE | given))
