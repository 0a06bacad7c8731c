"""Requests of the Responses API: what our own dialect sends comes back without loss, and bad input is named."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.adapters.engines.openai.responses import ResponsesDialect
from portico.domain.access.principal import ALL
from portico.domain.contract.response import SystemError
from portico.domain.failures import RequestFailure
from portico.domain.ids import RequestId
from portico.domain.model_call import EngineCall
from portico.domain.tools import ToolDefinition, reference_of
from portico.entrypoints.http.client_apis.api import DecodedRequest
from portico.entrypoints.http.client_apis.errors import client_code
from portico.entrypoints.http.client_apis.models import ModelNames
from portico.entrypoints.http.client_apis.responses.answer import ResponsesShown
from portico.entrypoints.http.client_apis.responses.input_items import input_items
from portico.entrypoints.http.client_apis.responses.request import ApprovalAnswers, approval_answers, decode
from portico.orchestration.facade import ServedModels
from tests.adapters.engines.cases import CASES, EncodeCase
from tests.adapters.engines.dialects import DIALECTS

OPENAI = DIALECTS["openai_responses"]
HEX, OTHER = "019ab0000000700080000000000000aa", "019ab0000000700080000000000000bb"
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a":1}'}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "ok"}
HELLO = {"role": "user", "content": "Hello"}
BROKEN = {"type": "input_image", "image_url": "data:image/png;base64,!"}
FUNCTION = {"type": "function", "name": "f"}
SERVER = {"type": "mcp", "server_label": "portico"}
PROBE = {"type": "mcp_approval_response", "approval_request_id": f"mcpr_{HEX}_0", "approve": True}


def names(*options: str) -> ModelNames:
    """Return the names of a service with one route, whose engines pass on these options."""
    served = ServedModels({}, {"default": frozenset(options)}, frozenset({"flow"}), frozenset({"ask_person"}))
    return ModelNames({"gpt-5*": "default"}, served, ALL)


def decoded(*options: str, **fields: Any) -> DecodedRequest[ResponsesShown]:
    return decode({"model": "default", "input": "Hello", **fields}, names(*options))


def refusal(**fields: Any) -> tuple[str, str]:
    """Return the field that is refused, and the code that clients read."""
    with pytest.raises(RequestFailure) as caught:
        decoded(**fields)
    return caught.value.details["errors"][0]["field"], client_code(SystemError.of(caught.value))


def sent_messages(*items: Any, **fields: Any) -> list[dict[str, Any]]:
    request = decoded(input=list(items), **fields).request
    return [message.model_dump(exclude_none=True) for message in request.messages]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.applies_to(OPENAI.capabilities)])
def test_what_our_dialect_sends_is_decoded_to_the_same_messages_tools_and_hints(name: str) -> None:
    case: EncodeCase = CASES[name]
    call, profile = case.call(()), OPENAI.profile(case.options)
    body = orjson.loads(orjson.dumps(ResponsesDialect().encode(call, profile, stream=case.stream).body))
    back = decode(body, names(*case.options))
    request = back.request
    tools = [ToolDefinition(tool.name, tool.description, tool.parameters) for tool in request.client_tools]
    again = EngineCall(request.messages, tools, request.hints, schema=request.output.schema_)
    assert orjson.loads(orjson.dumps(ResponsesDialect().encode(again, profile, stream=case.stream).body)) == body
    assert set(back.ignored) <= {"include.reasoning.encrypted_content"}
    assert [(tool.name, tool.parameters) for tool in request.client_tools] == [
        (tool.name, dict(tool.parameters)) for tool in call.tools
    ]
    assert back.shown.is_stream is case.stream


def test_a_text_stands_for_a_user_message_behind_the_instructions() -> None:
    request = decoded(input="Hello", instructions="Be brief.").request
    assert [(m.role, m.content) for m in request.messages] == [("system", "Be brief."), ("user", "Hello")]
    assert (request.model, request.tools) == ("default", [])


def test_calls_in_a_row_are_one_message_and_results_move_behind_their_call() -> None:
    second, other = CALL | {"call_id": "d"}, RESULT | {"call_id": "d"}
    reasoning = {"type": "reasoning", "id": "rs", "summary": []}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Two."}]}
    messages = sent_messages(HELLO, reasoning, said, CALL, second, HELLO, other, RESULT)
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "user"]
    assert (messages[1]["content"], [call["id"] for call in messages[1]["tool_calls"]]) == ("Two.", ["c", "d"])
    assert {message["tool_call_id"] for message in messages[2:4]} == {"c", "d"}


def test_arguments_that_are_no_object_are_kept_as_they_are() -> None:
    [call] = sent_messages(CALL | {"arguments": '{"a":'}, RESULT)[0]["tool_calls"]
    assert call["arguments"] == {"_raw": '{"a":'}


def test_items_of_earlier_answers_are_dropped() -> None:
    kinds = ("reasoning", "mcp_call", "mcp_list_tools", "mcp_approval_request", "compaction")
    assert sent_messages(*({"type": kind, "id": "x"} for kind in kinds), HELLO) == [HELLO]


def test_results_of_the_previous_answer_begin_the_messages_and_its_calls_are_dropped() -> None:
    held = {"call_id": f"call_{HEX}_0"}
    request = decoded(input=[CALL | held, RESULT | held, HELLO], previous_response_id=f"resp_{HEX}_2").request
    assert request.after == "019ab000-0000-7000-8000-0000000000aa"
    assert [(m.role, m.tool_call_id) for m in request.messages] == [("tool", f"call_{HEX}_0"), ("user", None)]


def test_tools_of_the_client_and_of_the_service_stand_side_by_side() -> None:
    request = decoded(tools=[FUNCTION, SERVER | {"allowed_tools": {"tool_names": ["calculate", "agent:x"]}}]).request
    assert ([tool.name for tool in request.client_tools], request.on_client_call) == (["f"], "end")
    assert request.tools is not None
    assert [reference_of(tool) for tool in request.tools] == ["calculate", "agent:x"]
    assert decoded(tools=[SERVER]).request.tools is None


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("required", "required"),
        ({"type": "function", "name": "f"}, "f"),
        ({"type": "mcp", "server_label": "portico", "name": "calculate"}, "calculate"),
        ({"type": "mcp", "server_label": "portico"}, "required"),
        ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]}, "required"),
    ],
)
def test_a_choice_among_tools_is_a_hint(choice: Any, expected: str) -> None:
    request = decoded(tools=[FUNCTION, FUNCTION | {"name": "g"}], tool_choice=choice).request
    chosen = request.hints.tool_choice
    assert (chosen if isinstance(chosen, str) else getattr(chosen, "name", None)) == expected
    allowed = ["f"] if isinstance(choice, dict) and choice["type"] == "allowed_tools" else ["f", "g"]
    assert [tool.name for tool in request.client_tools] == allowed


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"temperature": 9}, "temperature"),
        ({"max_output_tokens": "4"}, "max_output_tokens"),
        ({"input": 5}, "input"),
        ({"input": [5]}, "input.0"),
        ({"input": [{"type": "computer_call"}]}, "input.0.type"),
        ({"input": [{"role": "robot", "content": ""}]}, "input.0.role"),
        ({"input": [{"role": "user"}]}, "input.0.content"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input.0.content.0.type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "ftp://x/y.png"}]}]},
            "input.0.content.0.image_url",
        ),
        (
            {"input": [{"role": "user", "content": [BROKEN]}]},
            "input.0.content.0.image_url",
        ),
        ({"input": [CALL, {**RESULT, "output": [BROKEN]}]}, "input.1.output.0.image_url"),
        ({"input": [{**CALL, "name": ""}, RESULT]}, "input.0.name"),
        ({"input": [{**CALL, "call_id": ""}, {**RESULT, "call_id": ""}]}, "input.0.call_id"),
        ({"input": [CALL]}, "input.0.call_id"),
        ({"input": [RESULT]}, "input.0.call_id"),
        ({"input": [{"type": "item_reference", "id": f"msg_{HEX}_0"}]}, "input.0.id"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}], "previous_response_id": f"resp_{HEX}"}, "input.0.id"),
        ({"tools": [SERVER | {"server_label": "shop"}]}, "tools.0.server_label"),
        ({"tools": [SERVER | {"server_url": "https://x"}]}, "tools.0.server_url"),
        ({"tools": [SERVER | {"connector_id": "x"}]}, "tools.0.connector_id"),
        ({"tools": [{"type": "function", "name": "no name"}]}, "tools.0.name"),
        ({"tool_choice": {"type": "web_search"}, "tools": [{"type": "web_search"}]}, "tool_choice.type"),
        ({"conversation": "c", "previous_response_id": f"resp_{HEX}"}, "previous_response_id"),
        ({"conversation": {"id": 5}}, "conversation"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"reasoning": {"summary": "long"}}, "reasoning.summary"),
        ({"stream": "yes"}, "stream"),
        ({"store": "no"}, "store"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"instructions": 1}, "instructions"),
        ({"portico": {"modes": "chat"}}, "portico.modes"),
    ],
)
def test_an_invalid_field_is_refused_under_its_path(fields: dict[str, Any], refused: str) -> None:
    assert refusal(**fields) == (refused, "REQUEST_INVALID")


@pytest.mark.parametrize(
    "fields",
    [
        {"truncation": "auto"},
        {"max_tool_calls": 3},
        {"prompt": {"id": "p"}},
        {"top_logprobs": 2},
        {"prediction": {"type": "content"}},
    ],
)
def test_what_cannot_be_done_is_refused_by_name(fields: dict[str, Any]) -> None:
    assert refusal(**fields) == (next(iter(fields)), "unsupported_parameter")


def test_neutral_values_pass_and_the_rest_is_reported() -> None:
    neutral = {"truncation": "disabled", "max_tool_calls": None, "prompt": None, "top_logprobs": 0, "stream": None}
    assert decoded(**neutral).ignored == []
    answer = decoded(service_tier="auto", client_metadata={}, reasoning={"effort": "low"}, tools=[{"type": "custom"}])
    assert sorted(answer.ignored) == ["client_metadata", "service_tier", "tools.custom"]
    assert answer.request.hints.reasoning == "low"


def test_an_unknown_previous_answer_is_not_found() -> None:
    assert refusal(previous_response_id="chatcmpl-1") == ("previous_response_id", "previous_response_not_found")


def test_a_required_format_runs_as_structured() -> None:
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object", "properties": {}}, "strict": True}
    request = decoded(text={"format": form, "verbosity": "low"}).request
    assert (request.mode, request.output.schema_) == ("structured", form["schema"])
    assert decoded(text={"format": {"type": "json_object"}}).request.output.schema_ == {"type": "object"}
    assert decoded(text={"format": {"type": "text"}}).request.mode == "chat"


def test_answers_to_approvals_are_read_only_at_the_end() -> None:
    given = approval_answers({"input": [HELLO, PROBE | {"approve": False, "reason": "no"}, PROBE], "stream": True})
    assert isinstance(given, ApprovalAnswers)
    assert [(each.number, each.approves, each.reason) for each in given.answers] == [(0, False, "no"), (0, True, None)]
    assert given.is_stream
    assert approval_answers({"input": "Hello"}) is None
    earlier = [PROBE, {"type": "mcp_call"}, {"type": "message", "role": "assistant", "content": "Done."}, HELLO]
    assert approval_answers({"input": earlier}) is None
    assert sent_messages(*earlier) == [{"role": "assistant", "content": "Done."}, HELLO]


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        ({"input": [PROBE, HELLO]}, "input.1"),
        ({"input": [PROBE | {"approve": "yes"}]}, "input.0.approve"),
        ({"input": [PROBE | {"approval_request_id": "x"}]}, "input.0.approval_request_id"),
        (
            {"input": [PROBE, PROBE | {"approval_request_id": f"mcpr_{OTHER}_0"}]},
            "input.1.approval_request_id",
        ),
        ({"input": [PROBE], "previous_response_id": f"resp_{OTHER}"}, "previous_response_id"),
    ],
)
def test_an_invalid_answer_to_an_approval_is_named(body: dict[str, Any], refused: str) -> None:
    with pytest.raises(RequestFailure) as caught:
        approval_answers(body)
    assert caught.value.details["errors"][0]["field"] == refused


TEXTS = st.text(max_size=8) | st.sampled_from(
    ["message", "user", "function", "portico", f"resp_{HEX}", f"mcpr_{HEX}_0"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 300) | st.floats(allow_nan=False, width=16) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
PIECES = st.sampled_from(
    [HELLO, CALL, RESULT, PROBE, FUNCTION, SERVER, {"type": "item_reference", "id": f"msg_{HEX}_0"}]
)
NEARLY = PIECES | st.tuples(PIECES, st.dictionaries(st.sampled_from([*CALL, *PROBE, "role", "content"]), VALUES)).map(
    lambda pair: {**pair[0], **pair[1]}
)
FIELDS = ("input", "instructions", "tools", "tool_choice", "text", "reasoning", "previous_response_id", "conversation")
MORE = ("include", "metadata", "stream", "stream_options", "temperature", "max_output_tokens", "portico", "user", "n")


@given(
    body=st.dictionaries(st.sampled_from([*FIELDS, *MORE]), VALUES),
    items=st.none() | st.lists(NEARLY | VALUES, max_size=4),
    tools=st.none() | st.lists(NEARLY | VALUES, max_size=3),
)
def test_any_body_is_accepted_or_refused_by_name(body: dict[str, Any], items: Any, tools: Any) -> None:
    sent = {
        "model": "default",
        **body,
        **({} if items is None else {"input": items}),
        **({} if tools is None else {"tools": tools}),
    }
    try:
        if approval_answers(sent) is None:
            decode(sent, names("top_k"))
    except RequestFailure as refused:
        field = refused.details["errors"][0]["field"]
        assert field.partition(".")[0] in {*sent, "input", "tools", "model"}


def test_an_image_and_a_file_by_url_become_parts_with_a_url() -> None:
    parts = [
        {"type": "input_image", "image_url": "https://example.org/a"},
        {"type": "input_file", "file_url": "https://example.org/a", "filename": "a.txt"},
    ]
    [message] = decoded(input=[{"role": "user", "content": parts}]).request.messages
    [image], [document] = message.images, message.documents
    assert (image.url, image.media_type) == ("https://example.org/a", "")
    assert (document.url, document.media_type, document.name) == ("https://example.org/a", "text/plain", "a.txt")
    assert [each["content"] for each in input_items(RequestId(HEX), [message])] == [
        [{**parts[0], "detail": "auto"}, parts[1]]
    ]
