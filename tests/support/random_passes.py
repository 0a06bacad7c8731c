"""Random reasoning in passes: engines that answer each phase by dice, requests, and plans that change."""

import json
from random import Random
from typing import Any

from portico.domain.contract.messages import ToolCall
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import TokenUsage
from portico.domain.model_call import EngineCall, Reply
from portico.ports.model import EngineError, EngineProfile, Progress
from portico.ports.runtime import Clock
from tests.support.chaos import FAULTS, FORMED, TOOLS, ToolActions
from tests.support.harness import Harness, make_harness, profile
from tests.support.passes import AGREED, PHASES, PROFILE, reasoning
from tests.support.plans import NATIVE
from tests.support.random_plans import random_step
from tests.support.usage import SpendingEngine

GARBAGE = ["Das weiß ich nicht.", "{", "[]", '{"answer_text": ""}']
USAGE = TokenUsage(input_tokens=3, output_tokens=2, total_tokens=5)


class PhaseAnswers:
    """Answers to the questions of all phases, by dice."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice

    def of(self, phase: str) -> dict[str, Any]:
        """Return an answer that can be read."""
        match phase:
            case "profile":
                return PROFILE | {"reasoning_depth": self._dice.randrange(1, 6)}
            case "plan":
                return {"steps": [self._step(f"s{number}") for number in range(self._dice.randrange(1, 4))]}
            case "check":
                return {"issues": [], "overall_severity": self._dice.choice(["LOW", "HIGH"])}
            case "assess":
                score = self._dice.choice([0.2, 1.0, 1.0])
                scores = {"completeness_score": score, "coherence_score": 1.0, "consistency_status": AGREED}
                return {"converged": self._dice.random() < 0.5} | scores
            case "refine":
                return {"refinements": [self._change() for _ in range(self._dice.randrange(4))]}
            case _:
                return {"answer_text": "It is so.", "used_step_ids": ["s0", "s9"]}

    def _change(self) -> dict[str, Any]:
        names = [f"s{number}" for number in range(6)]
        action = self._dice.choice(["ADD", "ADD", "ADD", "MODIFY", "REMOVE", "REPLACE"])
        target = None if action == "ADD" else self._dice.choice(names)
        name = target if action == "MODIFY" else f"n{self._dice.getrandbits(20):x}"
        step = None if action == "REMOVE" else self._step(str(name)) | {"depends_on": self._dice.choice([[], ["s0"]])}
        return {"action": action, "target_step": target, "new_step": step}

    def _step(self, name: str) -> dict[str, Any]:
        if self._dice.random() < 0.25:
            return {"name": name, "type": "subplan", "input": "a task"}
        return {"name": name, **random_step(self._dice, 0)}


class RandomPhasesEngine:
    """An engine that decides by dice how a task is profiled, planned, checked, assessed and refined."""

    def __init__(self, name: str, clock: Clock, dice: Random) -> None:
        self.profile: EngineProfile = profile(name, capabilities=NATIVE, context_window=1_000_000)
        self._clock = clock
        self._dice = dice
        self._answers = PhaseAnswers(dice)

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        """Answer by dice, after a while."""
        await self._clock.sleep(self._dice.random())
        if self._dice.random() < 0.3:
            raise EngineError(self._dice.choice(FAULTS), "thrown", self._dice.choice([None, 0.5]))
        phase = PHASES.get(str((call.schema or {}).get("title")))
        if phase is not None:
            text = self._dice.choice(GARBAGE) if self._dice.random() < 0.12 else json.dumps(self._answers.of(phase))
            return Reply(text, (), "stop", "", USAGE, self.profile.model)
        if call.schema is not None:
            return Reply(self._dice.choice(FORMED), (), "stop", "", USAGE, self.profile.model)
        if call.tools and self._dice.random() < 0.3:
            asked = ToolCall(id="c0", name=self._dice.choice(TOOLS), arguments={"mark": self._mark()})
            return Reply("", (asked,), "tool", "", USAGE, self.profile.model)
        return Reply("done", (), "stop", "", USAGE, self.profile.model)

    async def ping(self) -> str:
        """Return at once."""
        return "here"

    def _mark(self) -> str:
        return f"{self._dice.getrandbits(60):x}"


def random_reasoning(dice: Random) -> SystemRequest:
    """Return a request for up to four passes, in half of the cases with a plan."""
    steps: list[dict[str, Any]] = [
        {"name": f"s{number}", **random_step(dice, number)} for number in range(dice.randrange(1, 5))
    ]
    if dice.random() < 0.3:
        steps.append({"name": "sub", "type": "subplan", "input": "a task", "depends_on": []})
    policy = {"max_steps": dice.choice([6, 12, 50]), "timeout_per_step": dice.choice([None, None, 2.5])}
    return reasoning(dice.randrange(2, 5), dice.choice([None, steps]), plan={"policy": policy})


class SpendingPhasesEngine(SpendingEngine):
    """An engine that uses as much as it can, and answers the phases by dice, too."""

    def _answer_to(self, call: EngineCall) -> tuple[str, tuple[ToolCall, ...]]:
        phase = PHASES.get(str((call.schema or {}).get("title")))
        if phase is None:
            return super()._answer_to(call)
        is_readable = self._dice.random() < self._manner.fits
        return json.dumps(PhaseAnswers(self._dice).of(phase)) if is_readable else "who knows", ()


def reasoning_harness(clock: Clock, seed: int, acts: ToolActions, **bounds: Any) -> Harness:
    """Return a harness with two random engines and the three tools of chaos, all from one seed."""
    dice = Random(seed)
    engines = [RandomPhasesEngine(name, clock, dice) for name in ("primary", "backup")]
    return make_harness(clock, *engines, tools=acts.tools(dice), **bounds)
