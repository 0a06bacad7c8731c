"""A world for executions without HTTP: scripted engines, real tools, a memory journal that is kept after the end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import JsonValue

from app.adapters.engines.scripted import ScriptedEngine
from app.adapters.event_bus import EventBus
from app.adapters.stores.memory import MemoryJournal
from app.adapters.threads import Threads
from app.adapters.turns import Turns
from app.capabilities.failover import FailoverPolicy, ProviderHealth
from app.capabilities.inference import Catalogue
from app.capabilities.tokens import EstimatingCounter
from app.capabilities.tools.executor import ToolExecutor
from app.capabilities.tools.registry import ToolRegistry
from app.domain.boundary import Suspension, SystemRequest, SystemResponse
from app.domain.effects import Bounds, Header, Outcome
from app.domain.events import Event, ExecutionResumed, ExecutionSuspended, LifecycleTransition, Live, Recorded
from app.domain.lifecycle import State
from app.orchestration.conversing import Turn
from app.orchestration.execution import Execution
from app.orchestration.ownership import RESUMED
from app.orchestration.patterns.agent_loop import VERSION, agent_loop
from app.orchestration.pipeline.prepare import Stages, prepare, told
from app.orchestration.resuming import answered
from app.orchestration.story import Story, live, replay
from app.orchestration.world import World
from app.ports import Clock, Engine, EngineProfile, Record, Tool
from tests.support.conversations import Said
from tests.support.entropy import SeededEntropy

POLICY = FailoverPolicy(
    max_retries=1,
    retry_after_cap=30,
    breaker_failures=5,
    breaker_window=30,
    breaker_cooldown=15,
    retry_budget=0.2,
    retry_floor=10,
)
BOUNDS = Bounds(timeout=600, tool_rounds=20, calls_per_reply=32, max_retries=1)


class Log:
    """A sink that keeps everything it is told, deltas too."""

    def __init__(self) -> None:
        self.items: list[Recorded | Live] = []

    def publish(self, execution_id: str, items: Sequence[Recorded | Live]) -> None:
        self.items += items


def unexpected(fault: Exception) -> None:
    """No sink of a test may fail."""
    raise fault


def profile(name: str, **changes: Any) -> EngineProfile:
    """A scripted engine's profile."""
    values: dict[str, Any] = {
        "name": name,
        "model": f"{name}-model",
        "scheme": "scripted",
        "context_window": 128_000,
        "response_reserve": 4_096,
        "options": frozenset(),
    }
    return EngineProfile(**(values | changes))


def scripted(clock: Clock, name: str, *replies: Mapping[str, Any], **changes: Any) -> ScriptedEngine:
    """An engine of that name that answers from a script."""
    return ScriptedEngine(profile(name, **changes), replies, clock)


@dataclass
class Stage:
    """Where executions are run: the world, its log, and the journal's clock."""

    world: World
    bus: EventBus
    log: Log
    journal: MemoryJournal
    bounds: Bounds

    def story(self, execution: Execution, pattern: Any = agent_loop, planning: Any = None) -> Story:
        """The story of that execution, chat's unless another pattern is told."""
        turn = Turn(execution)
        return Story(
            partial(_prepare, execution, self, turn),
            pattern,
            planning,
            partial(told, turn, execution.header, self.world),
        )

    def execution(self, request: SystemRequest, **header: Any) -> Execution:
        """A fresh execution with an open journal."""
        opened = _header(request, self.world, self.bounds, **header)
        self.journal.adopt(Record(opened, {}, ()))
        return Execution(opened, world=self.world, journal=self.journal)

    async def run(
        self, request: SystemRequest, pattern: Any = agent_loop, planning: Any = None
    ) -> tuple[SystemResponse, Record]:
        """The response of a whole execution and its record."""
        execution = self.execution(request)
        await live(execution, self.story(execution, pattern, planning))
        return settled(execution), self.record(execution)

    async def recover(
        self, record: Record, pattern: Any = agent_loop, planning: Any = None
    ) -> tuple[SystemResponse, Record]:
        """Goes on with a record that another process left, in this one."""
        self.journal.adopt(record)
        execution = Execution(record.header, world=self.world, journal=self.journal, record=record)
        await live(execution, self.story(execution, pattern, planning))
        return settled(execution), self.record(execution)

    async def resume(
        self, record: Record, payload: JsonValue, suspension_id: str | None = None, *, pattern: Any = agent_loop
    ) -> tuple[SystemResponse, Record]:
        """Answers an open question, and goes on."""
        return await self.recover(answer(self.world.clock, record, payload, suspension_id), pattern)

    def record(self, execution: Execution) -> Record:
        """What is committed of it."""
        record = self.journal.record(execution.header.execution_id)
        assert record is not None
        return record


