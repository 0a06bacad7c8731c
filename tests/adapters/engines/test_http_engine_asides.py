"""What is asked of a provider beside answers: vectors of texts, and what a call costs in tokens."""

from typing import Any

import pytest

from app.adapters.engines.anthropic.dialect import AnthropicDialect
from app.adapters.engines.gemini.dialect import GeminiDialect
from app.adapters.engines.http.engine import OFF_LOOP_BYTES, Endpoint, HttpEngine, ReplyLimits
from app.adapters.engines.http.session import open_session
from app.adapters.engines.openai.chat_completions import ChatCompletionsDialect
from app.adapters.engines.timeouts import Timeouts
from app.domain.model_call import AttemptFailureReason
from app.ports.model import EngineError
from tests.adapters.engines.engine_calls import KEY, call, profile
from tests.support.upstream import Script, ScriptedUpstream, UpstreamAction, reply
from tests.support.virtual_time import VirtualClock


def vectors(*values: list[float]) -> dict[str, Any]:
    return {"data": [{"index": index, "embedding": value} for index, value in enumerate(values)]}


async def asked(script: Script, dialect: Any, ask: Any) -> Any:
    """What `ask` gets of an engine before such an upstream."""
    async with ScriptedUpstream(script) as upstream, open_session() as session:
        endpoint = Endpoint(
            upstream.url, lambda: KEY, Timeouts(attempt_seconds=3), ReplyLimits(response_bytes=OFF_LOOP_BYTES * 2)
        )
        engine = HttpEngine(profile(), dialect, endpoint=endpoint, session=session, clock=VirtualClock())
        return await ask(engine)


async def embedded(script: Script, dialect: Any = None) -> Any:
    return await asked(script, dialect or ChatCompletionsDialect(), lambda engine: engine.embed(["one", "two"]))


async def counted(script: Script, dialect: Any) -> Any:
    return await asked(script, dialect, lambda engine: engine.count(call()))


async def refused(script: Script) -> AttemptFailureReason:
    with pytest.raises(EngineError) as caught:
        await embedded(script)
    assert KEY not in caught.value.message
    return caught.value.reason


async def test_texts_become_vectors_in_their_order() -> None:
    assert await embedded(reply(vectors([0.5, 1], [2, -1]))) == [[0.5, 1], [2, -1]]
    assert await embedded(reply({"embeddings": [{"values": [1]}, {"values": [2]}]}), GeminiDialect()) == [[1], [2]]


async def test_many_vectors_are_read_too() -> None:
    long = [0.125] * (OFF_LOOP_BYTES // 10)
    assert await embedded(reply(vectors(long, long))) == [long, long]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (reply(vectors([1.0])), AttemptFailureReason.MALFORMED),
        (reply({"data": "x"}), AttemptFailureReason.MALFORMED),
        (reply(b"<html>"), AttemptFailureReason.MALFORMED),
        (reply(vectors([1.0] * OFF_LOOP_BYTES)), AttemptFailureReason.MALFORMED),
        (reply({}, headers={"Content-Encoding": "gzip"}), AttemptFailureReason.MALFORMED),
        (reply({"error": {"code": "insufficient_quota"}}, status=429), AttemptFailureReason.QUOTA),
        ([UpstreamAction.HANG], AttemptFailureReason.TIMED_OUT),
        ([UpstreamAction.RESET], AttemptFailureReason.BROKEN),
    ],
    ids=["one_too_few", "wrong_shape", "no_json", "too_long", "compressed", "quota", "late", "broken"],
)
async def test_what_is_no_list_of_vectors_is_a_fault(script: Script, reason: AttemptFailureReason) -> None:
    assert await refused(script) is reason


async def test_a_provider_without_vectors_is_not_asked_for_them() -> None:
    with pytest.raises(EngineError, match="makes no embeddings"):
        await embedded([UpstreamAction.HANG], AnthropicDialect())


async def test_tokens_are_counted_where_the_provider_does_and_nowhere_else() -> None:
    assert await counted(reply({"input_tokens": 12}), AnthropicDialect()) == 12
    assert await counted(reply({"totalTokens": 13}), GeminiDialect()) == 13
    assert await counted([UpstreamAction.HANG], ChatCompletionsDialect()) is None
