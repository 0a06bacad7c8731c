"""Engines that answer by their input, so that a repeated call after a crash gets the same answer."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from portico.adapters.engines.scripted import ScriptedEngine
from portico.domain.model_call import EngineCall, Reply
from portico.ports.model import EngineProfile, Progress
from portico.ports.runtime import Clock
from tests.support.harness import profile

ScriptEntry = Callable[[int], Mapping[str, Any]]
"""Returns the script entry of the answer of that number, from 0, or of its judgement."""


def is_judge_question(call: EngineCall) -> bool:
    """Return True for the question of a judge."""
    return call.schema is not None and "score" in call.schema.get("properties", {})


def judgement(*issues: str, valid: bool = True, score: float = 1.0) -> dict[str, Any]:
    """Return the reply of a judge as an entry of a script."""
    return {"text": json.dumps({"valid": valid, "score": score, "issues": issues})}


class SteadyEngine:
    """An engine whose answer i ends in `#i`, by which it finds its judgement of that answer."""

    def __init__(self, clock: Clock, name: str, *, answer: ScriptEntry, judge: ScriptEntry, **changes: Any) -> None:
        self.profile: EngineProfile = profile(name, **changes)
        self.calls: list[EngineCall] = []
        self._clock = clock
        self._answer = answer
        self._judge = judge

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        """Answer by the number of answers in the conversation, or by the answer that is judged."""
        self.calls.append(call)
        if is_judge_question(call):
            question = next(message.text for message in call.messages if message.role == "user")
            entry = self._judge(int(question.rpartition("#")[2][0]))
        else:
            entry = self._answer(sum(message.role == "assistant" for message in call.messages))
        script = ScriptedEngine(self.profile, [{"delay": 1, **entry}], self._clock)
        return await script.attempt(call, progress, stream=stream)

    async def ping(self) -> str:
        """Return at once."""
        return "here"
