"""Requests and responses: sections 3 and 4 of the contract."""

import json
import math
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import SystemError as WireError
from portico.domain.contract.response import SystemResponse, TokenUsage
from portico.domain.failures import Code, failure
from portico.domain.lifecycle import Mode

MESSAGES = [{"role": "user", "content": "Hello."}]
LEAST: dict[str, Any] = {"messages": MESSAGES}
RESPONSE_FIELDS = """
request_id session_id trace_id mode state content structured_output tool_calls_made confidence confidence_source
validation_result token_usage cost plan vote final_answer messages suspensions metadata error
"""
IMAGE = {"type": "image", "media_type": "image/png", "data": "AAAA"}
RESULT = {"role": "tool", "content": "7", "tool_call_id": "call-1"}
CALL = {"id": "call-1", "name": "roll_dice", "arguments": {"count": 2}}

DEFAULTS: dict[str, Any] = {
    "request_id": None,
    "session_id": None,
    "trace_id": None,
    "after": None,
    "mode": "chat",
    "agent": None,
    "model": None,
    "hints": {
        "max_tokens": None,
        "timeout": None,
        "temperature": None,
        "top_p": None,
        "stop": None,
        "seed": None,
        "reasoning": None,
        "tool_choice": None,
        "options": {},
    },
    "output": {
        "schema": None,
        "grammar": None,
        "repair_allowed": True,
        "reasoning": False,
        "strict_validation": True,
        "rules": [],
        "semantic": False,
    },
    "input": None,
    "tools": None,
    "client_tools": [],
    "on_client_call": "suspend",
    "context": {"retrieve": False, "max_chunks": None, "min_score": None, "skills": None},
    "plan": None,
    "redundancy": None,
    "flow": None,
    "limits": {
        "tool_rounds": None,
        "calls_per_reply": None,
        "attempts": None,
        "tokens": None,
        "cost": None,
        "flow_steps": None,
        "tool_calls": None,
    },
    "store": True,
    "background": False,
    "run_at": None,
    "on_disconnect": None,
    "if_session_busy": "reject",
    "webhooks": [],
    "on_limit": "fail",
    "metadata": {},
}

