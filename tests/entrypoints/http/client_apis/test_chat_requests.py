"""Requests of chat completions: what each parameter becomes, and what is refused or ignored by name."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.adapters.engines.openai.chat_completions import ChatCompletionsDialect
from portico.domain.access.principal import Permissions
from portico.domain.contract.messages import ImagePart, Message, TextPart, ToolCall
from portico.domain.contract.request import ExecutionHints, NamedTool, SystemRequest
from portico.domain.failures import AccessFailure, Code, RequestFailure
from portico.domain.ids import ToolCallId
from portico.domain.lifecycle import Mode
from portico.domain.model_call import EngineCall
from portico.domain.tools import ToolDefinition
from portico.entrypoints.http.client_apis.api import DecodedRequest
from portico.entrypoints.http.client_apis.chat_completions import ChatShown, decode
from portico.entrypoints.http.client_apis.turn import DisplayTime
from tests.adapters.engines.engine_calls import profile
from tests.adapters.engines.recorded_report import NO_RECORDED_TRAFFIC
from tests.adapters.engines.recordings import recordings
from tests.support.client_apis import NEUTRAL, UNSUPPORTED, model_names

NO_BASE64, NO_PDF = "data:image/png;base64,!", "data:application/pdf;base64,!"
MESSAGES = [{"role": "user", "content": "Hello"}]
WEATHER = {"name": "weather", "description": "Tell the weather.", "parameters": {"type": "object", "properties": {}}}
FILES = recordings("openai*-*.json")


def decoded(aliases: dict[str, str] | None = None, **body: Any) -> DecodedRequest[ChatShown]:
    return decode({"model": "default", "messages": MESSAGES, **body}, model_names(aliases))


def request(**body: Any) -> SystemRequest:
    return decoded(**body).request


def refused(**body: Any) -> tuple[str, str]:
    """Return the first field of the refusal, and the code that clients know for it."""
    with pytest.raises(RequestFailure) as caught:
        decoded(**body)
    return caught.value.details["errors"][0]["field"], caught.value.details.get("client_code", "")


def function(name: str = "weather", **changes: Any) -> dict[str, Any]:
    return {"type": "function", "function": {**WEATHER, "name": name, **changes}}


def called(name: str, call_id: str = "c") -> list[dict[str, Any]]:
    """Return a call of that name and its result."""
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": call_id, "content": "seen"}
    return [{"role": "assistant", "content": None, "tool_calls": [call]}, result]


@pytest.mark.parametrize(("name", "value"), UNSUPPORTED)
def test_an_unsupported_parameter_is_refused_by_name(name: str, value: Any) -> None:
    assert refused(**{name: value}) == (name, "unsupported_parameter")


@pytest.mark.parametrize(("name", "value"), NEUTRAL)
def test_the_neutral_value_of_an_unsupported_parameter_passes(name: str, value: Any) -> None:
    assert decoded(**{name: value}).ignored == []


def test_parameters_without_effect_are_reported_and_nulls_are_not() -> None:
    tools = [{"type": "web_search"}, function()]
    found = decoded(service_tier="auto", verbosity="low", unheard=None, top_k=3, tools=tools, reasoning_effort="low")
    assert sorted(found.ignored) == ["service_tier", "tools.web_search", "top_k", "verbosity"]
    assert (found.request.hints.reasoning, found.request.hints.options) == ("low", {})


@pytest.mark.parametrize(
    ("effort", "level"), [("none", "none"), ("minimal", "low"), ("high", "high"), ("xhigh", "max")]
)
def test_an_effort_is_a_level_of_reasoning(effort: str, level: str) -> None:
    assert decoded(reasoning_effort=effort).request.hints.reasoning == level
    assert refused(reasoning_effort="utmost")[0] == "reasoning_effort"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"model": None}, "model"),
        ({"model": 3}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": ["x"]}, "messages.0"),
        ({"messages": [{"role": "robot", "content": ""}]}, "messages.0.role"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages.0.content.0.input_audio"),
        ({"messages": [{"role": "user", "content": [{"type": "file"}]}]}, "messages.0.content.0.file"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": NO_BASE64}}]}]},
            "messages.0.content.0.image_url.url",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_data": NO_PDF}}]}]},
            "messages.0.content.0.file.file_data",
        ),
        ({"messages": [*MESSAGES, {"role": "tool", "tool_call_id": "c", "content": "x"}]}, "messages.1"),
        ({"messages": [{"role": "user", "content": "x", "name": "n" * 65}]}, "messages.0.name"),
        ({"messages": called("")}, "messages.0.tool_calls.0.function.name"),
        ({"messages": called("look", "")}, "messages.0.tool_calls.0.id"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"top_p": True}, "top_p"),
        ({"seed": 1.5}, "seed"),
        ({"stop": ["", "x"]}, "stop.0"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools.0.function"),
        ({"tools": [{"type": "web_search"}, function("no name!")]}, "tools.1.function.name"),
        ({"tools": [function(), function()]}, "tools.1.function.name"),
        ({"tools": [function(parameters=[])]}, "tools.0.function.parameters"),
        ({"tool_choice": "always"}, "tool_choice"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": 1}}},
            "response_format.json_schema.schema",
        ),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"user": 7}, "user"),
        ({"store": "no"}, "store"),
        ({"portico": []}, "portico"),
        ({"portico": {"tempo": 1}}, "portico.tempo"),
        ({"portico": {"limits": {"attempts": 0}}}, "portico.limits.attempts"),
        (
            {"portico": {"limits": {"calls_per_reply": 2}}, "parallel_tool_calls": False},
            "portico.limits.calls_per_reply",
        ),
        ({"portico": {"output": {}}, "response_format": {"type": "json_object"}}, "portico.output"),
        ({"portico": {"mode": "chat"}, "model": "flow:triage"}, "portico.mode"),
        ({"portico": {"mode": "plan", "deltas": "live"}}, "portico.deltas"),
    ],
)
def test_an_invalid_parameter_is_refused_under_its_path_as_it_was_sent(body: dict[str, Any], field: str) -> None:
    assert refused(**body)[0] == field


def test_an_image_is_a_part_embedded_or_by_its_url_and_nothing_else() -> None:
    def picture(url: str) -> list[dict[str, Any]]:
        return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]

    for elsewhere in ("ftp://example.org/x.png", "file:///x.png", "x.png", "data:text/plain;base64,eA=="):
        assert refused(messages=picture(elsewhere))[0] == "messages.0.content.0.image_url.url"
    [linked] = request(messages=picture("https://example.org/x.png")).messages[0].images
    assert (linked.url, linked.media_type, linked.data) == ("https://example.org/x.png", "", "")
    assert refused(messages=picture("data:image/png;base64,?"))[0].startswith("messages.0.content")
    [part] = request(messages=picture("data:image/PNG;base64,iVBORw==")).messages[0].images
    assert (part.media_type, part.data) == ("image/png", "iVBORw==")


def test_a_model_names_an_alias_an_agent_a_route_an_engine_or_a_flow() -> None:
    aliases = {"gpt-4o*": "default", "gpt-4o-mini*": "fast", "gpt-4o-mini": "agent:support", "jury-1": "jury"}
    assert request(aliases=aliases, model="gpt-4o-2024").model == "default"
    assert request(aliases=aliases, model="gpt-4o-mini-x").model == "fast"
    assert request(aliases=aliases, model="gpt-4o-mini").agent == "support"
    assert request(aliases=aliases, model="jury-1").agent == "jury"
    assert request(model="agent:jury").agent == "jury"
    flow = request(model="flow:triage", messages=[*MESSAGES, {"role": "assistant", "content": "?"}])
    assert flow.flow is not None
    assert (flow.mode, flow.flow.name, flow.flow.input, flow.messages) == (Mode.FLOW, "triage", "Hello", [])
    for unknown in ("gpt-5", "flow:none", "agent:none", "agent:fast", "*"):
        assert refused(model=unknown) == ("model", "model_not_found")


def test_an_unknown_model_is_forbidden_to_those_who_may_not_use_every_one() -> None:
    names = model_names(permissions=Permissions.of(["model:fast"]))
    with pytest.raises(AccessFailure) as caught:
        decode({"model": "secret", "messages": MESSAGES}, names)
    assert caught.value.code is Code.ACCESS_DENIED


def test_server_tools_come_with_an_agent_or_by_name_only_and_wait_for_no_person() -> None:
    assert request().tools == []
    assert request(model="jury").tools is None
    named = decoded(portico={"tools": ["search", "ask_person"]})
    assert (named.request.tools, named.ignored) == (["search"], ["tools.ask_person"])
    agent = decoded(model="support")
    assert (agent.request.tools, agent.ignored) == (["search"], ["tools.ask_person"])


def test_a_format_makes_a_chat_structured_unless_agent_or_extension_have_a_mode() -> None:
    schema = {"type": "object", "required": ["size"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "town", "schema": schema, "strict": True}}
    assert (request(response_format=wanted).mode, request(response_format=wanted).output.schema_) == (
        Mode.STRUCTURED,
        schema,
    )
    assert request(response_format={"type": "json_object"}).output.schema_ == {"type": "object"}
    assert request(response_format={"type": "text"}).mode is Mode.CHAT
    assert request(model="support", response_format=wanted).mode is Mode.STRUCTURED
    assert "mode" not in request(model="jury", response_format=wanted).model_fields_set
    assert request(response_format=wanted, portico={"mode": "redundant"}).mode is Mode.REDUNDANT


def test_functions_end_the_execution_and_a_choice_may_offer_fewer() -> None:
    both = [function(), function("time", strict=None, description=None, parameters={})]
    found = request(tools=both, parallel_tool_calls=False, tool_choice="required")
    assert found.client_tools[1].parameters == {"type": "object"}
    assert [tool.name for tool in found.client_tools] == ["weather", "time"]
    assert (found.on_client_call, found.limits.calls_per_reply, found.hints.tool_choice) == ("end", 1, "required")
    named = {"type": "function", "function": {"name": "time"}}
    assert request(tools=both, tool_choice=named).hints.tool_choice == NamedTool(name="time")
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named]}}
    fewer = request(tools=both, tool_choice=allowed)
    assert ([tool.name for tool in fewer.client_tools], fewer.hints.tool_choice) == (["time"], "auto")


def test_results_move_behind_their_calls() -> None:
    def call(call_id: str) -> dict[str, Any]:
        return {"id": call_id, "type": "function", "function": {"name": "weather", "arguments": "not JSON"}}

    sent = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [call("a"), call("b")]},
        {"role": "tool", "tool_call_id": "b", "content": "two"},
        {"role": "user", "content": "and?"},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "one"}]},
    ]
    found = request(messages=sent).messages
    assert [(each.role, each.text) for each in found] == [
        *(("user", "Hello"), ("assistant", ""), ("tool", "two"), ("tool", "one"), ("user", "and?"))
    ]
    assert found[1].tool_calls is not None
    assert found[1].tool_calls[0].arguments == {"_raw": "not JSON"}
    assert refused(messages=sent[:3])[0] == "messages.1.tool_calls.0"


def test_the_mode_decides_when_text_is_shown_and_the_extension_may_settle_it() -> None:
    assert decoded().shown.delivery is DisplayTime.LIVE
    assert decoded(portico={"deltas": "settled"}).shown.delivery is DisplayTime.COMMITTED
    assert decoded(model="jury").shown.delivery is DisplayTime.END
    assert decoded(portico={"output": {"rules": ["no_urls"]}}).shown.delivery is DisplayTime.END
    assert decoded(response_format={"type": "json_object"}).shown.delivery is DisplayTime.END
    assert (
        decoded(response_format={"type": "json_object"}, portico={"deltas": "live"}).shown.delivery is DisplayTime.LIVE
    )


CALL = ToolCall(id=ToolCallId("call_1"), name="weather", arguments={"town": "Ulm", "days": 2})
PIXEL = ImagePart(type="image", media_type="image/png", data="iVBORw==")
SPOKEN = [
    Message(role="system", content="Be brief."),
    Message(role="user", content=[TextPart(type="text", text="Look:"), PIXEL], name="ada"),
    Message(role="assistant", content="I ask.", tool_calls=[CALL]),
    Message(role="tool", content="rain", tool_call_id=CALL.id),
    Message(role="assistant", content="It rains."),
    Message(role="user", content="And tomorrow?"),
]


@pytest.mark.parametrize("choice", [None, "auto", "none", "required", NamedTool(name="weather")])
@pytest.mark.parametrize("model", ["gpt-4o", "gpt-5", "llama-3"])
def test_what_the_dialect_encodes_is_decoded_to_the_same_request(model: str, choice: Any) -> None:
    """A model behind Portico may be Portico."""
    hints = ExecutionHints(max_tokens=9, temperature=0, top_p=0.5, stop=["END"], seed=4, tool_choice=choice)
    tools = [ToolDefinition("weather", "Tell the weather.", {"type": "object", "properties": {}})]
    schema = {"type": "object", "properties": {"sky": {"type": "string"}}, "required": ["sky"]}
    call = EngineCall(SPOKEN, tools, hints, schema=schema)
    sent = json.loads(json.dumps(ChatCompletionsDialect().encode(call, profile(model), stream=True).body))
    found = decode({**sent, "model": "default"}, model_names())
    assert [each.model_dump(exclude_none=True) for each in found.request.messages] == [
        each.model_dump(exclude_none=True) for each in SPOKEN
    ]
    assert [each.model_dump() for each in found.request.client_tools] == [
        {"name": "weather", "description": "Tell the weather.", "parameters": {"type": "object", "properties": {}}}
    ]
    expected = {name: value for name, value in hints if value is not None and name != "options"}
    # The dialect leaves out what these models refuse.
    expected = {name: value for name, value in expected.items() if name == "max_tokens" or name in sent}
    assert {name: value for name, value in found.request.hints if value not in (None, {})} == expected
    assert found.shown.is_stream
    assert found.request.output.schema_ is not None
    assert found.ignored == []


@pytest.mark.skipif(not FILES, reason=NO_RECORDED_TRAFFIC)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_recorded_request_is_accepted_or_refused_by_name(path: Path) -> None:
    body = json.loads(path.read_text())["request"]["body"]
    refusal, found = None, None
    try:
        found = decode(body, model_names({body["model"]: "default"}))
    except RequestFailure as failure:
        refusal = failure
    if found is None:
        assert refusal is not None
        [first, *_] = refusal.details["errors"]
        is_named = refusal.details.get("client_code") == "unsupported_parameter" or "data: URL" in first["message"]
        assert is_named or first["message"] == "must be text, image_url, file or input_audio", first
        return
    assert len(found.request.messages) == len(body["messages"])
    functions = {tool["function"]["name"] for tool in body.get("tools") or () if "function" in tool}
    assert {tool.name for tool in found.request.client_tools} == functions


PARAMETERS = (
    *("messages", "tools", "tool_choice", "response_format", "stop", "stream", "stream_options", "metadata", "n"),
    *("max_tokens", "temperature", "portico", "user", "logprobs", "reasoning_effort", "parallel_tool_calls", "store"),
)
KEYS = (
    *("type", "role", "content", "tool_calls", "function", "name", "id", "arguments", "tool_call_id", "text", "url"),
    *("image_url", "schema", "json_schema", "allowed_tools", "mode", "tools", "limits"),
)
WORDS = ("", "auto", "function", "text", "user", "tool", "json_schema", "required", "assistant", "image_url")
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.sampled_from(WORDS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(PARAMETERS), VALUES, max_size=5))
@settings(max_examples=300, deadline=None)
def test_any_body_is_decoded_or_refused(body: dict[str, Any]) -> None:
    """Nothing but a refusal is raised, so that no body is an internal error."""
    with suppress(RequestFailure):
        decode({"model": "default", "messages": MESSAGES, **body}, model_names())
