"""What is asked of a provider beside answers: vectors of texts, and what a call costs in tokens."""

from typing import Any

import pytest

from app.adapters.engines.anthropic import Messages
from app.adapters.engines.gemini import GenerateContent
from app.adapters.engines.http_engine import OFF_LOOP_BYTES, Caps, Endpoint, HttpEngine, Timeouts
from app.adapters.engines.http_session import open_session
from app.adapters.engines.openai_compatible import ChatCompletions
from app.domain.effects import Reason
from app.ports import EngineFault
from tests.adapters.engines.asking import KEY, call, profile
from tests.support.upstream import Act, Script, Upstream, reply
from tests.support.virtual_time import VirtualClock


def vectors(*values: list[float]) -> dict[str, Any]:
    return {"data": [{"index": index, "embedding": value} for index, value in enumerate(values)]}


async def asked(script: Script, dialect: Any, ask: Any) -> Any:
    """What `ask` gets of an engine before such an upstream."""
    async with Upstream(script) as upstream, open_session() as session:
        endpoint = Endpoint(upstream.url, lambda: KEY, Timeouts(attempt=3), Caps(response=OFF_LOOP_BYTES * 2))
        engine = HttpEngine(profile(), dialect, endpoint=endpoint, session=session, clock=VirtualClock())
        return await ask(engine)


async def embedded(script: Script, dialect: Any = None) -> Any:
    return await asked(script, dialect or ChatCompletions(), lambda engine: engine.embed(["one", "two"]))


async def counted(script: Script, dialect: Any) -> Any:
    return await asked(script, dialect, lambda engine: engine.count(call()))


async def refused(script: Script) -> Reason:
    with pytest.raises(EngineFault) as caught:
        await embedded(script)
    assert KEY not in caught.value.message
    return caught.value.reason


async def test_texts_become_vectors_in_their_order() -> None:
    assert await embedded(reply(vectors([0.5, 1], [2, -1]))) == [[0.5, 1], [2, -1]]
    assert await embedded(reply({"embeddings": [{"values": [1]}, {"values": [2]}]}), GenerateContent()) == [[1], [2]]


async def test_many_vectors_are_read_too() -> None:
    long = [0.125] * (OFF_LOOP_BYTES // 10)
    assert await embedded(reply(vectors(long, long))) == [long, long]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (reply(vectors([1.0])), Reason.MALFORMED),
        (reply({"data": "x"}), Reason.MALFORMED),
        (reply(b"<html>"), Reason.MALFORMED),
        (reply(vectors([1.0] * OFF_LOOP_BYTES)), Reason.MALFORMED),
        (reply({}, headers={"Content-Encoding": "gzip"}), Reason.MALFORMED),
        (reply({"error": {"code": "insufficient_quota"}}, status=429), Reason.QUOTA),
        ([Act.HANG], Reason.TIMED_OUT),
        ([Act.RESET], Reason.BROKEN),
    ],
    ids=["one_too_few", "wrong_shape", "no_json", "too_long", "compressed", "quota", "late", "broken"],
)
async def test_what_is_no_list_of_vectors_is_a_fault(script: Script, reason: Reason) -> None:
    assert await refused(script) is reason


async def test_a_provider_without_vectors_is_not_asked_for_them() -> None:
    with pytest.raises(EngineFault, match="makes no embeddings"):
        await embedded([Act.HANG], Messages())


async def test_tokens_are_counted_where_the_provider_does_and_nowhere_else() -> None:
    assert await counted(reply({"input_tokens": 12}), Messages()) == 12
    assert await counted(reply({"totalTokens": 13}), GenerateContent()) == 13
    assert await counted([Act.HANG], ChatCompletions()) is None
