"""Engines that answer by what they are told, so that whoever asks again after a crash is answered the same."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from app.adapters.engines.scripted import ScriptedEngine
from app.domain.effects import EngineCall, Reply
from app.ports import Clock, EngineProfile, Progress
from tests.support.world import profile

Says = Callable[[int], Mapping[str, Any]]
"""The entry of a script for the answer of that number, from 0, or for the judgement of it."""


def is_asked_to_judge(call: EngineCall) -> bool:
    """Whether it is the judge's question."""
    return call.schema is not None and "score" in call.schema.get("properties", {})


def judgement(*issues: str, valid: bool = True, score: float = 1.0) -> dict[str, Any]:
    """What a judge says, as an entry of a script."""
    return {"text": json.dumps({"valid": valid, "score": score, "issues": issues})}


class Steady:
    """Its answer of number i ends in `#i`, by which its judgement of it is found again."""

    def __init__(self, clock: Clock, name: str, *, answer: Says, judge: Says, **changes: Any) -> None:
        self.profile: EngineProfile = profile(name, **changes)
        self.asked: list[EngineCall] = []
        self._clock = clock
        self._answer = answer
        self._judge = judge

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        """By the number of answers that the conversation holds, or by the one that is to be judged."""
        self.asked.append(call)
        if is_asked_to_judge(call):
            question = next(message.text for message in call.messages if message.role == "user")
            entry = self._judge(int(question.rpartition("#")[2][0]))
        else:
            entry = self._answer(sum(message.role == "assistant" for message in call.messages))
        script = ScriptedEngine(self.profile, [{"delay": 1, **entry}], self._clock)
        return await script.attempt(call, progress, stream=stream)

    async def reach(self) -> str:
        """Always there."""
        return "here"
