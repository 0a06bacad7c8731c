"""An environment for executions without HTTP: scripted engines, real tools, the stored journal on SQLite in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType
from typing import Any

from pydantic import JsonValue

from portico.adapters.engines.scripted import ScriptedEngine
from portico.adapters.event_bus import EventBus
from portico.bootstrap.service import PATTERNS
from portico.capabilities.limits.quotas import Quotas
from portico.capabilities.limits.usage_meter import UsageMeter
from portico.capabilities.models.catalogue import EngineCatalogue
from portico.capabilities.models.deployments import DeployedEngine
from portico.capabilities.models.health import FailoverPolicy, ProviderHealth
from portico.capabilities.models.tokens import LearningTokenEstimator
from portico.capabilities.prompting.registry import PromptRegistry, default_registry
from portico.capabilities.tools.executor import ToolExecutor
from portico.capabilities.tools.policy import ToolPolicy
from portico.capabilities.tools.registry import ToolRegistry
from portico.capabilities.tools.step_function import StepFunction
from portico.domain.access.limits import AccessLimits
from portico.domain.access.tool_policy import PolicyRules
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import Suspension, SystemResponse
from portico.domain.journal.events import (
    EVENT_TYPES,
    RESUME_ANCHOR,
    Event,
    ExecutionResumed,
    ExecutionSuspended,
    LifecycleTransition,
    LiveDelta,
    StoredEvent,
)
from portico.domain.journal.header import EffectiveLimits, ExecutionHeader
from portico.domain.lifecycle import Mode, State
from portico.domain.model_call import AttemptFailureReason
from portico.domain.token_prices import TokenPrices
from portico.orchestration.execution.context import RunContext
from portico.orchestration.execution.environment import Environment
from portico.orchestration.execution.execution import Execution
from portico.orchestration.execution.pattern import Pattern
from portico.orchestration.patterns.agent_loop import VERSION, agent_loop
from portico.orchestration.pipeline.stages import StageTimer
from portico.orchestration.runtime.driver import drive, replay
from portico.orchestration.runtime.resume import answer_step, require_answer
from portico.ports.journal import ExecutionHistory
from portico.ports.model import Engine, EngineProfile
from portico.ports.runtime import Clock
from portico.ports.tool import Tool, ToolSource
from tests.support.conversations import FixedConversations
from tests.support.entropy import SeededEntropy
from tests.support.inline_threads import InlineThreadPool
from tests.support.inline_validation import InlineAnswerValidator
from tests.support.limits import ExactLimitStore, RecordedUsage
from tests.support.stored_journal import CommittingJournal, InMemoryJournal, with_commit

NO_RULES = PolicyRules()
POLICY = FailoverPolicy(
    max_retries=1,
    retry_after_cap=30,
    breaker_failures=5,
    breaker_window=30,
    breaker_cooldown=15,
    retry_budget=0.2,
    retry_floor=10,
)
LIMITS = EffectiveLimits(timeout=600, tool_rounds=20, calls_per_reply=32, max_retries=1)


class EventLog:
    """A sink that keeps everything that is published, deltas too."""

    def __init__(self) -> None:
        self.items: list[StoredEvent | LiveDelta] = []
        self.wanted = EVENT_TYPES

    def publish(self, execution_id: str, items: Sequence[StoredEvent | LiveDelta]) -> None:
        self.items += items


def fail_on_fault(fault: Exception) -> None:
    """Raise the error of a sink: none of a test may fail."""
    raise fault


def profile(name: str, *, price: tuple[float, float] | TokenPrices | None = None, **changes: Any) -> EngineProfile:
    """Return the profile of a scripted engine; a pair of prices is for input and output tokens."""
    values: dict[str, Any] = {
        "name": name,
        "model": f"{name}-model",
        "scheme": "scripted",
        "context_window": 128_000,
        "response_reserve": 4_096,
        "options": frozenset(),
        "price": TokenPrices.without_cache(*price) if isinstance(price, tuple) else price,
    }
    return EngineProfile(**(values | changes))


def scripted_engine(clock: Clock, name: str, *replies: Mapping[str, Any], **changes: Any) -> ScriptedEngine:
    """Return an engine of that name that answers from a script."""
    return ScriptedEngine(profile(name, **changes), replies, clock)


@dataclass
class Harness:
    """An environment to run executions in, with its bus, its log and its journal."""

    environment: Environment
    bus: EventBus
    log: EventLog
    journal: InMemoryJournal
    limits: EffectiveLimits

    async def drive(self, execution: Execution, pattern: Any = agent_loop, planning: Any = None) -> None:
        """Run the execution to its end with that pattern, by default that of mode chat."""
        whole = make_pattern(execution.header.mode, pattern, planning)
        await drive(execution, whole, StageTimer(self.environment.clock))

    def execution(self, request: SystemRequest, **header: Any) -> Execution:
        """Return a new execution with an open journal."""
        opened = _header(request, self.environment, self.limits, **header)
        self.journal.begin(opened)
        return Execution(opened, environment=self.environment, journal=self.journal)

    async def run(
        self, request: SystemRequest, pattern: Any = agent_loop, planning: Any = None
    ) -> tuple[SystemResponse, ExecutionHistory]:
        """Run a whole execution and return its response and its history."""
        execution = self.execution(request)
        await self.drive(execution, pattern, planning)
        return response_of(execution), self.record(execution)

    async def recover(
        self, record: ExecutionHistory, pattern: Any = agent_loop, planning: Any = None
    ) -> tuple[SystemResponse, ExecutionHistory]:
        """Continue a history that another process left."""
        self.journal.attach(record)
        execution = Execution(record.header, environment=self.environment, journal=self.journal, history=record)
        await self.drive(execution, pattern, planning)
        return response_of(execution), self.record(execution)

    async def resume(
        self,
        record: ExecutionHistory,
        payload: JsonValue,
        suspension_id: str | None = None,
        *,
        pattern: Any = agent_loop,
    ) -> tuple[SystemResponse, ExecutionHistory]:
        """Answer an open suspension and continue."""
        return await self.recover(answer_suspension(self.environment.clock, record, payload, suspension_id), pattern)

    def record(self, execution: Execution) -> ExecutionHistory:
        """Return what is committed of the execution."""
        record = self.journal.record(execution.header.execution_id)
        assert record is not None
        return record


def make_harness(
    clock: Clock,
    *engines: Engine | DeployedEngine,
    tools: Sequence[Tool] = (),
    step_functions: Sequence[StepFunction] = (),
    sources: Sequence[ToolSource] = (),
    rules: PolicyRules = NO_RULES,
    policy: FailoverPolicy = POLICY,
    moving: bool = False,
    by_cause: Mapping[AttemptFailureReason, Sequence[Engine]] = MappingProxyType({}),
    concurrent_inferences: int = 32,
    prompts: PromptRegistry | None = None,
    limits: AccessLimits | None = None,
    caps: Mapping[str, Mapping[str, AccessLimits]] = MappingProxyType({}),
    **bounds: Any,
) -> Harness:
    """Return a harness with these engines as the default route; one that is `moving` reroutes rejected answers.

    The route asks the engines `by_cause` after a failure for that cause.
    """
    log = EventLog()
    bus = EventBus([log], capacity=10_000, on_fault=fail_on_fault, on_drop=lambda: None)
    journal = InMemoryJournal(clock, bus)
    entropy = SeededEntropy(0)
    registry = ToolRegistry(*tools, sources=sources, policy=ToolPolicy(rules), step_functions=step_functions)
    names = [engine.profile.name for engine in engines]
    every = (*engines, *chain.from_iterable(by_cause.values()))
    named: dict[str, Engine | DeployedEngine] = {engine.profile.name: engine for engine in every}
    causes = {cause: [engine.profile.name for engine in members] for cause, members in by_cause.items()}
    quotas = Quotas(ExactLimitStore(clock), clock, {} if limits is None else {"default": limits}, engines=caps)
    world = Environment(
        journal=journal,
        clock=clock,
        entropy=entropy,
        event_feed=bus,
        catalogue=EngineCatalogue(
            named, {"default": names}, rerouting=["default"] if moving else (), by_cause={"default": causes}
        ),
        tool_registry=registry,
        tool_executor=ToolExecutor(registry, clock, entropy, 262_144),
        health=ProviderHealth(policy, clock, named, quotas.caps),
        token_estimator=LearningTokenEstimator(),
        thread_pool=InlineThreadPool(),
        answer_validator=InlineAnswerValidator(),
        conversations=FixedConversations(),
        concurrent_inferences=concurrent_inferences,
        prompts=prompts or default_registry(),
        quotas=quotas,
        usage=UsageMeter(RecordedUsage(), "process"),
    )
    values = vars(LIMITS) | {"max_retries": policy.max_retries} | bounds
    return Harness(world, bus, log, journal, EffectiveLimits(**values))


def watch_commits(harness: Harness, performed: Sequence[Any] = ()) -> Harness:
    """Give the harness a journal that remembers the history after every commit."""
    harness.journal = CommittingJournal(harness.environment.clock, harness.bus, performed)
    harness.environment = replace(harness.environment, journal=harness.journal)
    return harness


def chat_request(text: str = "hello", **fields: Any) -> SystemRequest:
    """Return a chat request with that one user message."""
    return SystemRequest.model_validate({"messages": [{"role": "user", "content": text}]} | fields)


def open_suspensions(record: ExecutionHistory) -> list[Suspension]:
    """Return the suspensions of the last suspension event that have no answer yet."""
    asked = [item.event.suspensions for item in record.events if isinstance(item.event, ExecutionSuspended)]
    return [each for each in asked[-1] if each.suspension_id not in record.steps]


def answer_suspension(
    clock: Clock, record: ExecutionHistory, payload: JsonValue, suspension_id: str | None = None
) -> ExecutionHistory:
    """Return the history with one open suspension answered; the last answer resumes it."""
    asked = open_suspensions(record)
    suspension = next(each for each in asked if suspension_id in {None, each.suspension_id})
    require_answer(suspension, payload)
    row = answer_step(suspension, payload, at=clock.now())
    events: list[Event] = [ExecutionResumed(row.key, suspension.kind, suspension.tool_id, "local")]
    if len(asked) == 1:
        events.append(LifecycleTransition(State.SUSPENDED, State.EXECUTE, 1, "resumed"))
    root = record.events[0].correlation
    return with_commit(record, [row], [(RESUME_ANCHOR, root, event) for event in events], clock.now())


def replay_offline(record: ExecutionHistory, pattern: Any = agent_loop, planning: Any = None) -> int:
    """Replay a history offline and return the number of identical steps."""
    execution = Execution(record.header, environment=None, journal=None, history=record)
    return replay(execution, make_pattern(record.header.mode, pattern, planning))


def make_pattern(mode: Mode, run: Any, planning: Any = None) -> Pattern:
    """Return the pattern of that mode with other code to run and to plan with."""

    async def plan(context: RunContext, *_: object) -> RunContext:
        planned: RunContext = await planning(context)
        return planned

    return replace(PATTERNS[mode], run=run, plan=None if planning is None else plan)


def response_of(execution: Execution) -> SystemResponse:
    """Return the response of an execution that has ended or was suspended."""
    assert execution.response is not None
    return execution.response


def _header(request: SystemRequest, world: Environment, bounds: EffectiveLimits, **changes: Any) -> ExecutionHeader:
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
    return ExecutionHeader(**(values | changes))
