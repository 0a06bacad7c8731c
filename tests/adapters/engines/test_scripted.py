"""The engine that answers from a script."""

from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from portico.adapters.engines.scripted import ScriptedEngine
from portico.domain.contract.messages import ToolCall
from portico.domain.contract.response import TokenUsage
from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import EngineError
from tests.support.engine_calls import RecordedProgress, engine_call, profile
from tests.support.virtual_time import VirtualClock

USAGE = {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11}


def _engine(*replies: Any) -> ScriptedEngine:
    return ScriptedEngine(profile("scripted"), replies, VirtualClock())


async def test_replies_are_given_in_order() -> None:
    engine = _engine({"text": "one"}, {"text": "two"})
    replies = [await engine.attempt(engine_call("go"), RecordedProgress(), stream=False) for _ in range(2)]
    assert [reply.text for reply in replies] == ["one", "two"]
    assert [(reply.finish_reason, reply.raw_finish, reply.model) for reply in replies] == [("stop", "stop", "m-1")] * 2


async def test_all_tuning_is_named_for_the_script_takes_no_notice_of_it() -> None:
    engine = _engine({"text": "one"}, {"text": "two"})
    tuned = engine_call(
        "go", hints={"temperature": 1, "max_tokens": 1, "tool_choice": "required", "options": {"top_k": 1}}
    )
    plain, reply = [await engine.attempt(each, RecordedProgress(), stream=False) for each in (engine_call("go"), tuned)]
    assert plain.withheld == ()
    assert set(reply.withheld) == {
        "hints.max_tokens",
        "hints.temperature",
        "hints.tool_choice",
        "hints.options.top_k",
    }


async def test_every_engine_has_its_own_place() -> None:
    first, second = _engine({"text": "one"}), _engine({"text": "one"})
    await first.attempt(engine_call("go"), RecordedProgress(), stream=False)
    assert await first.ping() == "scripted: 0 of 1 replies left"
    assert await second.ping() == "scripted: 1 of 1 replies left"


async def test_attempts_at_once_take_entries_in_the_order_they_began() -> None:
    engine = _engine({"text": "slow", "delay": 9}, {"text": "fast"})
    replies: dict[str, str] = {}

    async def take(name: str) -> None:
        replies[name] = (await engine.attempt(engine_call("go"), RecordedProgress(), stream=False)).text

    async with anyio.create_task_group() as group:
        group.start_soon(take, "first")
        group.start_soon(take, "second")
    assert replies == {"first": "slow", "second": "fast"}


async def test_a_script_that_is_too_short_is_refused_for_good() -> None:
    engine = _engine()
    for _ in range(2):
        with pytest.raises(EngineError, match="no reply left") as fault:
            await engine.attempt(engine_call("go"), RecordedProgress(), stream=False)
        assert fault.value.reason is AttemptFailureReason.REFUSED


async def test_tool_calls_without_an_id_get_one_that_is_unique_in_the_script() -> None:
    engine = _engine(
        {"tool_calls": [{"name": "a"}, {"name": "b", "arguments": {"x": 1}}]},
        {"tool_calls": [{"name": "c", "id": "call_2"}, {"name": "d"}]},
    )
    first = await engine.attempt(engine_call("go"), RecordedProgress(), stream=False)
    second = await engine.attempt(engine_call("go"), RecordedProgress(), stream=False)
    assert first.tool_calls == (
        ToolCall(id="call_1", name="a", arguments={}),
        ToolCall(id="call_3", name="b", arguments={"x": 1}),
    )
    assert [call.id for call in second.tool_calls] == ["call_2", "call_4"]
    assert (first.text, first.finish_reason) == ("", "tool")


async def test_a_stream_brings_reasoning_the_pieces_and_the_usage() -> None:
    engine = _engine({"chunks": ["Hel", "lo"], "reasoning": "hm", "usage": USAGE, "finish_reason": "length"})
    published = RecordedProgress()
    reply = await engine.attempt(engine_call("go"), published, stream=True)
    assert (published.reasonings, published.texts) == (["hm"], ["Hel", "lo"])
    assert published.usages == [TokenUsage(**USAGE)]
    assert (reply.text, reply.reasoning, reply.finish_reason) == ("Hello", "hm", "length")
    assert reply.usage == TokenUsage(**USAGE)


