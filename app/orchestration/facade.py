"""The facade: what can be asked of the service. It reads like a table of contents."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from functools import partial

from pydantic import BaseModel, Field, JsonValue

from app.capabilities.models.breaker import BreakerState
from app.domain.access import Principal
from app.domain.contract.quote import Quote
from app.domain.contract.request import SystemRequest
from app.domain.contract.response import Durability
from app.domain.failures import Code, RequestFailure, StorageFailure
from app.domain.fingerprints import digest
from app.domain.frozen import dataclass
from app.domain.journal.header import EffectiveLimits, ExecutionHeader
from app.domain.lifecycle import TERMINAL, Mode
from app.domain.tools import SideEffects, ToolDefinition
from app.orchestration.admission import Admission, ConfiguredLimits, check_budget, compile_contract
from app.orchestration.execution.environment import Environment
from app.orchestration.execution.execution import Execution
from app.orchestration.execution.session_turn import history_window
from app.orchestration.executions import Executions, ExecutionView
from app.orchestration.pipeline.prepare import StageTimer, allowed_tools, build_conversation
from app.orchestration.pipeline.stages import auth_resolve
from app.orchestration.quote import QuoteCalculator
from app.orchestration.runtime.fork import ForkRequest, fork_execution, merge_overrides
from app.orchestration.runtime.handle import ExecutionHandle
from app.orchestration.runtime.launcher import Launcher
from app.orchestration.sessions import Sessions, model_of
from app.ports.events import EventTailer
from app.ports.journal import ExecutionHistory, IdempotencyClaim, IdempotencyHit
from app.ports.model import EngineError
from app.ports.runtime import QueueTicket
from app.ports.storage import ExecutionStore


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


class EnginePing(BaseModel):
    """Whether an engine answers."""

    name: str = Field(description="The configured name.")
    ok: bool = Field(description="Whether it answered.")
    detail: str = Field(description="What was found.")


@dataclass(frozen=True, slots=True)
class CallOptions:
    """How an execution is asked for, beside the request itself.

    The request's own `trace_id` wins over the caller's. With `watch` its events can be read from the first on. `key`
    is an Idempotency-Key. `background` is asked for beside a body that need not do so.
    """

    trace_id: str | None = None
    parent_span_id: str | None = None
    watch: bool = False
    idempotency_key: str | None = None
    background: bool = False


DEFAULT_OPTIONS = CallOptions()


@dataclass(frozen=True, slots=True)
class FacadeConfig:
    """What is configured beside engines and tools: caps, the currency of prices, the text of grammars by name."""

    limits: ConfiguredLimits
    currency: str
    grammars: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Accepted:
    """An execution that is kept, and runs here or elsewhere when its turn comes."""

    view: ExecutionView


class Facade:
    """Everything entry points may ask for."""

    def __init__(
        self,
        world: Environment,
        store: ExecutionStore,
        *,
        launcher: Launcher,
        deployment: FacadeConfig,
        followers: EventTailer,
    ) -> None:
        self.executions = Executions(world, store, launcher, followers)
        self.sessions = Sessions(world, launcher)
        self._world = world
        self._launcher = launcher
        self._deployment = deployment
        patterns = launcher.patterns
        self._admission = Admission(deployment.limits, world.catalogue, world.tool_registry, frozenset(patterns))
        static = patterns[Mode.PLAN].static_plan if Mode.PLAN in patterns else None
        self._quoting = QuoteCalculator(world.catalogue, world.tool_registry, deployment.currency, static)

    async def execute(
        self, request: SystemRequest, principal: Principal, calling: CallOptions = DEFAULT_OPTIONS
    ) -> ExecutionHandle | Accepted | ExecutionView:
        """Starts an execution in a task of its own and returns at once; one in the background waits for its turn.

        One that is watched begins at once all the same. With an Idempotency-Key that was used before with the same
        body it is the execution of that time that is returned. Raises: Failure for what is refused before there is an
        execution.
        """
        stages = StageTimer(self._world.clock)
        principal = stages.run("AuthResolve", lambda: auth_resolve(principal))
        claim = None if calling.idempotency_key is None else IdempotencyClaim(calling.idempotency_key, digest(request))
        if calling.background:
            request = request.model_copy(update={"background": True})
        request, bounds = await self._admit(request, principal.tenant)
        header = self._header(request, principal, bounds, calling)
        if request.background and not calling.watch:
            return await self._queue(header, claim)
        earlier = await self._world.journal.open(header, claim)
        if earlier is not None:
            return await self._earlier(header.tenant, earlier)
        execution = Execution(header, world=self._world, journal=self._world.journal)
        return self._launcher.start(execution, watch=calling.watch, stages=stages)

    async def fork(
        self, request_id: str, asked: ForkRequest, principal: Principal, calling: CallOptions = DEFAULT_OPTIONS
    ) -> ExecutionHandle:
        """Starts a new execution that begins with the first steps of one that ended or waits, and returns at once.

        Raises: Failure for an unknown or running one, and for what `execute` would refuse before there is an execution.
        """
        stages = StageTimer(self._world.clock)
        principal = stages.run("AuthResolve", lambda: auth_resolve(principal))
        origin = await self.executions.load_at_rest(principal.tenant, request_id)
        request, bounds = await self._admit(merge_overrides(origin.header, asked), principal.tenant)
        named = None if asked.overrides.tools is None else allowed_tools(request, self._world.tool_registry)
        header, rows = fork_execution(self._header(request, principal, bounds, calling), origin, asked, tools=named)
        await self._world.journal.open(header, rows=rows)
        record = ExecutionHistory(header, {row.key: row for row in rows}, ())
        execution = Execution(header, world=self._world, journal=self._world.journal, record=record)
        return self._launcher.start(execution, watch=calling.watch, stages=stages)

    async def quote(self, request: SystemRequest, principal: Principal) -> Quote:
        """The most that the request can come to. Raises: Failure for what `execute` would refuse before it starts."""
        auth_resolve(principal)
        request, bounds = await self._admit(request, principal.tenant)
        if request.mode is Mode.PLAN:
            return await self._world.thread_pool.run(partial(self._quoting.quote, request, bounds))
        return self._quoting.quote(request, bounds)

    def stop_all(self) -> None:
        """Stops everything that runs here, as a shutdown that cannot wait any longer does."""
        self._launcher.stop_all()

    def dismiss_waiting(self) -> None:
        """Sends away whoever reads what does not run here, as a shutdown does first."""
        self._launcher.dismiss_waiting()

    def engines(self) -> list[EngineView]:
        """Every configured engine, in the order of the configuration."""
        return [self._engine_view(name) for name in self._world.catalogue.engines]

    def tools(self) -> list[ToolView]:
        """Every registered tool, by name."""
        definitions = {tool.name: tool for tool in self._world.tool_registry.all_definitions()}
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
            for status in self._world.tool_registry.check_availability()
        ]

    async def ping_engines(self) -> list[EnginePing]:
        """Tries every engine's endpoint, one after the other."""
        return [await self._reach(name) for name in self._world.catalogue.engines]

    def new_id(self) -> str:
        """A UUIDv7, for whatever has no id yet."""
        return self._world.entropy.uuid7()

    async def _admit(self, request: SystemRequest, tenant: str) -> tuple[SystemRequest, EffectiveLimits]:
        """The request, with its session's model and the text of a grammar that it names, and the limits in force.

        Raises: Failure for what is refused before there is an execution.
        """
        request = await self._with_model(request, tenant)
        bounds = self._admission.admit(request)
        request = _with_grammar(request, self._deployment.grammars)
        if request.mode is not Mode.CHAT or request.output.rules:
            await self._world.turns.do(compile_contract(request))
        if bounds.tokens is not None or bounds.cost is not None:
            tools = self._world.tool_registry.definitions(allowed_tools(request, self._world.tool_registry))
            check_budget(await self._with_history(request, bounds, tools, tenant), bounds, self._world, tools)
        return request, bounds

    async def _with_model(self, request: SystemRequest, tenant: str) -> SystemRequest:
        if request.session_id is None or request.model is not None:
            return request
        session = await self._world.conversations.session(tenant, request.session_id)
        model = None if session is None else model_of(session)
        return request if model is None else request.model_copy(update={"model": model})

    async def _with_history(
        self, request: SystemRequest, bounds: EffectiveLimits, tools: Sequence[ToolDefinition], tenant: str
    ) -> SystemRequest:
        """The request as it would be told now."""
        if request.session_id is None:
            return request
        past = await self._world.conversations.history(tenant, request.session_id, limit=history_window(bounds))
        told = build_conversation(request, bounds, world=self._world, past=past, tools=tools)
        return request.model_copy(update={"messages": list(told.messages)})

    async def _queue(self, header: ExecutionHeader, claim: IdempotencyClaim | None) -> Accepted | ExecutionView:
        await self._launcher.admit()
        earlier = await self._world.journal.open(header, claim, queued=True)
        if earlier is not None:
            return await self._earlier(header.tenant, earlier)
        await self._launcher.queue(QueueTicket(header.tenant, header.execution_id, epoch=1))
        return Accepted(await self.executions.show(header.tenant, header.request_id))

    async def _earlier(self, tenant: str, earlier: IdempotencyHit) -> ExecutionView:
        """Raises: RequestFailure (REQUEST_IDEMPOTENCY_MISMATCH, REQUEST_IN_PROGRESS); StorageFailure."""
        if not earlier.same_body:
            raise RequestFailure(
                Code.REQUEST_IDEMPOTENCY_MISMATCH, "the Idempotency-Key was used with another body before"
            )
        shown = await self.executions.show(tenant, earlier.request_id)
        if shown.response is None and shown.state in TERMINAL:
            raise StorageFailure(Code.STORAGE_SNAPSHOT_INVALID, "its answer cannot be read by this version")
        if shown.response is None:
            raise RequestFailure(
                Code.REQUEST_IN_PROGRESS,
                "the first request with this Idempotency-Key is still running",
                {"request_id": earlier.request_id},
                retry_after=1.0,
            )
        return shown

    def _header(
        self, request: SystemRequest, principal: Principal, bounds: EffectiveLimits, calling: CallOptions
    ) -> ExecutionHeader:
        execution_id = self._world.entropy.uuid7()
        own_trace = request.trace_id is not None and request.trace_id != calling.trace_id
        return ExecutionHeader(
            execution_id=execution_id,
            request_id=request.request_id or execution_id,
            tenant=principal.tenant,
            trace_id=request.trace_id or calling.trace_id or self._world.entropy.token(16),
            parent_span_id=None if own_trace else calling.parent_span_id,
            mode=request.mode,
            pattern_version=self._launcher.patterns[request.mode].version,
            request=request,
            bounds=bounds,
            currency=self._deployment.currency,
            args_key=self._world.entropy.token(16),
            created_at=self._world.clock.now(),
            durability=_durability(request, calling),
        )

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

    async def _reach(self, name: str) -> EnginePing:
        try:
            return EnginePing(name=name, ok=True, detail=await self._world.catalogue.engines[name].ping())
        except EngineError as fault:
            return EnginePing(name=name, ok=False, detail=f"{fault.reason}: {fault.message}")


def _durability(request: SystemRequest, calling: CallOptions) -> Durability:
    kept = request.background or request.session_id is not None or calling.idempotency_key is not None
    return "journaled" if kept else "memory"


def _with_grammar(request: SystemRequest, grammars: Mapping[str, str]) -> SystemRequest:
    """So the journal holds the text, and a file that changes makes no replay differ."""
    text = grammars.get(request.output.grammar or "")
    if text is None:
        return request
    return request.model_copy(update={"output": request.output.model_copy(update={"grammar": text})})
