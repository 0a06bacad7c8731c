"""Generated bodies, sent to the routes of all client APIs in this process: each is answered in its API's form."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import orjson
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from fastapi import FastAPI
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.walk import post_execution
from portico.entrypoints.http.app import create_app
from portico.settings import Settings

HEX = "019ab0000000700080000000000000aa"
CALL_ID = f"call_{HEX}_0"
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
WORDS = (
    "",
    "auto",
    "none",
    "required",
    "user",
    "assistant",
    "system",
    "tool",
    "text",
    "default",
    "json_schema",
    CALL_ID,
)
SCALARS = st.none() | st.booleans() | st.integers(-2, 9) | st.floats(allow_nan=False, width=16) | st.sampled_from(WORDS)
NAMES = st.sampled_from(
    [
        *("type", "role", "content", "text", "id", "name", "input", "function", "arguments", "tool_calls", "call_id"),
        *("tool_call_id", "tool_use_id", "output", "is_error", "mode", "tools", "schema", "format", "json_schema"),
        *("limits", "quote", "plan", "flow", "effort", "summary", "include_usage", "allowed_tools", "server_label"),
    ]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)
HELLO = {"role": "user", "content": "Hello"}
FUNCTION = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
PIECES: Mapping[str, list[dict[str, Any]]] = {
    CHAT: [
        HELLO,
        {"role": "assistant", "tool_calls": [{"id": CALL_ID, "type": "function", "function": {"name": "look"}}]},
        {"role": "tool", "tool_call_id": CALL_ID, "content": "seen"},
        FUNCTION,
    ],
    RESPONSES: [
        HELLO,
        {"type": "function_call", "call_id": CALL_ID, "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": CALL_ID, "output": "seen"},
        {"type": "item_reference", "id": f"msg_{HEX}_0"},
        {"type": "mcp_approval_response", "approval_request_id": f"mcpr_{HEX}_0", "approve": True},
        {"type": "mcp", "server_label": "portico", "allowed_tools": ["calculate"]},
        {"type": "function", "name": "look"},
    ],
    MESSAGES: [
        HELLO,
        {"role": "assistant", "content": [{"type": "tool_use", "id": CALL_ID, "name": "look", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": CALL_ID, "is_error": True}]},
        {"name": "look", "input_schema": {"type": "object"}},
    ],
}
"""Turns, items and tools of each API, most of which are valid by themselves."""
PARAMETERS: Mapping[str, tuple[str, ...]] = {
    CHAT: ("tool_choice", "response_format", "stop", "stream_options", "n", "max_tokens", "reasoning_effort", "seed"),
    RESPONSES: (
        "instructions",
        "tool_choice",
        "text",
        "reasoning",
        "conversation",
        "include",
        "stream_options",
        "truncation",
    ),
    MESSAGES: ("system", "tool_choice", "output_config", "stop_sequences", "thinking", "max_tokens", "top_k"),
}
COMMON = ("metadata", "temperature", "top_p", "user", "store", "portico", "stream", "parallel_tool_calls", "model")
LISTS = {CHAT: "messages", RESPONSES: "input", MESSAGES: "messages"}


@st.composite
def bodies(draw: st.DrawFn, path: str) -> dict[str, Any]:
    """Return a body of that route: some parameters with any values, over turns and tools that are nearly valid."""
    piece = st.sampled_from(PIECES[path])
    nearly = piece | st.tuples(piece, st.dictionaries(NAMES, VALUES, max_size=1)).map(
        lambda both: {**both[0], **both[1]}
    )
    body = draw(st.dictionaries(st.sampled_from((*PARAMETERS[path], *COMMON)), VALUES, max_size=3))
    body = {"model": "default", LISTS[path]: draw(st.lists(nearly | VALUES, max_size=4)), **body}
    tools = draw(st.lists(nearly, max_size=2))
    return {**body, "tools": tools} if tools else body


@pytest.fixture(scope="module")
def portal() -> Iterator[tuple[BlockingPortal, FastAPI]]:
    """A service without a socket, and the way to the loop that it runs on."""
    tables = {"storage": {"url": "sqlite://"}, "telemetry": {"log_level": "error"}, "ingress": {"approval_wait": 0}}
    app = create_app(Settings.model_validate(tables))
    with start_blocking_portal() as opened, opened.wrap_async_context_manager(app.router.lifespan_context(app)):
        yield opened, app


def check_error(path: str, body: Mapping[str, Any]) -> None:
    """Check the form of an error of the route's API, and the members of a problem beside it."""
    assert {"code", "status", "detail", "retryable"} <= body.keys()
    if path == MESSAGES:
        assert body["type"] == "error"
        assert body["error"].keys() == {"type", "message"}
    else:
        assert body["error"].keys() == {"message", "type", "param", "code"}


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
def test_any_body_is_answered_in_the_form_of_its_api(path: str, portal: tuple[BlockingPortal, FastAPI]) -> None:
    opened, app = portal
    post = partial(post_execution, app, path=path)

    @given(body=bodies(path))
    @settings(max_examples=120)
    def answers(body: dict[str, Any]) -> None:
        head, *chunks = opened.call(post, orjson.dumps(body))
        sent = b"".join(each.get("body", b"") for each in chunks)
        headers = dict(head["headers"])
        assert head["status"] < 500, sent
        if headers[b"content-type"] == b"text/event-stream":
            assert any(end in sent for end in (b"[DONE]", b"message_stop", b'"error"')), sent
        elif head["status"] != 200:
            assert headers[b"content-type"] == b"application/json"
            check_error(path, orjson.loads(sent))

    answers()