IDENTIFIERS = (["a", "A.b_c:d-9", "x" * 128], ["", "x" * 129, "a b", "a\n", "é", "a/b", 7])
# fmt: off
RULES: dict[str, tuple[list[Any], list[Any]]] = {
    "request_id": IDENTIFIERS,
    "session_id": IDENTIFIERS,
    "trace_id": (["0123456789abcdef" * 2], ["", "0" * 31, "0" * 33, "G" * 32, "0" * 31 + "\n", 0]),
    "mode": ([mode.value for mode in Mode], ["", "CHAT", "agent", None, 1]),
    "agent": (["support", None], ["", "x" * 129, 1]),
    "model": (["primary", None], ["", "x" * 129, 1]),
    "hints.max_tokens": ([1, 4096, None], [0, -1, 10**12, "1", 1.5, True]),
    "hints.timeout": ([0.5, 30, None], [0, -1, "30", True]),
    "hints.temperature": ([0, 0.0, 2, None], [-0.1, 2.1, "0.5", True]),
    "hints.top_p": ([0.1, 1, None], [0, 1.1, "0.5"]),
    "hints.stop": (["END", ["a", "b"], ["x"] * 16, None], ["", [], [""], ["x"] * 17, "x" * 257, 1]),
    "hints.seed": ([0, -1, 2**63 - 1, -(2**63), None], [2**63, -(2**63) - 1, 1.5, "1", True]),
    "hints.tool_choice": (
        ["auto", "none", "required", {"name": "roll_dice"}, None],
        ["any", "", {"name": ""}, {"name": "a b"}, {}, {"name": "a", "type": "function"}, 1],
    ),
    "hints.reasoning": (["none", "low", "medium", "high", "max", None], ["minimal", "xhigh", 1, True]),
    "hints.options": ([{}, {"top_k": 4, "x": [None, {"y": "z"}]}], [None, [], "top_k"]),
    "input": (
        [None, {}, {"rules": ["not_empty", {"type": "regex", "pattern": "a", "negate": True}]}],
        [[], {"rules": None}, {"rules": [{"type": "regex", "pattern": "a", "negate": 1}]}, {"schema": {}}],
    ),
    "output.schema": ([{"type": "object"}, None], [[], "object", True]),
    "output.grammar": (['root ::= "a"', "json", None], [1, []]),
    "output.reasoning": ([True, False], ["true", 1, None]),
    "output.repair_allowed": ([True, False], ["true", 1, None]),
    "output.strict_validation": ([True, False], ["true", 0, None]),
    "output.rules": (
        [[], ["name", {"type": "not_empty", "path": "$.a"}]],
        [None, "name", {}, [{}], [{"type": "not_empty", "path": "a"}]],
    ),
    "output.semantic": ([True, False, "Answers the question."], [None, 1, [], ""]),
    "tools": (
        [None, [], ["roll_dice", "A-z_9"], ["t"] * 128, ["agent:a-b", "agent:" + "x" * 57]],
        ["roll_dice", [""], ["a b"], ["x" * 65], ["r\u0435ad"], ["t"] * 129, ["agent:"], ["tool:a"]],
    ),
    "client_tools": (
        [[], [{"name": "a"}], [{"name": "a-B_9", "description": "x" * 32_768, "parameters": {"type": "object"}}]],
        [
            *[None, {}, [{}], [{"name": "a b"}], [{"name": "agent:a"}], [{"name": "a", "description": "x" * 32_769}]],
            *[[{"name": "a", "parameters": []}], [{"name": "a", "strict": True}], [{"name": "a"}] * 129],
        ],
    ),
    "on_client_call": (["suspend", "end"], [None, "", "END", True]),
    "context.retrieve": ([True, False], ["true", 1, None]),
    "context.max_chunks": ([1, 50, None], [0, 51, "3", 1.5]),
    "context.min_score": ([0, 0.5, 1, None], [-0.1, 1.1, "0.5"]),
    "context.skills": ([[], ["tone"], "auto", None], ["all", [""], ["t"] * 1001, 1]),
    "plan": ([None, {}, {"passes": 20}], [[], "auto"]),
    "plan.steps": ([None, [{"name": "a", "type": "infer", "schema": {}}]], [[{"name": "a"}], [{"type": "infer"}], "a"]),
    "plan.policy": ([None, {"max_steps": 1, "require_linear": True}], [{"max_steps": 0}, {"timeout_per_step": 0}, []]),
    "plan.passes": ([1, 20], [0, -1, "1", 1.5, None]),
    "redundancy": ([None, {}, {"n": 5}], [[], 3]),
    "redundancy.n": ([1, 16], [0, -1, "3", 1.5]),
    "redundancy.voting": (["majority", "unanimity", "field_majority"], ["", "MAJORITY", None]),
    "redundancy.quorum": ([1, None], [0, "1"]),
    "redundancy.min_confidence": ([0, 1, None], [-0.1, 1.1]),
    "redundancy.models": ([["a", "b"], None], ["a", [""]]),
    "redundancy.early_stop": ([True, False], ["true", 1, None]),
    "limits.tool_rounds": ([0, 20, None], [-1, 1.5, "1", True]),
    "limits.calls_per_reply": ([1, None], [0, "1"]),
    "limits.attempts": ([1, None], [0, "1"]),
    "limits.tokens": ([1, None], [0, "1"]),
    "limits.flow_steps": ([1, None], [0, "1"]),
    "limits.tool_calls": ([0, 200, None], [-1, "1", 1.5]),
    "limits.cost": ([0.01, 1, None], [0, -1, "1"]),
    "after": ([None, "r-1", "x" * 128], ["", "a b", "x" * 129, 1]),
    "store": ([True, False], ["true", 1, 0, None]),
    "background": ([True, False], ["true", 1, 0, None]),
    "run_at": (["2026-12-01T08:00:00Z", None], ["", "2026-12-01", "2026-12-01T08:00:00", 1]),
    "on_disconnect": (["cancel", "continue", None], ["", "CANCEL", True]),
    "webhooks": ([[], ["orders"]], [None, "orders", ["a", "b", "c", "d", "e"], [1]]),
    "if_session_busy": (["reject", "enqueue"], ["", "wait", None]),
    "on_limit": (["fail", "salvage"], ["", "stop", None]),
    "metadata": (
        [{}, {"ticket": "42"}, {str(n): "" for n in range(64)}],
        [None, {"n": 1}, {"n": None}, [], {str(n): "" for n in range(65)}],
    ),
    "messages": (
        [
            [{"role": role, "content": ""} for role in ("system", "user", "assistant")],
            [{"role": "user", "content": [{"type": "text", "text": "a"}, IMAGE]}],
            [{"role": "assistant", "content": "", "tool_calls": [CALL]}, RESULT],
            [{"role": "user", "content": "a", "name": "ada", "tool_calls": None, "tool_call_id": None}],
        ],
        [
            None,
            {},
            "Hello.",
            [{"role": "user"}],
            [{"content": "a"}],
            [{"role": "developer", "content": "a"}],
            [{"role": "user", "content": None}],
            [{"role": "user", "content": 1}],
            [{"role": "user", "content": [{"type": "text"}]}],
            [{"role": "user", "content": [{"text": "a"}]}],
            [{"role": "user", "content": [{"type": "audio", "data": "AAAA"}]}],
            [{"role": "user", "content": [{**IMAGE, "data": "no base64!"}]}],
            [{"role": "user", "content": [{**IMAGE, "data": ""}]}],
            [{"role": "user", "content": [{**IMAGE, "media_type": "text/html"}]}],
            [{"role": "user", "content": "a", "name": "x" * 65}],
            [{"role": "assistant", "content": "", "tool_calls": [CALL]}],
            [{"role": "assistant", "content": "", "tool_calls": [{**CALL, "arguments": "{}"}]}],
            [{"role": "assistant", "content": "", "tool_calls": [{**CALL, "id": ""}]}],
            [RESULT],
        ],
    ),
}
# fmt: on
GOOD = [(path, value) for path, (good, _) in RULES.items() for value in good]
BAD = [(path, value) for path, (_, bad) in RULES.items() for value in bad]