async def test_a_whole_reply_publishes_no_pieces() -> None:
    published = RecordedProgress()
    reply = await _engine({"chunks": ["Hel", "lo"], "reasoning": "hm"}).attempt(
        engine_call("go"), published, stream=False
    )
    assert reply.text == "Hello"
    assert (published.texts, published.reasonings) == ([], [])


async def test_usage_that_is_not_scripted_is_an_estimate() -> None:
    reply = await _engine({"text": "Hello"}).attempt(engine_call("go"), RecordedProgress(), stream=False)
    assert reply.usage.estimated
    assert reply.usage.input_tokens > 0
    assert reply.usage.total_tokens == reply.usage.input_tokens + reply.usage.output_tokens


async def test_a_delay_passes_before_anything_is_said(clock: VirtualClock) -> None:
    began = clock.monotonic()
    await _engine({"text": "late", "delay": 90}).attempt(engine_call("go"), RecordedProgress(), stream=False)
    assert clock.monotonic() - began == pytest.approx(90)


@pytest.mark.parametrize("reason", list(AttemptFailureReason))
async def test_every_fault_can_be_scripted(reason: AttemptFailureReason) -> None:
    with pytest.raises(EngineError) as fault:
        await _engine({"fault": reason.value, "retry_after": 2}).attempt(
            engine_call("go"), RecordedProgress(), stream=False
        )
    assert (fault.value.reason, fault.value.retry_after) == (reason, 2)


@pytest.mark.parametrize(("stream", "pieces"), [(True, ["piece 1 ", "piece 2 "]), (False, [])])
async def test_a_stream_can_break_after_its_first_pieces(stream: bool, pieces: list[str]) -> None:
    published = RecordedProgress()
    engine = _engine({"fault": "broken", "after_chunks": 2, "usage": USAGE})
    with pytest.raises(EngineError):
        await engine.attempt(engine_call("go"), published, stream=stream)
    assert published.texts == pieces
    assert published.usages == [TokenUsage(**USAGE)]


async def test_a_stream_can_be_cancelled_between_two_pieces() -> None:
    class Impatient(RecordedProgress):
        def text(self, piece: str) -> None:
            super().text(piece)
            if len(self.texts) == 2:
                scope.cancel()

    published = Impatient()
    with anyio.CancelScope() as scope:
        await _engine({"chunks": list("abcdef")}).attempt(engine_call("go"), published, stream=True)
    assert scope.cancelled_caught
    assert published.texts == ["a", "b"]


async def test_a_script_can_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "replies.json"
    file.write_bytes(orjson.dumps([{"text": "from a file"}]))
    engine = ScriptedEngine.from_file(profile("scripted"), file, VirtualClock())
    assert (await engine.attempt(engine_call("go"), RecordedProgress(), stream=False)).text == "from a file"
    assert engine.profile.name == "primary"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{", "cannot be read as JSON"),
        (b"\xff", "cannot be read as JSON"),
        (b'{"text": "x"}', "must hold a list"),
        (b'[{"text": "x"}, {"txet": "y"}]', 'entry 1: txet: is not a known field; did you mean "text"'),
        (b'[{"fault": "boredom"}]', "entry 0: fault: must be 'rate_limited'"),
        (b'[{"tool_calls": [{"arguments": {}}]}]', "entry 0: tool_calls.0.name: is required"),
        (b'[{"text": "x", "chunks": ["y"]}]', "entry 0: .*text must be what the chunks make together"),
        (b"[7]", "entry 0: must be an object"),
    ],
)
def test_a_file_that_is_no_script_is_refused_by_file_and_entry(content: bytes, why: str, tmp_path: Path) -> None:
    file = tmp_path / "replies.json"
    file.write_bytes(content)
    with pytest.raises(ConfigurationFailure, match=rf"replies\.json.* {why}") as refused:
        ScriptedEngine.from_file(profile("scripted"), file, VirtualClock())
    assert refused.value.code is Code.CONFIG_INVALID


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFailure, match=r"gone\.json cannot be read"):
        ScriptedEngine.from_file(profile("scripted"), tmp_path / "gone.json", VirtualClock())
