"""Both of OpenAI's APIs and hostile servers: every reply is read or is a fault of the provider."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.adapters.engines.dialect import Dialect
from portico.adapters.engines.openai.chat_completions import ChatCompletionsDialect
from portico.adapters.engines.openai.responses import ResponsesDialect
from portico.adapters.engines.wire.event_stream import EventStreamParser
from portico.adapters.engines.wire.reply_builder import ReplyBuilder
from portico.ports.model import EngineError
from tests.adapters.engines.engine_calls import call, profile
from tests.support.emulators import openai_chat, openai_responses
from tests.support.emulators.answers import ANSWERS
from tests.support.emulators.server import KEY, Respond

ASKED = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
EXTRA = {
    "extra_content": {"google": {"thought_signature": "x"}},
    "reasoning_details": [{"type": "reasoning.text", "text": "x", "index": 0}],
    "reasoning_content": "x",
    "refusal": None,
    "function_call": None,
}
VALUES = st.recursive(
    st.sampled_from([None, True, -1, 0, 1.5, 2**63, "", "x", "reasoning", "message", "function_call", "incomplete"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "text", "id"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def sent(dialect: Dialect, respond: Respond, *, stream: bool) -> list[Any]:
    """Return the JSON values that a server sends for a good answer."""
    encoded = dialect.encode(
        call(), profile("gpt-5-codex" if isinstance(dialect, ResponsesDialect) else "m"), stream=stream
    )
    values: list[Any] = []
    for title in ("reasoning_and_call", "text_and_parallel_calls"):
        pieces = respond(encoded.path, ASKED, orjson.dumps(encoded.body), ANSWERS[title]).pieces
        datas = EventStreamParser(2**20).feed(b"".join(pieces)) if stream else pieces
        values += [orjson.loads(data) for data in datas if data != b"[DONE]"]
    for value in values:
        for choice in value.get("choices", ()):
            choice.get("message", choice.get("delta")).update({**EXTRA, **choice.get("message", choice.get("delta"))})
    return values


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to everything within a JSON value."""
    yield path
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield from places(member, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    if not path:
        return other
    changed = copy.deepcopy(value)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = other
    return changed


SERVERS: Mapping[str, tuple[Dialect, Respond]] = {
    "chat": (ChatCompletionsDialect(), openai_chat.respond),
    "responses": (ResponsesDialect(), openai_responses.respond),
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", SERVERS)
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_an_answer_with_anything_in_any_place_is_read_or_is_a_fault(name: str, stream: bool, data: st.DataObject):
    dialect, respond = SERVERS[name]
    values = sent(dialect, respond, stream=stream)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(values) - 1))
        path = data.draw(st.sampled_from(list(places(values[place]))))
        values[place] = replaced(values[place], path, data.draw(VALUES))
    answer = ReplyBuilder(dialect.finish_reasons)
    try:
        for value in values:
            answer.add((dialect.decode_chunk if stream else dialect.decode)(orjson.dumps(value)))
        reply = answer.build("m")
    except EngineError:
        return
    assert orjson.dumps(dialect.encode(call([reply.message("primary")]), profile(), stream=stream).body)


@pytest.mark.parametrize("name", SERVERS)
@given(body=st.binary(max_size=64), status=st.integers(0, 999))
def test_any_body_of_any_status_has_a_reason(name: str, body: bytes, status: int):
    assert SERVERS[name][0].failure_reason(status, body)


@pytest.mark.parametrize("name", SERVERS)
@given(error=VALUES, status=st.integers(300, 599))
def test_any_error_of_any_shape_has_a_reason(name: str, error: Any, status: int):
    assert SERVERS[name][0].failure_reason(status, orjson.dumps({"error": error}))