def stage(
    clock: Clock,
    *engines: Engine,
    tools: Sequence[Tool] = (),
    policy: FailoverPolicy = POLICY,
    moving: bool = False,
    **bounds: Any,
) -> Stage:
    """A stage with these engines as the default route, in that order, which moves on after what was refused."""
    log = Log()
    bus = EventBus([log], capacity=10_000, on_fault=unexpected, on_drop=lambda: None)
    journal = MemoryJournal(clock, bus, keep_ended=100)
    entropy = SeededEntropy(0)
    registry = ToolRegistry(*tools)
    names = [engine.profile.name for engine in engines]
    world = World(
        journal=journal,
        clock=clock,
        entropy=entropy,
        watchers=bus,
        catalogue=Catalogue(
            dict(zip(names, engines, strict=True)), {"default": names}, moving=["default"] if moving else ()
        ),
        registry=registry,
        tools=ToolExecutor(registry, clock, entropy, 262_144),
        health=ProviderHealth(policy, clock, names),
        counter=EstimatingCounter(),
        turns=Turns(),
        workers=Threads(),
        conversations=Said(),
    )
    values = vars(BOUNDS) | {"max_retries": policy.max_retries} | bounds
    return Stage(world, bus, log, journal, Bounds(**values))


def ask(text: str = "hello", **fields: Any) -> SystemRequest:
    """A chat request with that one user message."""
    return SystemRequest.model_validate({"messages": [{"role": "user", "content": text}]} | fields)


def pending(record: Record) -> list[Suspension]:
    """The questions of the last suspension that no step answers yet."""
    asked = [item.event.suspensions for item in record.events if isinstance(item.event, ExecutionSuspended)]
    return [each for each in asked[-1] if each.suspension_id not in record.rows]


def answer(clock: Clock, record: Record, payload: JsonValue, suspension_id: str | None = None) -> Record:
    """The record with one of its open questions answered; it goes on after the last."""
    asked = pending(record)
    suspension = next(each for each in asked if suspension_id in {None, each.suspension_id})
    row = answered(suspension, payload, at=clock.now())
    events: list[Event] = [ExecutionResumed(row.key, suspension.kind, suspension.tool_id, "local")]
    if len(asked) == 1:
        events.append(LifecycleTransition(State.SUSPENDED, State.EXECUTE, 1, "resumed"))
    journal = stage(clock).journal
    journal.adopt(record)
    root = record.events[0].correlation
    journal.put(record.header.execution_id, row, [(RESUMED, root, event) for event in events])
    found = journal.record(record.header.execution_id)
    assert found is not None
    return found


def tell_again(record: Record, pattern: Any = agent_loop, planning: Any = None) -> int:
    """Replays a record offline; the number of identical steps."""
    execution = Execution(record.header, world=None, journal=None, record=record)

    async def never() -> Outcome:
        raise AssertionError("an offline replay prepares nothing")

    return replay(execution, Story(never, pattern, planning))


def settled(execution: Execution) -> SystemResponse:
    """Its response, which must be there."""
    assert execution.response is not None
    return execution.response


def _header(request: SystemRequest, world: World, bounds: Bounds, **changes: Any) -> Header:
    execution_id = world.entropy.uuid7()
    values: dict[str, Any] = {
        "execution_id": execution_id,
        "request_id": request.request_id or execution_id,
        "tenant": "local",
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
        "parent_span_id": None,
        "mode": request.mode,
        "pattern_version": VERSION,
        "request": request,
        "bounds": bounds,
        "currency": "USD",
        "args_key": "00" * 16,
        "created_at": world.clock.now(),
    }
    return Header(**(values | changes))


async def _prepare(execution: Execution, stage: Stage, turn: Turn) -> Outcome:
    return prepare(execution.header, stage.world, Stages(stage.world.clock), turn.past)
