"""Engines that answer by what they are told, so that whoever asks again after a crash is answered the same."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from app.adapters.engines.scripted import ScriptedEngine
from app.domain.model_call import EngineCall, Reply
from app.ports.model import EngineProfile, Progress
from app.ports.runtime import Clock
from tests.support.harness import profile

ScriptEntry = Callable[[int], Mapping[str, Any]]
"""The entry of a script for the answer of that number, from 0, or for the judgement of it."""


def is_judge_question(call: EngineCall) -> bool:
    """Whether it is the judge's question."""
    return call.schema is not None and "score" in call.schema.get("properties", {})


def judgement(*issues: str, valid: bool = True, score: float = 1.0) -> dict[str, Any]:
    """What a judge says, as an entry of a script."""
    return {"text": json.dumps({"valid": valid, "score": score, "issues": issues})}


class SteadyEngine:
    """Its answer of number i ends in `#i`, by which its judgement of it is found again."""

    def __init__(self, clock: Clock, name: str, *, answer: ScriptEntry, judge: ScriptEntry, **changes: Any) -> None:
        self.profile: EngineProfile = profile(name, **changes)
        self.calls: list[EngineCall] = []
        self._clock = clock
        self._answer = answer
        self._judge = judge

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        """By the number of answers that the conversation holds, or by the one that is to be judged."""
        self.calls.append(call)
        if is_judge_question(call):
            question = next(message.text for message in call.messages if message.role == "user")
            entry = self._judge(int(question.rpartition("#")[2][0]))
        else:
            entry = self._answer(sum(message.role == "assistant" for message in call.messages))
        script = ScriptedEngine(self.profile, [{"delay": 1, **entry}], self._clock)
        return await script.attempt(call, progress, stream=stream)

    async def ping(self) -> str:
        """Always there."""
        return "here"
