"""PREPARE: the stages in their order, each leaving a StageTrace."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from app.capabilities.context import room
from app.capabilities.tools.registry import ToolRegistry
from app.domain.boundary import SystemRequest
from app.domain.effects import Bounds, Header, Prepared, Refused, StageTrace
from app.domain.failures import Failure
from app.domain.lifecycle import Mode
from app.domain.messages import Message
from app.domain.tools import ToolDefinition
from app.keeping import Past
from app.orchestration.conversing import Turn
from app.orchestration.pipeline.context_guard import context_guard
from app.orchestration.pipeline.history_sanitize import SanitizedHistory, Share, history_sanitize
from app.orchestration.pipeline.tool_split import tool_split
from app.orchestration.world import World
from app.ports import Clock

T = TypeVar("T")


OFFERED_ALL = frozenset({Mode.CHAT, Mode.PLAN})
"""Modes that are offered all tools when none are named, each step of a plan those it names; the others none."""


@dataclass(slots=True)
class Stages:
    """Runs stages and keeps their traces, of the one that fails too."""

    clock: Clock
    traces: list[StageTrace] = field(default_factory=list)

    def run(self, stage: str, work: Callable[[], T]) -> T:
        """The stage's result. Raises what the stage raises."""
        began = self.clock.monotonic()
        outcome = "failed"
        try:
            result = work()
            outcome = "ok"
        finally:
            self.traces.append(StageTrace(stage, (self.clock.monotonic() - began) * 1000, outcome))
        return result


def offerable(request: SystemRequest, registry: ToolRegistry) -> tuple[str, ...]:
    """The tools that may be offered to the request, available or not."""
    return tool_split(request.tools if request.mode in OFFERED_ALL or request.tools is not None else (), registry)


def prepare(header: Header, world: World, stages: Stages, past: Past) -> Prepared | Refused:
    """What the execution begins with, or why it cannot begin. `past` is what its session holds."""
    request = header.request
    engines = world.catalogue.asked(request)
    try:
        tools = offerable(request, world.registry)
        offered = () if request.mode is Mode.PLAN else world.registry.definitions(tools)
        history = stages.run(
            "HistorySanitize", lambda: conversation(request, header.bounds, world=world, past=past, tools=offered)
        )
        stages.run("ContextGuard", lambda: context_guard(history, offered, engines, world.counter))
        tools = stages.run("ToolSplit", lambda: offerable(request, world.registry))
    except Failure as refusal:
        return Refused.by(refusal, tuple(stages.traces))
    return Prepared(
        messages=history.messages,
        tools=tools,
        truncated_history=history.truncated,
        stages=tuple(stages.traces),
        said_before=past.count,
    )


async def told(turn: Turn, header: Header, world: World) -> Sequence[Message]:
    """The conversation of a session when its turn has come, for who plans before PREPARE."""
    past = await turn.come()
    if past.count == 0 or header.mode is not Mode.PLAN:
        return ()
    return conversation(header.request, header.bounds, world=world, past=past, tools=()).messages


def conversation(
    request: SystemRequest, bounds: Bounds, *, world: World, past: Past, tools: Sequence[ToolDefinition]
) -> SanitizedHistory:
    """What a model is told first: of what the session holds as much as may be, and has room beside the request."""
    widest = max(room(engine) for engine in world.catalogue.asked(request))
    share = Share(bounds.history_messages, bounds.history_tokens, widest - world.counter.tools(tools))
    return history_sanitize(request.messages, past, share, world.counter)