SECTIONS = ("hints", "output", "context", "plan", "redundancy", "limits")
PLACES = ["", *SECTIONS, "plan.policy", "hints.tool_choice", "messages.0"]


def put(path: str, value: Any) -> dict[str, Any]:
    """Return the smallest request with one field set, and the sections that contain it."""
    request: dict[str, Any] = {**LEAST}
    *sections, name = path.split(".")
    place = request
    for section in sections:
        place = place.setdefault(section, {})
    place[name] = value
    return request


def take(request: dict[str, Any]) -> SystemRequest:
    """Return the request as the service reads it: from JSON, strictly."""
    return SystemRequest.model_validate_json(json.dumps(request), strict=True)


def shown(request: SystemRequest) -> dict[str, Any]:
    return request.model_dump(mode="json", by_alias=True)


def test_all_other_fields_have_the_defaults_of_the_contract() -> None:
    found = shown(take(LEAST))
    assert found.pop("messages")[0]["content"] == "Hello."
    assert found == DEFAULTS


def test_messages_may_be_absent_since_a_flow_needs_none() -> None:
    assert take({}).messages == []


def test_every_field_has_a_rule_here() -> None:
    nested = {f"{section}.{name}" for section in ("hints", "output", "context", "limits") for name in DEFAULTS[section]}
    flat = (set(DEFAULTS) | {"messages"}) - {"hints", "output", "context", "limits", "flow"}
    assert nested | flat <= set(RULES)


@pytest.mark.parametrize(("path", "value"), GOOD)
def test_a_valid_value_is_not_changed(path: str, value: Any) -> None:
    request = put(path, value)
    assert SystemRequest.model_validate(shown(take(request))) == take(request)
    found: Any = shown(take(request))
    for name in path.split("."):
        found = found[name]
    if isinstance(value, str | int | float | None):
        assert found == value


