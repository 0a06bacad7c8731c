"""The facade: what can be asked of the service. It reads like a table of contents."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from pydantic import BaseModel, Field, JsonValue

from app.capabilities.contracts import is_large
from app.capabilities.failover import BreakerState
from app.domain.access import Principal
from app.domain.boundary import PlanStep, SystemRequest, SystemResponse
from app.domain.effects import Bounds, Header, Outcome
from app.domain.failures import Code, Failure
from app.domain.lifecycle import Mode
from app.domain.produced import Produced
from app.domain.quote import Quote
from app.domain.tools import SideEffects
from app.orchestration.admission import Admission, ConfiguredLimits, affordable, keepable
from app.orchestration.execution import Execution
from app.orchestration.pipeline.auth_resolve import auth_resolve
from app.orchestration.pipeline.prepare import Stages, offerable, prepare
from app.orchestration.quoting import Quoting
from app.orchestration.run import Run
from app.orchestration.story import Story, live
from app.orchestration.world import World
from app.ports import EngineFault, Runner, Subscription


@dataclass(frozen=True, slots=True)
class Pattern:
    """What runs a mode, the version its journals belong to, and what plans for it where that is needed.

    `static` are the steps of the plan that is always the same, where there is one.
    """

    run: Callable[[Run], Awaitable[Produced | str]]
    version: int
    planning: Callable[[Run], Awaitable[None]] | None = None
    static: Sequence[PlanStep] | None = None


class EngineView(BaseModel):
    """A configured engine as GET /v1/engines shows it."""

    name: str = Field(description="The configured name; `provider` on the wire, and a value for `model`.")
    scheme: str = Field(description="The protocol it is spoken to in.")
    model: str = Field(description="The model it stands for.")
    context_window: int = Field(description="Tokens that its context window holds.")
    response_reserve: int = Field(description="Tokens of it that are kept for the answer.")
    options: list[str] = Field(description="The keys of `hints.options` that pass through.")
    routes: list[str] = Field(description="Routes it is part of; a route's name is a value for `model` too.")
    capabilities: dict[str, bool] = Field(description="What it can do by itself; the rest is done another way.")
    breaker: BreakerState = Field(description="Whether it is tried right now.")


class ToolView(BaseModel):
    """A registered tool as GET /v1/tools shows it."""

    name: str = Field(description="The tool's name.")
    type: str = Field(description="What kind of tool it is.")
    description: str = Field(description="What the model is told.")
    parameters: dict[str, JsonValue] = Field(description="JSON Schema of its arguments.")
    side_effects: SideEffects = Field(description="What a call does to the world.")
    idempotent: bool = Field(description="Whether a second run does nothing more.")
    requires: list[str] = Field(description="What it needs of its surroundings.")
    available: bool = Field(description="Whether it can run right now.")
    reason: str = Field(description="Why not.")


class EngineReach(BaseModel):
    """Whether an engine answers."""

    name: str = Field(description="The configured name.")
    ok: bool = Field(description="Whether it answered.")
    detail: str = Field(description="What was found.")


class Running:
    """One execution as its starter sees it."""

    def __init__(self, execution: Execution, subscription: Subscription | None) -> None:
        self.execution_id = execution.header.execution_id
        self.request_id = execution.header.request_id
        self.trace_id = execution.header.trace_id
        self.root_span_id = execution.root.span_id
        self.subscription = subscription
        self._execution = execution
        self._done = False
        self._callbacks: list[Callable[[], None]] = []

    @property
    def response(self) -> SystemResponse | None:
        """The answer; None until the execution ended or was suspended."""
        return self._execution.response

    @property
    def upstream_ms(self) -> float:
        """Milliseconds that attempts on providers took, all together."""
        return self._execution.tally.upstream_ms

    def when_done(self, callback: Callable[[], None]) -> None:
        """Calls back once when the execution has ended or was suspended; at once when it already has."""
        if self._done:
            callback()
        else:
            self._callbacks.append(callback)

    def cancel(self, why: str = "the client cancelled it") -> None:
        """Recorded first, then everything that runs is stopped. A second cancel changes nothing."""
        self._execution.stop(Code.CANCELLED_SIGNAL, why)

    def done(self) -> None:
        """Tells everybody who waits, once, and forgets them, who know it."""
        self._done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class Facade:
    """Everything entry points may ask for."""

    def __init__(
        self, world: World, runner: Runner, patterns: Mapping[Mode, Pattern], *, limits: ConfiguredLimits, currency: str
    ) -> None:
        self._world = world
        self._runner = runner
        self._patterns = patterns
        self._currency = currency
        self._admission = Admission(limits, world.catalogue, world.registry, frozenset(patterns))
        static = patterns[Mode.PLAN].static if Mode.PLAN in patterns else None
        self._quoting = Quoting(world.catalogue, world.registry, currency, static)
        self._running: dict[str, Running] = {}

    async def execute(
        self,
        request: SystemRequest,
        principal: Principal,
        *,
        trace_id: str | None = None,
        parent_span_id: str | None = None,
        watch: bool = False,
    ) -> Running:
        """Starts an execution in a task of its own and returns at once.

        The request's own `trace_id` wins over the caller's. With `watch` its events can be read from the first on.
        Raises: Failure for what is refused before there is an execution.
        """
        stages = Stages(self._world.clock)
        principal = stages.run("AuthResolve", lambda: auth_resolve(principal))
        bounds = await self._admit(request)
        header = self._header(request, principal, bounds, trace_id=trace_id, parent_span_id=parent_span_id)
        await self._world.journal.open(header)
        execution = Execution(header, world=self._world, journal=self._world.journal)
        running = Running(execution, self._world.watchers.watch(header.execution_id) if watch else None)
        try:
            self._runner.start(header.execution_id, partial(self._live, execution, running, stages))
        except Failure:
            self._forget(running)
            raise
        self._running[header.execution_id] = running
        return running

    async def quote(self, request: SystemRequest, principal: Principal) -> Quote:
        """The most that the request can come to. Raises: Failure for what `execute` would refuse before it starts."""
        auth_resolve(principal)
        bounds = await self._admit(request)
        if request.mode is Mode.PLAN:
            return await self._world.workers.run(partial(self._quoting.quote, request, bounds))
        return self._quoting.quote(request, bounds)

    def cancel_all(self) -> None:
        """Stops everything that runs here, as a shutdown that cannot wait any longer does."""
        for running in list(self._running.values()):
            running.cancel("the service is stopping")

    def engines(self) -> list[EngineView]:
        """Every configured engine, in the order of the configuration."""
        return [self._engine_view(name) for name in self._world.catalogue.engines]

    def tools(self) -> list[ToolView]:
        """Every registered tool, by name."""
        definitions = {tool.name: tool for tool in self._world.registry.all_definitions()}
        return [
            ToolView(
                name=status.info.name,
                type=status.info.type,
                description=status.info.description,
                parameters=dict(definitions[status.info.name].parameters),
                side_effects=status.info.side_effects,
                idempotent=status.info.idempotent,
                requires=list(status.info.requires),
                available=status.available,
                reason=status.reason,
            )
            for status in self._world.registry.check_availability()
        ]

    async def reach(self) -> list[EngineReach]:
        """Tries every engine's endpoint, one after the other."""
        return [await self._reach(name) for name in self._world.catalogue.engines]

    def new_id(self) -> str:
        """A UUIDv7, for whatever has no id yet."""
        return self._world.entropy.uuid7()

    async def _admit(self, request: SystemRequest) -> Bounds:
        """The limits in force. Raises: Failure for what is refused before there is an execution."""
        bounds = self._admission.admit(request)
        if request.mode is not Mode.CHAT or request.output.rules:
            await self._make_ready(request)
        if bounds.tokens is not None or bounds.cost is not None:
            tools = self._world.registry.definitions(offerable(request, self._world.registry))
            affordable(request, bounds, self._world, tools)
        return bounds

    async def _make_ready(self, request: SystemRequest) -> None:
        """Raises: Failure for an output contract that cannot be kept. What it takes to know is remembered."""
        if is_large(request.output):
            await self._world.workers.run(partial(keepable, request))
        else:
            keepable(request)

    def _header(
        self,
        request: SystemRequest,
        principal: Principal,
        bounds: Bounds,
        *,
        trace_id: str | None,
        parent_span_id: str | None,
    ) -> Header:
        execution_id = self._world.entropy.uuid7()
        own_trace = request.trace_id is not None and request.trace_id != trace_id
        return Header(
            execution_id=execution_id,
            request_id=request.request_id or execution_id,
            tenant=principal.tenant,
            trace_id=request.trace_id or trace_id or self._world.entropy.token(16),
            parent_span_id=None if own_trace else parent_span_id,
            mode=request.mode,
            pattern_version=self._patterns[request.mode].version,
            request=request,
            bounds=bounds,
            currency=self._currency,
            args_key=self._world.entropy.token(16),
            created_at=self._world.clock.now(),
        )

    async def _live(self, execution: Execution, running: Running, stages: Stages) -> None:
        async def prepared() -> Outcome:
            return prepare(execution.header.request, self._world, stages)

        pattern = self._patterns[execution.header.mode]
        story = Story(prepared, pattern.run, pattern.planning)
        try:
            await live(execution, story)
        finally:
            self._running.pop(running.execution_id, None)
            self._world.journal.close(running.execution_id)
            running.done()

    def _forget(self, running: Running) -> None:
        if running.subscription is not None:
            running.subscription.close()
        self._world.journal.close(running.execution_id)

    def _engine_view(self, name: str) -> EngineView:
        catalogue = self._world.catalogue
        profile = catalogue.engines[name].profile
        routes = [route for route, engines in catalogue.routes.items() if catalogue.engines[name] in engines]
        return EngineView(
            name=profile.name,
            scheme=profile.scheme,
            model=profile.model,
            context_window=profile.context_window,
            response_reserve=profile.response_reserve,
            options=sorted(profile.options),
            routes=routes,
            capabilities=asdict(profile.capabilities),
            breaker=self._world.health.breakers[name].state,
        )

    async def _reach(self, name: str) -> EngineReach:
        try:
            return EngineReach(name=name, ok=True, detail=await self._world.catalogue.engines[name].reach())
        except EngineFault as fault:
            return EngineReach(name=name, ok=False, detail=f"{fault.reason}: {fault.message}")
