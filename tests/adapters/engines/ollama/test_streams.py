"""Ollama: a stream of lines over a socket, as it ends and as it breaks."""

import json
from typing import Any

import pytest

from portico.adapters.engines.ollama.dialect import OllamaDialect
from portico.domain.model_call import AttemptFailureReason, Reply
from portico.ports.model import EngineError
from tests.adapters.engines.engine_calls import call
from tests.support.emulators.server import engine_at
from tests.support.engine_calls import RecordedProgress
from tests.support.upstream import ScriptedUpstream, Step, UpstreamAction, event_stream

LINES = "application/x-ndjson"
DONE = {"model": "m", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}


def line(body: Any, end: str = "\n") -> bytes:
    return (json.dumps(body) + end).encode()


def said(text: str) -> bytes:
    return line({"model": "m", "message": {"role": "assistant", "content": text}, "done": False})


async def asked(*steps: Step, heard: RecordedProgress | None = None, content_type: str = LINES) -> Reply:
    script = event_stream(*steps, content_type=content_type)
    async with ScriptedUpstream(script) as upstream, engine_at(upstream.url, OllamaDialect()) as asker:
        return await asker.attempt(call(), heard or RecordedProgress(), stream=True)


async def fault(*steps: Step, heard: RecordedProgress | None = None) -> AttemptFailureReason:
    with pytest.raises(EngineError) as caught:
        await asked(*steps, heard=heard)
    return caught.value.reason


async def test_lines_are_published_as_they_arrive():
    heard = RecordedProgress()
    assert (await asked(said("Hel"), said("lo"), line(DONE), heard=heard)).text == "Hello"
    assert heard.texts == ["Hel", "lo"]


@pytest.mark.parametrize("content_type", ["application/x-ndjson; charset=utf-8", "Application/X-NDJSON"])
async def test_the_media_type_alone_makes_a_body_lines(content_type: str):
    assert (await asked(said("Hel"), said("lo"), line(DONE), content_type=content_type)).text == "Hello"


async def test_the_last_line_may_lack_its_newline():
    assert (await asked(said("Hello"), line(DONE, end=""))).text == "Hello"


async def test_a_last_line_that_was_cut_makes_the_answer_malformed():
    whole = line(DONE, end="")
    for end in range(len(whole)):
        assert await fault(said("Hello"), whole[:end]) is AttemptFailureReason.MALFORMED


async def test_a_last_line_before_a_broken_connection_does_not_count_without_its_newline():
    assert await fault(said("Hello"), line(DONE, end=""), UpstreamAction.CLOSE) is AttemptFailureReason.BROKEN
    assert (await asked(said("Hello"), line(DONE), UpstreamAction.CLOSE)).text == "Hello"


@pytest.mark.parametrize("end", ["\n", ""])
async def test_an_error_as_the_last_words_is_that_error_and_what_was_said_is_known(end: str):
    heard = RecordedProgress()
    error = {"StatusCode": 429, "Status": "429 Too Many Requests", "error": "slow down"}
    assert await fault(said("Hel"), line(error, end), heard=heard) is AttemptFailureReason.RATE_LIMITED
    assert heard.texts == ["Hel"]
    assert await fault(line({"error": "the model failed"}, end)) is AttemptFailureReason.SERVER_ERROR


async def test_nothing_behind_done_counts():
    assert (await asked(said("Hello"), line(DONE), said("!"), b"garbage")).text == "Hello"
    assert (await asked(said("Hello") + line(DONE) + line({"error": "late"}))).text == "Hello"
