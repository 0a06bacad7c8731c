"""PREPARE: the stages in their order, each leaving a StageTrace."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from app.capabilities.models.context_window import capacity
from app.capabilities.tools.registry import ToolRegistry
from app.domain.contract.messages import Message
from app.domain.contract.request import SystemRequest
from app.domain.failures import Failure
from app.domain.journal.header import EffectiveLimits, ExecutionHeader
from app.domain.journal.outcomes import Prepared, Refused, StageTrace
from app.domain.lifecycle import Mode
from app.domain.tools import ToolDefinition
from app.orchestration.execution.environment import Environment
from app.orchestration.execution.session_turn import SessionTurn
from app.orchestration.pipeline.stages import (
    HistoryLimits,
    SanitizedHistory,
    context_guard,
    history_sanitize,
    tool_split,
)
from app.ports.runtime import Clock
from app.ports.storage import SessionHistory

T = TypeVar("T")


MODES_OFFERING_ALL_TOOLS = frozenset({Mode.CHAT, Mode.PLAN})
"""Modes that are offered all tools when none are named, each step of a plan those it names; the others none."""


@dataclass(slots=True)
class StageTimer:
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


def allowed_tools(request: SystemRequest, registry: ToolRegistry) -> tuple[str, ...]:
    """The tools that may be offered to the request, available or not."""
    return tool_split(
        request.tools if request.mode in MODES_OFFERING_ALL_TOOLS or request.tools is not None else (), registry
    )


def prepare(
    header: ExecutionHeader, world: Environment, stages: StageTimer, past: SessionHistory
) -> Prepared | Refused:
    """What the execution begins with, or why it cannot begin. `past` is what its session holds."""
    request = header.request
    engines = world.catalogue.engines_for(request)
    try:
        tools = allowed_tools(request, world.tool_registry)
        offered = () if request.mode is Mode.PLAN else world.tool_registry.definitions(tools)
        history = stages.run(
            "HistorySanitize", lambda: build_conversation(request, header.bounds, world=world, past=past, tools=offered)
        )
        stages.run("ContextGuard", lambda: context_guard(history, offered, engines, world.token_counter))
        tools = stages.run("ToolSplit", lambda: allowed_tools(request, world.tool_registry))
    except Failure as refusal:
        return Refused.by(refusal, tuple(stages.traces))
    return Prepared(
        messages=history.messages,
        tools=tools,
        truncated_history=history.truncated,
        stages=tuple(stages.traces),
        said_before=past.message_count,
    )


async def history_for_planning(turn: SessionTurn, header: ExecutionHeader, world: Environment) -> Sequence[Message]:
    """The conversation of a session when its turn has come, for who plans before PREPARE."""
    past = await turn.acquire()
    if past.message_count == 0 or header.mode is not Mode.PLAN:
        return ()
    return build_conversation(header.request, header.bounds, world=world, past=past, tools=()).messages


def build_conversation(
    request: SystemRequest,
    bounds: EffectiveLimits,
    *,
    world: Environment,
    past: SessionHistory,
    tools: Sequence[ToolDefinition],
) -> SanitizedHistory:
    """What a model is told first: of what the session holds as much as may be, and has room beside the request."""
    widest = max(capacity(engine) for engine in world.catalogue.engines_for(request))
    share = HistoryLimits(bounds.history_messages, bounds.history_tokens, widest - world.token_counter.tools(tools))
    return history_sanitize(request.messages, past, share, world.token_counter)
