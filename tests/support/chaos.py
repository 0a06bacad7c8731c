"""Random executions: engines that fail, stall and call tools at random, tools that act, fail and take their time."""

from collections import Counter
from random import Random
from typing import Any

from anyio.lowlevel import checkpoint

from app.capabilities.tools.definition import tool
from app.domain.boundary import TokenUsage
from app.domain.effects import EngineCall, Reason, Reply
from app.domain.messages import ToolCall
from app.domain.tools import SideEffects
from app.ports import Clock, EngineCapabilities, EngineFault, EngineProfile, Progress, Tool, ToolContext, ToolError
from tests.support.world import Stage, profile, stage

FAULTS = [
    Reason.RATE_LIMITED,
    Reason.SERVER_ERROR,
    Reason.BROKEN,
    Reason.MALFORMED,
    Reason.TIMED_OUT,
    Reason.UNREACHABLE,
]
TOOLS = ["look", "flaky", "write"]


FORMED = ['{"size":"large"}', '{"size":"small"}', '{"size":"huge"}', "no JSON at all"]
"""Answers to who asks for a form, some of which keep `{"size": "small" or "large"}`."""


class RandomEngine:
    """Answers by dice: text, in a form or not, calls, or a fault after some deltas."""

    def __init__(self, name: str, clock: Clock, dice: Random) -> None:
        self.profile: EngineProfile = profile(name, capabilities=EngineCapabilities(schema=True, grammar=True))
        self._clock = clock
        self._dice = dice

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        """One throw."""
        for _ in range(self._dice.randrange(4)):
            progress.text("word ")
            await self._clock.sleep(self._dice.random())
        await checkpoint()
        if self._dice.random() < 0.3:
            raise EngineFault(self._dice.choice(FAULTS), "thrown", self._dice.choice([None, 0.5, 2.0]))
        usage = TokenUsage(input_tokens=3, output_tokens=2, total_tokens=5)
        if call.schema is not None:
            return Reply(self._dice.choice(FORMED), (), "stop", "", usage, self.profile.model)
        if self._dice.random() < 0.5:
            calls = tuple(self._call(index) for index in range(self._dice.randrange(1, 5)))
            return Reply("", calls, "tool", "", usage, self.profile.model)
        return Reply("done", (), "stop", "", usage, self.profile.model)

    async def reach(self) -> str:
        """Always there."""
        return "here"

    def _call(self, index: int) -> ToolCall:
        name = self._dice.choice(TOOLS)
        return ToolCall(id=f"c{index}", name=name, arguments={"mark": f"{self._dice.getrandbits(60):x}"})


class Acts:
    """What has happened in the world, by tool and mark."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []

    @property
    def repeated_writes(self) -> list[tuple[str, str]]:
        """Unsafe acts that happened more than once."""
        return [act for act, times in Counter(self.done).items() if act[0] == "write" and times > 1]

    def tools(self, dice: Random) -> list[Tool]:
        """A tool that reads, one that often fails, and an unsafe one."""

        @tool(side_effects=SideEffects.READ, idempotent=True)
        async def look(mark: str, context: ToolContext) -> str:
            """Looks."""
            self.done.append(("look", mark))
            await context.clock.sleep(dice.random())
            return mark

        @tool(side_effects=SideEffects.READ, idempotent=True)
        async def flaky(mark: str, context: ToolContext) -> str:
            """Fails half of the time."""
            self.done.append(("flaky", mark))
            await context.clock.sleep(dice.random())
            if dice.random() < 0.5:
                raise ToolError("flaked")
            return mark

        @tool(side_effects=SideEffects.WRITE, idempotent=False)
        async def write(mark: str, context: ToolContext) -> str:
            """Acts on the world."""
            await context.clock.sleep(dice.random() / 2)
            self.done.append(("write", mark))
            await context.clock.sleep(dice.random() / 2)
            return mark

        return [look, flaky, write]


def chaos(clock: Clock, seed: int, acts: Acts, **bounds: Any) -> Stage:
    """A stage with two random engines and the three tools, all thrown from one seed."""
    dice = Random(seed)
    engines = [RandomEngine(name, clock, dice) for name in ("primary", "backup")]
    return stage(clock, *engines, tools=acts.tools(dice), **bounds)
