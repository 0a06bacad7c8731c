"""Random executions: engines that fail, stall and call tools, and tools that act, fail and take time."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from anyio.lowlevel import checkpoint

from portico.capabilities.models.format_enforcement import SUBMIT_TOOL
from portico.capabilities.tools.agents import AgentCatalogue
from portico.capabilities.tools.definition import tool
from portico.capabilities.tools.step_function import StepFunction, step
from portico.domain.agents import ConfiguredAgent
from portico.domain.contract.messages import ToolCall
from portico.domain.contract.response import TokenUsage
from portico.domain.model_call import AttemptFailureReason, EngineCall, Reply
from portico.domain.tools import SideEffects, agent_of
from portico.ports.model import EngineCapabilities, EngineError, EngineProfile, Progress
from portico.ports.runtime import Clock
from portico.ports.tool import Tool, ToolContext, ToolError
from tests.support.harness import Harness, make_harness, profile

FAULTS = [
    AttemptFailureReason.RATE_LIMITED,
    AttemptFailureReason.SERVER_ERROR,
    AttemptFailureReason.BROKEN,
    AttemptFailureReason.MALFORMED,
    AttemptFailureReason.TIMED_OUT,
    AttemptFailureReason.UNREACHABLE,
]
TOOLS = ["look", "flaky", "write"]


FORMED = ['{"size":"large"}', '{"size":"small"}', '{"size":"huge"}', "no JSON at all"]
"""Answers in a response format; some of them are `{"size": "small" or "large"}`."""


class RandomEngine:
    """An engine that answers by dice: text, valid or not, tool calls, or an error after some deltas."""

    def __init__(self, name: str, clock: Clock, dice: Random, tools: Sequence[str] = TOOLS) -> None:
        self.profile: EngineProfile = profile(name, capabilities=EngineCapabilities(schema=True, grammar=True))
        self._clock = clock
        self._dice = dice
        self._tools = tools

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        """Answer by dice."""
        for _ in range(self._dice.randrange(4)):
            progress.text("word ")
            await self._clock.sleep(self._dice.random())
        await checkpoint()
        if self._dice.random() < 0.3:
            raise EngineError(self._dice.choice(FAULTS), "thrown", self._dice.choice([None, 0.5, 2.0]))
        usage = TokenUsage(input_tokens=3, output_tokens=2, total_tokens=5)
        if call.schema is not None:
            return Reply(self._dice.choice(FORMED), (), "stop", "", usage, self.profile.model)
        if any(each.name == SUBMIT_TOOL for each in call.tools) and self._dice.random() < 0.6:
            handed_in = ToolCall(id="c0", name=SUBMIT_TOOL, arguments={"size": self._dice.choice(["small", "huge"])})
            return Reply("", (handed_in,), "tool", "", usage, self.profile.model)
        if self._dice.random() < 0.5:
            calls = tuple(self._call(index) for index in range(self._dice.randrange(1, 5)))
            return Reply("", calls, "tool", "", usage, self.profile.model)
        return Reply("done", (), "stop", "", usage, self.profile.model)

    async def ping(self) -> str:
        """Return at once."""
        return "here"

    def _call(self, index: int) -> ToolCall:
        name = self._dice.choice(self._tools)
        argument = "mark" if agent_of(name) is None else "message"
        return ToolCall(id=f"c{index}", name=name, arguments={argument: f"{self._dice.getrandbits(60):x}"})


class ToolActions:
    """Actions of tools, by tool and mark."""

    def __init__(self) -> None:
        self.performed: list[tuple[str, str]] = []

    @property
    def repeated_writes(self) -> list[tuple[str, str]]:
        """Non-idempotent actions that happened more than once."""
        return [act for act, times in Counter(self.performed).items() if act[0] == "write" and times > 1]

    def tools(self, dice: Random) -> list[Tool]:
        """Return a tool that reads, one that often fails, and a non-idempotent one."""

        @tool(side_effects=SideEffects.READ, idempotent=True)
        async def look(mark: str, context: ToolContext) -> str:
            """Looks."""
            self.performed.append(("look", mark))
            await context.clock.sleep(dice.random())
            return mark

        @tool(side_effects=SideEffects.READ, idempotent=True)
        async def flaky(mark: str, context: ToolContext) -> str:
            """Fails half of the time."""
            self.performed.append(("flaky", mark))
            await context.clock.sleep(dice.random())
            if dice.random() < 0.5:
                raise ToolError("flaked")
            return mark

        @tool(side_effects=SideEffects.WRITE, idempotent=False)
        async def write(mark: str, context: ToolContext) -> str:
            """Acts on the world."""
            await context.clock.sleep(dice.random() / 2)
            self.performed.append(("write", mark))
            await context.clock.sleep(dice.random() / 2)
            return mark

        return [look, flaky, write]

    def step_functions(self, dice: Random) -> list[StepFunction]:
        """Return a step type for each of the tools, which does the same."""

        @step(side_effects=SideEffects.READ, idempotent=True)
        async def look_step(mark: str, context: ToolContext) -> str:
            """Looks."""
            return await look.execute({"mark": mark}, context)

        @step(side_effects=SideEffects.READ, idempotent=True)
        async def flaky_step(mark: str, context: ToolContext) -> str:
            """Fails half of the time."""
            return await flaky.execute({"mark": mark}, context)

        @step(side_effects=SideEffects.WRITE, idempotent=False)
        async def write_step(mark: str, context: ToolContext) -> str:
            """Acts on the world."""
            return await write.execute({"mark": mark}, context)

        look, flaky, write = self.tools(dice)
        return [look_step, flaky_step, write_step]


def chaos_harness(clock: Clock, seed: int, acts: ToolActions, **bounds: Any) -> Harness:
    """Return a harness with two random engines and the three tools, all from one seed."""
    dice = Random(seed)
    engines = [RandomEngine(name, clock, dice) for name in ("primary", "backup")]
    return make_harness(clock, *engines, tools=acts.tools(dice), **bounds)


AGENTS = AgentCatalogue(
    [
        ConfiguredAgent("reader", "Reads.", "You read.", tools=("look", "flaky")),
        ConfiguredAgent("writer", "Writes.", "You write.", tools=("look", "write", "agent__reader")),
    ]
)
CHAOS_TOOLS = [*TOOLS, "agent__reader", "agent__writer"]
"""The tools of a chaos harness with agents, by name."""


def agents_harness(clock: Clock, seed: int, acts: ToolActions, **bounds: Any) -> Harness:
    """Return a chaos harness whose engines also call two agents, one of which calls the other."""
    dice, tools = Random(seed), acts.tools(Random(seed + 1))
    engines = [RandomEngine(name, clock, dice, CHAOS_TOOLS) for name in ("primary", "backup")]
    made = make_harness(
        clock, *engines, tools=[*tools, *AGENTS.tools(tool.info() for tool in tools)], tool_calls=40, **bounds
    )
    return replace(made, environment=replace(made.environment, agents=AGENTS))
