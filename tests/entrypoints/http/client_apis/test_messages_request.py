"""Requests of the Messages API: what Anthropic's clients and our own dialect send is decoded without loss."""

import json
from pathlib import Path
from typing import Any

import pytest

from portico.adapters.engines.anthropic.dialect import AnthropicDialect
from portico.domain.access.principal import ALL
from portico.domain.contract.messages import Message, TextPart
from portico.domain.contract.request import NamedTool, SystemRequest
from portico.domain.failures import RequestFailure
from portico.domain.model_call import EngineCall
from portico.domain.tools import ToolDefinition
from portico.entrypoints.http.client_apis.api import DecodedRequest, Shown
from portico.entrypoints.http.client_apis.messages.request import decode
from portico.entrypoints.http.client_apis.models import ModelNames
from portico.orchestration.facade import ServedModels
from tests.adapters.engines.cases import CASES, PIXEL, EncodeCase
from tests.adapters.engines.dialects import DIALECTS
from tests.adapters.engines.recorded_report import NO_RECORDED_TRAFFIC
from tests.adapters.engines.recordings import recordings

DIALECT = AnthropicDialect()
ANTHROPIC = DIALECTS["anthropic"]
HELLO = {"role": "user", "content": "Hello"}


def names(*options: str) -> ModelNames:
    """The names of a service with one route, whose engines pass on these options."""
    return ModelNames(
        {"*": "default"}, ServedModels({}, {"default": frozenset(options)}, frozenset(), frozenset()), ALL
    )


def decoded(*options: str, **fields: Any) -> DecodedRequest[Shown]:
    return decode({"model": "claude", "messages": [HELLO], **fields}, names(*options))


def refusal(**fields: Any) -> tuple[str, str]:
    """The field that is refused, and why."""
    with pytest.raises(RequestFailure) as caught:
        decoded(**fields)
    error = caught.value.details["errors"][0]
    return error["field"], error["message"]


def messages(request: SystemRequest) -> list[dict[str, Any]]:
    return [message.model_dump(exclude_none=True) for message in request.messages]


def as_call(request: SystemRequest) -> EngineCall:
    """The call that an engine gets for a request that nothing is added to."""
    tools = [ToolDefinition(tool.name, tool.description, tool.parameters) for tool in request.client_tools]
    return EngineCall(request.messages, tools, request.hints, schema=request.output.schema_)


@pytest.mark.parametrize(
    "case", [case for case in CASES.values() if case.applies_to(ANTHROPIC.capabilities)], ids=lambda _: ""
)
def test_what_our_dialect_sends_is_decoded_to_what_it_was_made_of(case: EncodeCase) -> None:
    profile = ANTHROPIC.profile(case.options)
    body = json.loads(json.dumps(DIALECT.encode(case.call(()), profile, stream=case.stream).body))
    request = decode(body, names(*case.options))
    assert request.ignored == []
    assert request.shown.is_stream == body.get("stream", False)
    again = DIALECT.encode(as_call(request.request), profile, stream=case.stream).body
    assert json.loads(json.dumps(again)) == body


@pytest.mark.parametrize("path", recordings("anthropic-*.json"), ids=lambda path: path.stem)
def test_a_recorded_request_is_accepted_or_refused_by_name(path: Path) -> None:
    body = json.loads(path.read_text())["request"]["body"]
    refused = [
        f"messages.{turn}.content.{number}.type"
        for turn, message in enumerate(body["messages"])
        for number, block in enumerate(message["content"])
        if isinstance(block, dict)
        and (block["type"] == "container_upload" or block.get("source", {}).get("type") in {"url", "file"})
    ]
    if refused:
        with pytest.raises(RequestFailure) as caught:
            decode(body, names())
        assert [each["field"] for each in caught.value.details["errors"]] == refused[:1]
        return
    request = decode(body, names())
    sent = {
        name
        for name in body
        if name in {"thinking", "cache_control", "context_management", "mcp_servers", "container", "top_k"}
    }
    tools = {f"tools.{tool['type']}" for tool in body.get("tools", []) if "input_schema" not in tool}
    assert set(request.ignored) == sent | tools
    texts = [
        part.text
        for message in request.request.messages
        for part in _parts(message.content)
        if isinstance(part, TextPart) and part.text
    ]
    assert "\n".join(texts) == "\n".join(_sent_texts(body))