@pytest.mark.parametrize(("path", "value"), BAD)
def test_an_invalid_value_is_rejected_with_its_path(path: str, value: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        take(put(path, value))
    wanted = path.split(".")
    assert all(list(error["loc"])[: len(wanted)] == wanted or error["loc"] == () for error in refused.value.errors())


@pytest.mark.parametrize("place", PLACES)
def test_an_unknown_field_is_refused_by_name(place: str) -> None:
    request = put("plan.policy", {})
    request |= {"hints": {"tool_choice": {"name": "t"}}, "messages": [dict(MESSAGES[0])]}
    inner: Any = request
    for name in filter(None, place.split(".")):
        inner = inner[int(name)] if name.isdigit() else inner.setdefault(name, {})
    inner["temprature"] = 1
    with pytest.raises(ValidationError) as refused:
        take(request)
    assert [error["loc"][-1] for error in refused.value.errors() if error["type"] == "extra_forbidden"] == [
        "temprature"
    ]


def test_a_flow_needs_a_name_and_an_input() -> None:
    assert take(put("flow", {"name": "support", "input": None})).flow is not None
    for flow in ({}, {"name": "support"}, {"input": 1}, {"name": "", "input": 1}, {"name": "a", "input": 1, "x": 1}):
        with pytest.raises(ValidationError):
            take(put("flow", flow))


def test_a_plan_step_preserves_the_options_of_its_type() -> None:
    steps = [{"name": "look", "type": "retrieve", "query": "dice"}]
    plan = take(put("plan", {"steps": steps})).plan
    assert plan is not None
    assert plan.model_dump(exclude_unset=True) == {"steps": steps}


def test_redundancy_and_plan_options_have_defaults() -> None:
    assert shown(take(put("redundancy", {})))["redundancy"] == {
        "n": 3,
        "voting": "majority",
        "quorum": None,
        "min_confidence": None,
        "models": None,
        "early_stop": True,
    }
    assert shown(take(put("plan", {})))["plan"] == {"steps": None, "policy": None, "passes": 1}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("field", ["temperature", "top_p", "timeout"])
def test_numbers_are_finite(field: str, value: float) -> None:
    with pytest.raises(ValidationError):
        SystemRequest.model_validate({**LEAST, "hints": {field: value}})


def test_absent_is_not_zero() -> None:
    assert take(LEAST).hints.temperature is None
    assert take(put("hints.temperature", 0)).hints.temperature == 0


def test_an_invalid_conversation_is_rejected_with_its_path() -> None:
    with pytest.raises(ValidationError, match=r"messages\.0\.tool_call_id must name a call"):
        take({"messages": [RESULT]})


def test_at_most_eight_errors_of_a_conversation_are_reported() -> None:
    with pytest.raises(ValidationError) as refused:
        take({"messages": [{"role": "tool", "content": "7", "tool_call_id": "x"}] * 50})
    assert str(refused.value).count("must name a call") == 8


def test_a_request_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        take(LEAST).__setattr__("mode", Mode.PLAN)


def test_names_with_look_alikes_are_refused() -> None:
    for name in ("r\u0435ad_file", "read\u200b_file", "\u202eread", "\uff52ead", "x" * 10_240):
        with pytest.raises(ValidationError):
            take(put("tools", [name]))


def test_ids_cannot_forge_headers_or_log_lines() -> None:
    for text in ("a\r\nX-Evil: 1", "a\x00", "x" * 4096, "a\n"):
        for field in ("request_id", "session_id", "trace_id", "after"):
            with pytest.raises(ValidationError):
                take(put(field, text))


def test_every_field_of_both_sides_is_described() -> None:
    for model in (SystemRequest, SystemResponse):
        schema = TypeAdapter(model).json_schema()
        for definition in [schema, *schema["$defs"].values()]:
            for name, field in definition.get("properties", {}).items():
                assert field.get("description"), f"{definition['title']}.{name}"


def test_a_response_has_the_fields_of_the_contract() -> None:
    response = SystemResponse(request_id="r", trace_id="0" * 32, mode=Mode.CHAT, state="COMPLETE")
    assert list(response.model_dump()) == RESPONSE_FIELDS.split()


def test_usage_is_summed_and_the_sum_is_an_estimate_if_a_part_is() -> None:
    one = TokenUsage(
        input_tokens=1, output_tokens=2, reasoning_tokens=3, cached_tokens=4, cache_write_tokens=6, total_tokens=5
    )
    other = TokenUsage(
        input_tokens=10,
        output_tokens=20,
        reasoning_tokens=30,
        cached_tokens=40,
        cache_write_tokens=60,
        total_tokens=50,
        estimated=True,
    )
    assert (one + other).model_dump() == {
        "input_tokens": 11,
        "output_tokens": 22,
        "reasoning_tokens": 33,
        "cached_tokens": 44,
        "cache_write_tokens": 66,
        "total_tokens": 55,
        "estimated": True,
    }
    assert not (one + one).estimated


@pytest.mark.parametrize(
    ("cause", "found"),
    [
        (None, None),
        (ConnectionResetError("secret"), "ConnectionResetError"),
        (failure(Code.TOOL_TIMEOUT, "x"), "TOOL_TIMEOUT"),
    ],
)
def test_an_error_names_the_type_of_its_cause_and_not_its_text(cause: Exception | None, found: str | None) -> None:
    raised = failure(Code.INFERENCE_ENGINE_ERROR, "the provider failed", details={"attempts": 2}, condition="refused")
    raised.__cause__ = cause
    assert WireError.of(raised).model_dump(mode="json") == {
        "code": "INFERENCE_ENGINE_ERROR",
        "category": "InferenceFailure",
        "retryable": False,
        "message": "the provider failed",
        "details": {"attempts": 2},
        "caused_by": found,
    }
