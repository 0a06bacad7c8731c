"""Reasoning is shown on request, and nowhere else than in the response."""

import pytest

from portico.adapters.engines.scripted import ScriptedEngine
from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.domain.model_call import EngineCall, Reply
from portico.orchestration.execution.response import MAX_REASONING_BYTES
from portico.orchestration.redaction import redacted_response
from portico.ports.model import Progress
from tests.support.harness import chat_request, make_harness, profile
from tests.support.virtual_time import VirtualClock

CALL = {"name": "now", "arguments": {}}
SCRIPT = [
    {"reasoning": "Look at the clock.", "tool_calls": [CALL]},
    {"text": "Noon.", "reasoning": "key sk-proj-abcdefghijklmnopqrstuvwx"},
]


class ListeningEngine(ScriptedEngine):
    """Scripted engine that remembers what it was asked."""

    calls: tuple[EngineCall, ...] = ()

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        self.calls += (call,)
        return await super().attempt(call, progress, stream=stream)


async def test_the_response_has_the_reasoning_of_each_inference(clock: VirtualClock) -> None:
    engine = ListeningEngine(profile("a"), SCRIPT, clock)
    request = chat_request("What time is it?", tools=["now"], output={"reasoning": True})
    response, _ = await make_harness(clock, engine, tools=BUILTIN_TOOLS).run(request)
    assert response.reasoning is not None
    assert [(each.text, each.provider, each.step_name) for each in response.reasoning] == [
        ("Look at the clock.", "a", None),
        ("key sk-proj-abcdefghijklmnopqrstuvwx", "a", None),
    ]
    assert all(call.shows_reasoning for call in engine.calls)
    assert "Look at the clock." not in str([engine.calls[1].messages, response.messages])
    redacted = redacted_response(response).reasoning
    assert redacted is not None
    assert "sk-proj" not in redacted[1].text


@pytest.mark.parametrize("output", [{}, {"reasoning": False}])
async def test_reasoning_is_absent_unless_it_is_asked_for(clock: VirtualClock, output: dict[str, bool]) -> None:
    engine = ListeningEngine(profile("a"), SCRIPT[1:], clock)
    response, _ = await make_harness(clock, engine).run(chat_request("What time is it?", output=output))
    assert "reasoning" not in response.model_dump()
    assert not engine.calls[0].shows_reasoning


async def test_reasoning_is_cut_to_a_mebibyte_within_no_character(clock: VirtualClock) -> None:
    script = [{"text": "Hi.", "reasoning": "x" + "ü" * MAX_REASONING_BYTES}]
    engine = ListeningEngine(profile("a"), script, clock)
    response, _ = await make_harness(clock, engine).run(chat_request("Hello", output={"reasoning": True}))
    assert response.reasoning is not None
    assert len(response.reasoning[0].text.encode()) == MAX_REASONING_BYTES - 1