@pytest.mark.skipif(not recordings("anthropic-*.json"), reason=NO_RECORDED_TRAFFIC)
def test_recorded_traffic_is_there() -> None:
    assert len(recordings("anthropic-*.json")) > 20


def _parts(content: Any) -> list[Any]:
    return [TextPart(type="text", text=content)] if isinstance(content, str) else content


def _sent_texts(body: dict[str, Any]) -> list[str]:
    """All texts that a body has, in order."""
    contents = [body.get("system") or [], *(turn["content"] for turn in body["messages"])]
    return [text for content in contents for text in _texts(content)]


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    blocks = [block["content"] if block["type"] == "tool_result" else [block] for block in content]
    return [
        block["text"]
        for inner in blocks
        for block in ([{"type": "text", "text": inner}] if isinstance(inner, str) else inner)
        if block["type"] == "text"
    ]


def test_results_move_behind_their_calls_and_thoughts_are_dropped() -> None:
    turns = [
        HELLO,
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "a", "name": "look", "input": {"at": 1}},
                {"type": "tool_use", "id": "b", "name": "look", "input": {}},
            ],
        },
        {"role": "system", "content": "Be quick."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "And?"},
                {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "two"}]},
                {"type": "tool_result", "tool_use_id": "a", "is_error": True, "cache_control": {}},
            ],
        },
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]},
    ]
    calls = [{"id": "a", "name": "look", "arguments": {"at": 1}}, {"id": "b", "name": "look", "arguments": {}}]
    assert messages(decoded(messages=turns, system=[{"type": "text", "text": "S"}]).request) == [
        {"role": "system", "content": "S"},
        HELLO,
        {"role": "assistant", "content": "I look.", "tool_calls": calls},
        {"role": "tool", "content": "two", "tool_call_id": "b"},
        {"role": "tool", "content": "Error", "tool_call_id": "a"},
        {"role": "system", "content": "Be quick."},
        {"role": "user", "content": "And?"},
    ]


def test_parameters_become_hints_limits_tools_and_a_format() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    found = decoded(
        max_tokens=9,
        temperature=0,
        top_p=1,
        stop_sequences=["END"],
        top_k=None,
        stream=True,
        metadata={"user_id": "u"},
        tools=[
            {"name": "look", "description": "Looks.", "input_schema": schema, "strict": True, "cache_control": None},
            {"type": "custom", "name": "bare", "input_schema": {"type": "object"}, "defer_loading": True},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
        tool_choice={"type": "tool", "name": "look", "disable_parallel_tool_use": True},
        output_config={"effort": "high", "format": {"type": "json_schema", "schema": schema}},
        thinking={"type": "adaptive"},
        service_tier="auto",
    )
    request = found.request
    hints = {"max_tokens": 9, "temperature": 0, "top_p": 1, "stop": ["END"], "reasoning": "high"}
    assert request.hints.model_dump(exclude_defaults=True, exclude={"tool_choice"}) == hints
    assert request.hints.tool_choice == NamedTool(name="look")
    assert [(tool.name, tool.description, tool.parameters) for tool in request.client_tools] == [
        ("look", "Looks.", schema),
        ("bare", "", {"type": "object"}),
    ]
    assert (request.on_client_call, request.limits.calls_per_reply, request.tools) == ("end", 1, [])
    assert (request.mode, request.output.schema_, request.metadata) == ("structured", schema, {"user_id": "u"})
    assert (found.shown.is_stream, found.shown.model) == (True, "claude")
    assert sorted(found.ignored) == ["service_tier", "thinking", "tools.web_search_20250305"]


CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}
IMAGE = {"type": "base64", "media_type": "image/png", "data": PIXEL}
PNG = {"type": "image", "media_type": "image/png", "data": PIXEL}
BROKEN = {"type": "image", "source": {**IMAGE, "data": "!"}}
HELD: dict[str, Any] = RESULT["content"][0]


@pytest.mark.parametrize(
    ("content", "read"),
    [
        ("no such file", "Error: no such file"),
        ("<tool_use_error>no such file</tool_use_error>", "<tool_use_error>no such file</tool_use_error>"),
        ([{"type": "text", "text": "no such file"}], "Error: no such file"),
        ([{"type": "image", "source": IMAGE}], [{"type": "text", "text": "Error:"}, PNG]),
    ],
)
def test_the_result_of_a_call_that_failed_says_so(content: Any, read: Any) -> None:
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]}
    failed = {"type": "tool_result", "tool_use_id": "a", "content": content, "is_error": True}
    turns = [HELLO, call, {"role": "user", "content": [failed]}]
    assert messages(decoded(messages=turns).request)[-1]["content"] == read


def answered(blocks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a conversation in which a user's turn with these blocks follows a call."""
    return {"messages": [HELLO, CALL, {"role": "user", "content": blocks}]}


def image(**source: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [{"type": "image", "source": source}]}]}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"model": None}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": [1]}, "messages.0"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": [{"text": "a"}]}]}, "messages.0.content.0.type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content.0.text"),
        ({"messages": [{"role": "user", "content": [{"type": "document"}]}]}, "messages.0.content.0.source"),
        ({"messages": [{"role": "user", "content": [CALL["content"][0]]}]}, "messages.0.content.0.type"),
        ({"messages": [HELLO, CALL]}, "messages.1.content.0"),
        ({"messages": [HELLO, RESULT]}, "messages.1.content.0.tool_use_id"),
        ({"messages": [HELLO, CALL, RESULT, RESULT]}, "messages.3.content.0.tool_use_id"),
        (image(type="url", url="ftp://example.org/a.png"), "messages.0.content.0.source.url"),
        (
            {"system": [{"type": "document", "source": {"type": "url", "url": "https://example.org/a"}}]},
            "system.0.type",
        ),
        (image(type="file", file_id="f"), "messages.0.content.0.source.type"),
        (image(type="base64", media_type="image/png"), "messages.0.content.0.source.data"),
        (image(type="base64", media_type="image/png", data="!"), "messages.0.content.0.source.data"),
        (answered([HELD, BROKEN]), "messages.2.content.1.source.data"),
        (answered([HELD, {"type": "text", "text": "a"}, BROKEN]), "messages.2.content.2.source.data"),
        (answered([{**HELD, "content": [BROKEN]}]), "messages.2.content.0.content.0.source.data"),
        (answered([{**HELD, "content": [BROKEN], "is_error": True}]), "messages.2.content.0.content.0.source.data"),
        (answered([{"type": "thinking"}, BROKEN, HELD]), "messages.2.content.1.source.data"),
        (
            {"messages": [HELLO, {"role": "assistant", "content": [{**CALL["content"][0], "name": ""}]}, RESULT]},
            "messages.1.content.0.name",
        ),
        ({"system": [{"type": "image", "source": IMAGE}]}, "system.0.type"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"stop_sequences": [""]}, "stop_sequences.0"),
        ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools.0.name"),
        ({"tools": [{"name": "a", "input_schema": []}]}, "tools.0.input_schema"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        (
            {"tools": [{"type": "bash_20250124", "name": "bash"}], "tool_choice": {"type": "tool", "name": "bash"}},
            "tool_choice.name",
        ),
        ({"output_config": {"format": {"type": "grammar"}}}, "output_config.format.type"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"metadata": {"user_id": 1}}, "metadata.user_id"),
        ({"stream": "yes"}, "stream"),
        ({"n": 2}, "n"),
        ({"portico": {"mood": 1}}, "portico.mood"),
    ],
    ids=str,
)
def test_what_is_not_valid_is_refused_by_its_path(fields: dict[str, Any], field: str) -> None:
    assert refusal(**fields)[0] == field


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (
            {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
            {"type": "image", "url": "https://example.org/a.png"},
        ),
        (
            {"type": "document", "title": "a", "source": {"type": "url", "url": "https://example.org/a?b"}},
            {"type": "document", "media_type": "application/pdf", "url": "https://example.org/a?b", "name": "a"},
        ),
        (
            {"type": "document", "source": {"type": "url", "url": "https://example.org/a.md?b.pdf"}},
            {"type": "document", "media_type": "text/markdown", "url": "https://example.org/a.md?b.pdf"},
        ),
    ],
)
def test_images_and_documents_by_url_become_parts_with_a_url(block: dict[str, Any], part: dict[str, Any]) -> None:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": [block]}]}
    [message] = decoded(**body).request.messages
    assert message == Message.model_validate({"role": "user", "content": [part]})


def test_images_in_the_body_are_taken_in_both_forms() -> None:
    found = {"type": "image", "media_type": "image/png", "data": PIXEL}
    for source in (IMAGE, {"type": "url", "url": f"data:image/png;base64,{PIXEL}"}):
        assert messages(decoded(**image(**source)).request) == [{"role": "user", "content": [found]}]
