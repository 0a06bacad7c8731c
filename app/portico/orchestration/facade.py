"""Facade: everything that entry points may ask of the service, and the types that they exchange with it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import NamedTuple

from portico.capabilities.context.history import inherited_history
from portico.capabilities.limits.quotas import PolicyStatus
from portico.capabilities.models.context_window import largest_window, measure
from portico.capabilities.models.recent_attempts import RecentAttempts
from portico.capabilities.tools.client_tools import client_definitions
from portico.capabilities.tools.credentials import CredentialSource
from portico.domain.access.principal import ALL, Permission, Permissions, Principal
from portico.domain.access.tool_policy import ToolCaller
from portico.domain.agents import RequestedAgent
from portico.domain.contract.messages import Message
from portico.domain.contract.quote import Quote
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import Durability
from portico.domain.failures import Code, RequestFailure, StorageFailure, invalid_request
from portico.domain.fingerprints import digest, received_digest
from portico.domain.ids import ExecutionId, RequestId, TraceId
from portico.domain.journal.header import Delay, EffectiveLimits, ExecutionHeader
from portico.domain.journal.outcomes import RecordedStep
from portico.domain.lifecycle import TERMINAL
from portico.domain.limits import ConfiguredLimits
from portico.domain.time_zones import unix_seconds
from portico.domain.tools import ToolDefinition
from portico.domain.value import replace, value
from portico.orchestration.admission import Admission, check_budget
from portico.orchestration.agents import caller_of, with_agent
from portico.orchestration.call import DEFAULT_OPTIONS, Accepted, CallOptions
from portico.orchestration.caller import CallerView, ReplicaInfo, caller_view
from portico.orchestration.changes import ChangeReader, Changes, ListReady, RemovedExecution, SuspensionChange
from portico.orchestration.channels import NO_CHANNELS, Channels
from portico.orchestration.contracts import with_contract
from portico.orchestration.engine_views import EnginePing, EngineView
from portico.orchestration.erasure import Erasure
from portico.orchestration.execution.environment import Environment
from portico.orchestration.execution.session_turn import history_window
from portico.orchestration.execution_views import ExecutionSummary, ExecutionView, summary_of
from portico.orchestration.executions import (
    AnswerAccepted,
    Executions,
    ResumeAccepted,
)
from portico.orchestration.files import FileView, WrittenFileView
from portico.orchestration.flow.served_flow import ServedFlow
from portico.orchestration.flow.snapshot import FlowSnapshot
from portico.orchestration.grants import Grants, GrantView
from portico.orchestration.guards import NOTHING_GUARDED, GuardResult, check_input
from portico.orchestration.introspection import (
    AgentView,
    FlowView,
    Introspection,
    PromptView,
    ServedAgent,
    ServedModels,
    SkillView,
    StepTypeView,
    ToolView,
)
from portico.orchestration.keys import KeyParts, KeyRequest, Keys, KeyView, NewKeyView
from portico.orchestration.memory import (
    DocumentContent,
    DocumentSummary,
    DocumentView,
    Memory,
    MemoryParts,
    MemoryQuery,
    MemorySearchView,
)
from portico.orchestration.pipeline.skills import requested_skills
from portico.orchestration.pipeline.stages import (
    Preparation,
    allowed_tools,
    expected_messages,
    with_inherited,
)
from portico.orchestration.quote import QuoteCalculator
from portico.orchestration.records import Records, SuspensionView
from portico.orchestration.redaction import redact_handle, sees_all
from portico.orchestration.rights import require, require_models_and_tools
from portico.orchestration.runtime.agent_trace import AgentTrace
from portico.orchestration.runtime.approval_answer import USUAL_APPROVALS, ApprovalConfig
from portico.orchestration.runtime.branch_transcripts import BranchTranscript
from portico.orchestration.runtime.event_page import EventSelection
from portico.orchestration.runtime.fork import ForkRequest, continuation, fork_execution, merge_overrides, own_quote
from portico.orchestration.runtime.handle import ExecutionHandle
from portico.orchestration.runtime.launcher import Launcher
from portico.orchestration.runtime.limited_start import open_within_limits
from portico.orchestration.runtime.recorded_turns import RecordedTurns, Rest
from portico.orchestration.runtime.recovery import Recovery
from portico.orchestration.runtime.replay import HistoryReader, ReplayReport
from portico.orchestration.runtime.resume import MAX_ANSWERS, GivenAnswer, ResumeRequest
from portico.orchestration.runtime.step_list import StepSelection, StepSummary, StepView
from portico.orchestration.runtime.subscription import CatchUpSubscription
from portico.orchestration.runtime.transcript import NO_TRANSCRIPT, Transcript
from portico.orchestration.sessions import SessionChanges, Sessions, SessionView, with_session
from portico.orchestration.statistics import StatisticsSelection, StatisticsView
from portico.orchestration.usage import Usage, UsageView
from portico.orchestration.webhooks import WebhookParts, Webhooks
from portico.ports.current_caller import acting_for
from portico.ports.events import EventTailer
from portico.ports.grants import GrantStore
from portico.ports.journal import ExecutionHistory, IdempotencyClaim, IdempotencyHit
from portico.ports.runtime import QueueTicket
from portico.ports.storage import ExecutionStore, RecordStore
from portico.ports.timers import TimerKind, TimerNotices

__all__ = [
    "DEFAULT_OPTIONS",
    "MAX_ANSWERS",
    "Accepted",
    "AgentTrace",
    "AgentView",
    "AnswerAccepted",
    "BranchTranscript",
    "CallOptions",
    "CallerView",
    "CatchUpSubscription",
    "ChangeReader",
    "Changes",
    "DocumentContent",
    "DocumentSummary",
    "DocumentView",
    "EnginePing",
    "EngineView",
    "EventSelection",
    "ExecutionHandle",
    "ExecutionSummary",
    "ExecutionView",
    "Executions",
    "Facade",
    "FacadeConfig",
    "FacadeStores",
    "FileView",
    "FlowSnapshot",
    "FlowView",
    "ForkRequest",
    "GivenAnswer",
    "GrantView",
    "HistoryReader",
    "KeyRequest",
    "KeyView",
    "ListReady",
    "MemoryQuery",
    "MemorySearchView",
    "NewKeyView",
    "PolicyStatus",
    "PromptView",
    "RecordedTurns",
    "RemovedExecution",
    "ReplayReport",
    "ReplicaInfo",
    "Rest",
    "ResumeAccepted",
    "ResumeRequest",
    "ServedAgent",
    "ServedModels",
    "SessionChanges",
    "SessionView",
    "SkillView",
    "StatisticsSelection",
    "StatisticsView",
    "StepSelection",
    "StepSummary",
    "StepTypeView",
    "StepView",
    "SuspensionChange",
    "SuspensionView",
    "ToolView",
    "UsageView",
    "WrittenFileView",
    "summary_of",
]


@value
class FacadeConfig:
    """Configuration besides engines and tools: caps, the currency of prices, this replica, the attempts of the last
    hour by engine, the notices of timers, grammars and flows by name, the rules of channels, and the engine that
    embeds, if one does.
    """

    limits: ConfiguredLimits
    currency: str
    replica: ReplicaInfo
    recent_attempts: Mapping[str, RecentAttempts]
    timers: TimerNotices
    grammars: Mapping[str, str] = field(default_factory=dict)
    flows: Mapping[str, ServedFlow] = field(default_factory=dict)
    approvals: ApprovalConfig = USUAL_APPROVALS
    embedder: str | None = None
    channels: Channels = NO_CHANNELS
    sampler: Callable[[TraceId], bool] | None = None
    """Decides about the traces of which no caller has decided; None without an export of spans: none is recorded."""


@value
class FacadeStores:
    """Stores that the facade reads and changes beside those of executions that run."""

    executions: ExecutionStore
    records: RecordStore
    memory: MemoryParts
    keys: KeyParts
    webhooks: WebhookParts
    grants: GrantStore
    credentials: CredentialSource | None


class Facade:
    """Everything that entry points may ask for: commands here, the rest in its parts."""

    def __init__(
        self,
        environment: Environment,
        stores: FacadeStores,
        config: FacadeConfig,
        *,
        launcher: Launcher,
        recovery: Recovery,
        tailer: EventTailer,
        live: Changes,
    ) -> None:
        self.executions = Executions(
            environment,
            stores.executions,
            launcher=launcher,
            recovery=recovery,
            event_tailer=tailer,
            approvals=config.approvals,
        )
        self.records = Records(environment, stores.executions, stores.records, launcher, config.flows)
        self.erasure = Erasure(environment, stores.records, self.executions, self.records, launcher.local, changes=live)
        self.memory, self.sessions = Memory(environment, stores.memory), Sessions(environment, stores.executions)
        self.introspection = Introspection(
            environment, config.flows, replica=config.replica.name, recent_attempts=config.recent_attempts
        )
        self.usage = Usage(environment, config.currency)
        self.keys, self.channels = Keys(stores.keys), config.channels
        self.webhooks, self.grants = Webhooks(stores.webhooks), Grants(stores.grants, environment.clock)
        self._environment = environment
        self._launcher = launcher
        self._config = config
        self._admission = Admission(config.limits, environment, launcher.patterns)

    async def execute(
        self, request: SystemRequest, principal: Principal, options: CallOptions = DEFAULT_OPTIONS
    ) -> ExecutionHandle | Accepted | ExecutionView:
        """Start an execution in a task of its own and return at once, or queue it if it runs in the background.

        A background execution that is subscribed to starts at once all the same. An Idempotency-Key that was used with
        the same body returns the first execution. Raises: Failure for a request that is refused before there is an
        execution.
        """
        options = self._authorised(principal, options)
        if request.webhooks:
            await self.webhooks.require_known(request, principal.tenant)
        claim = None if (key := options.idempotency_key) is None else IdempotencyClaim(key, digest(request))
        if options.background or request.run_at is not None:
            request = request.model_copy(update={"background": True})
        admitted = await self._admit(request, principal, options.transcript)
        if claim is not None and not admitted.request.store:
            raise invalid_request(("store", "must be true with an Idempotency-Key, whose answer is given again"))
        header = self._header(admitted, principal, options)
        if request.run_at is not None:
            header = replace(header, delay=_delay(request.run_at, header.created_at))
        if request.background and (not options.subscribe or request.run_at is not None):
            return await self._queue(header, claim, principal)
        opening = await open_within_limits(self._environment, self._launcher.runner, header, claim)
        if isinstance(opening, IdempotencyHit):
            return await self._earlier_execution(principal, opening)
        handle = self._launcher.start(ExecutionHistory(header, {}, ()), subscribe=options.subscribe, opening=opening)
        return handle if principal.permissions is ALL or sees_all(principal) else redact_handle(handle)

    async def fork(
        self, request_id: RequestId, fork: ForkRequest, principal: Principal, options: CallOptions = DEFAULT_OPTIONS
    ) -> ExecutionHandle:
        """Start a new execution with the first steps of one that has ended or is suspended, and return at once.

        From the `end` it has all messages of one that completed, and no steps. Raises: Failure for an unknown or
        running origin, and for a request that `execute` would refuse.
        """
        options = self._authorised(principal, options)
        if fork.session_id is not None:
            await self._environment.conversations.session_of_turn(principal.own, fork.session_id)
        if fork.from_step == "end":
            header, steps = await self._continued(request_id, fork, principal, options), list[RecordedStep]()
        else:
            header, steps = await self._forked(request_id, fork.from_step, fork, principal, options)
        opening = await open_within_limits(self._environment, self._launcher.runner, header, steps=steps)
        assert not isinstance(opening, IdempotencyHit)  # noqa: S101 - a fork claims no key
        history = ExecutionHistory(header, {step.key: step for step in steps}, ())
        handle = self._launcher.start(history, subscribe=options.subscribe, opening=opening)
        return handle if sees_all(principal) else redact_handle(handle)

    async def quote(self, request: SystemRequest, principal: Principal) -> Quote:
        """Return the most that the request can take. Raises: Failure for a request that `execute` would refuse."""
        require(principal.permissions, Permission.SEND_MESSAGES, "send messages")
        if request.webhooks:
            await self.webhooks.require_known(request, principal.tenant)
        return await self._quote(await self._admit(request, principal), principal)

    async def quote_fork(self, request_id: RequestId, fork: ForkRequest, principal: Principal) -> Quote:
        """Return the most that the fork can take besides what it inherits. Raises: as `fork`, but for the limits."""
        require(principal.permissions, Permission.SEND_MESSAGES, "send messages")
        if fork.session_id is not None:
            await self._environment.conversations.session_of_turn(principal.own, fork.session_id)
        if fork.from_step == "end":
            return await self._quote(await self._admit_continuation(request_id, fork, principal), principal)
        origin, admitted = await self._admit_fork(request_id, fork.from_step, fork, principal)
        return own_quote(await self._quote(admitted, principal), origin, fork.from_step, fork)

    async def _quote(self, admitted: "_Admitted", principal: Principal) -> Quote:
        request, limits, _, agent, _, guards = admitted
        patterns, config = self._launcher.patterns, self._config
        quotes = QuoteCalculator.of(self._environment, patterns, config.currency, config.embedder)
        quote = partial(quotes.quote, request, limits, agent, principal.permissions, guards.judges)
        return await self._environment.thread_pool.run(quote)

    async def count_tokens(self, request: SystemRequest, principal: Principal) -> int:
        """Return the estimated tokens of the context that the first inference of the request reads. Nothing runs.

        Raises: Failure for a request that `execute` would refuse.
        """
        require(principal.permissions, Permission.SEND_MESSAGES, "send messages")
        admitted = await self._admit(request, principal)
        environment, models = self._environment, self._launcher.patterns[admitted.request.mode].models(admitted.request)
        window = largest_window(
            environment.catalogue.engines_for(models), principal.tenant, environment.token_estimator
        )
        return measure(*await self._first_context(admitted, principal), window.counter).used

    def limits_of(self, principal: Principal) -> Sequence[PolicyStatus]:
        """Return the limits of the caller and what is left of them, as far as this replica knows."""
        quota = self._environment.quotas.of(principal.tenant, principal.key_id, principal.limits)
        return () if quota is None else quota.status()

    def caller(self, principal: Principal) -> CallerView:
        """Return who the caller is, what it may do, and what is left of its limits."""
        return caller_view(principal, self.limits_of(principal), self._config.replica, self._environment.clock.now())

    def now(self) -> float:
        """Return the time in Unix seconds."""
        return self._environment.clock.now()

    def new_id(self) -> str:
        """Return a new UUIDv7."""
        return self._environment.entropy.uuid7()

    def _authorised(self, principal: Principal, options: CallOptions) -> CallOptions:
        """Return the options with the time that AuthResolve took in all. Raises: AccessFailure."""
        if principal.permissions is ALL:
            return options
        clock = self._environment.clock
        began_at = clock.monotonic()
        require(principal.permissions, Permission.SEND_MESSAGES, "send messages")
        duration_ms = options.authentication_ms + (clock.monotonic() - began_at) * 1000
        return replace(options, authentication_ms=duration_ms)

    async def _forked(
        self, request_id: RequestId, from_step: int, fork: ForkRequest, principal: Principal, options: CallOptions
    ) -> tuple[ExecutionHeader, list[RecordedStep]]:
        """Return the header of a fork at a step, and the steps that it inherits."""
        origin, admitted = await self._admit_fork(request_id, from_step, fork, principal)
        tools = self._override_tools(admitted, fork, principal.permissions)
        return fork_execution(self._header(admitted, principal, options), origin, from_step, fork, tools=tools)

    async def _admit_fork(
        self, request_id: RequestId, from_step: int, fork: ForkRequest, principal: Principal
    ) -> tuple[ExecutionHistory, "_Admitted"]:
        """Return the origin of a fork at a step, and the whole request of the fork."""
        origin = await self.executions.load_at_rest(principal.own, request_id)
        if fork.session_id is not None and not origin.header.request.store:
            raise invalid_request(("store", "must be true with a session_id, since a session stores its messages"))
        request = merge_overrides(origin.header, from_step, fork.overrides)
        transcript = Transcript(origin.header.inherited_messages, root_span=origin.header.root_span)
        return origin, await self._admit(request, principal, transcript, [edit.content for edit in fork.edits])

    async def _continued(
        self, request_id: RequestId, fork: ForkRequest, principal: Principal, options: CallOptions
    ) -> ExecutionHeader:
        """Return the header of an execution that continues after the end of another one, with its settings."""
        header = self._header(await self._admit_continuation(request_id, fork, principal), principal, options)
        asked = header.request.model_copy(update={"session_id": fork.session_id})
        return replace(header, request=asked, durability="journaled")

    async def _admit_continuation(self, request_id: RequestId, fork: ForkRequest, principal: Principal) -> "_Admitted":
        origin = await self.records.predecessor(principal, request_id)
        request = continuation(origin.header, fork)
        return await self._admit(request, principal, origin.transcript.continued_by(request.messages))

    async def _admit(
        self,
        request: SystemRequest,
        principal: Principal,
        transcript: Transcript | None = None,
        edits: Sequence[str] = (),
    ) -> "_Admitted":
        """Return the request with what its agent and its session give it, the text of its named grammar, and the limits
        that apply.

        Without a `transcript` it is that of the execution that the request comes `after`, if any. Raises: Failure for a
        request that is refused before there is an execution.
        """
        environment, permissions = self._environment, principal.permissions
        session = agent = instructions = None
        if request.session_id is not None:
            session = await environment.conversations.session_of_turn(principal.own, request.session_id)
        if transcript is None:
            transcript = NO_TRANSCRIPT
            if request.after is not None:
                predecessor = await self.records.predecessor(principal, request.after)
                transcript = predecessor.transcript.continued_by(request.messages)
        if request.agent is not None:
            request, agent = with_agent(request, request.agent, environment, principal)
        if session is not None:
            request, instructions = with_session(request, session)
        channels = self._config.channels
        instructions = instructions if channels.is_empty else channels.instructions(principal.channel, instructions)
        if permissions is not ALL:
            require_models_and_tools(
                request, permissions, environment.catalogue, self._launcher.patterns.get(request.mode)
            )
        caller = ToolCaller(principal.tenant, principal.user, principal.key_id, request.agent, principal.channel)
        limits = self._admission.admit(request, agent, caller=caller, permissions=permissions)
        pattern = self._launcher.patterns[request.mode]
        if "output" in request.model_fields_set:
            request = await with_contract(environment, request, self._config.grammars)
        guards = NOTHING_GUARDED
        if request.input is not None or not environment.guards.is_empty:
            with acting_for(caller_of(principal, request)):
                guards = await check_input(environment, pattern, request, instructions, edits)
        admitted = _Admitted(request, limits, transcript, agent, instructions, guards)
        is_refused_early = pattern.starts_with_request and request.on_limit == "fail"
        if is_refused_early and (limits.tokens is not None or limits.cost is not None):
            await self._check_budget(admitted, principal)
        return admitted

    async def _check_budget(self, admitted: "_Admitted", principal: Principal) -> None:
        """Raise OrchestrationFailure if the budget cannot pay for the first inference and the history before it."""
        messages, tools = await self._first_context(admitted, principal)
        request = admitted.request.model_copy(update={"messages": list(messages)})
        check_budget(request, admitted.limits, self._environment, tools, principal.tenant)

    async def _first_context(
        self, admitted: "_Admitted", principal: Principal
    ) -> tuple[Sequence[Message], Sequence[ToolDefinition]]:
        """Return the messages of the first inference, as far as they are known at admission, and its tools."""
        request, limits, transcript, agent, instructions, _ = admitted
        environment, pattern = self._environment, self._launcher.patterns[request.mode]
        registry, permissions = environment.tool_registry, principal.permissions
        names = allowed_tools(request, pattern, registry, agent, permissions)
        tools = [*registry.definitions(names), *client_definitions(request.client_tools)]
        if transcript.is_whole:
            request, transcript = with_inherited(request, transcript.messages), NO_TRANSCRIPT
        session = inherited_history(transcript.messages)
        if request.session_id is not None:
            window = history_window(limits)
            session = await environment.conversations.history(principal.own, request.session_id, limit=window)
        has_skills = bool(requested_skills(request, agent))
        if not (session.message_count or agent is not None or instructions is not None or has_skills):
            return request.messages, tools
        preparation = Preparation(
            request,
            limits,
            pattern,
            environment,
            session,
            principal.tenant,
            agent,
            names,
            offered=tools,
            permissions=permissions,
            instructions=instructions,
        )
        return expected_messages(preparation), tools

    async def _queue(
        self, header: ExecutionHeader, claim: IdempotencyClaim | None, principal: Principal
    ) -> Accepted | ExecutionView:
        hit = await open_within_limits(self._environment, self._launcher.runner, header, claim, queued=True)
        if isinstance(hit, IdempotencyHit):
            return await self._earlier_execution(principal, hit)
        if header.delay is None:
            await self._launcher.queue(QueueTicket(header.tenant, header.execution_id, epoch=1))
        else:
            self._config.timers.notify(TimerKind.START, header.delay.until)
        view = await self.executions.show(principal, header.request_id)
        return Accepted(view, header.trace_id, header.root_span_id, header.sampled)

    async def _earlier_execution(self, principal: Principal, hit: IdempotencyHit) -> ExecutionView:
        """Return the execution that the Idempotency-Key belongs to.

        Raises: RequestFailure (REQUEST_IDEMPOTENCY_MISMATCH, REQUEST_IN_PROGRESS); StorageFailure.
        """
        if not hit.same_body:
            raise RequestFailure(
                Code.REQUEST_IDEMPOTENCY_MISMATCH, "the Idempotency-Key was used before with another body"
            )
        shown = await self.executions.show(principal, hit.request_id)
        if shown.response is None and shown.state in TERMINAL:
            raise StorageFailure(Code.STORAGE_SNAPSHOT_INVALID, "this version cannot read the stored response")
        if shown.response is None:
            raise RequestFailure(
                Code.REQUEST_IN_PROGRESS,
                "the first request with this Idempotency-Key is still running",
                {"request_id": hit.request_id},
                retry_after=1.0,
            )
        return shown

    def _override_tools(
        self, admitted: "_Admitted", fork: ForkRequest, permissions: Permissions
    ) -> tuple[str, ...] | None:
        """Return the tools that the fork's overrides allow; None if they name none."""
        if fork.overrides.tools is None:
            return None
        request, registry = admitted.request, self._environment.tool_registry
        return allowed_tools(request, self._launcher.patterns[request.mode], registry, admitted.agent, permissions)

    def _header(self, admitted: "_Admitted", principal: Principal, options: CallOptions) -> ExecutionHeader:
        request, limits, transcript, _, instructions, guards = admitted
        pattern, execution_id = self._launcher.patterns[request.mode], ExecutionId(self._environment.entropy.uuid7())
        if options.credentials and self._environment.credentials is not None:
            self._environment.credentials.arriving[execution_id] = options.credentials
        own_trace = request.trace_id is not None and request.trace_id != options.trace_id
        trace_id = request.trace_id or options.trace_id or TraceId(self._environment.entropy.token(16))
        sampler, sampled = self._config.sampler, None if own_trace else options.sampled
        return ExecutionHeader(
            execution_id=execution_id,
            request_id=options.run_id or request.request_id or RequestId(execution_id),
            tenant=principal.tenant,
            trace_id=trace_id,
            parent_span_id=None if own_trace else options.parent_span_id,
            mode=request.mode,
            pattern_version=pattern.version,
            request=request,
            bounds=limits,
            currency=self._config.currency,
            args_key=self._environment.entropy.token(16),
            created_at=self._environment.clock.now(),
            durability=_durability(request, options),
            inherited_messages=transcript.messages,
            inherits_whole=transcript.is_whole,
            ancestors=transcript.ancestors,
            auth_resolve_ms=options.authentication_ms,
            flow_fingerprint=None if pattern.fingerprint is None else pattern.fingerprint(request),
            agent=admitted.agent,
            user=principal.user,
            key_id=principal.key_id,
            permissions=principal.permissions,
            instructions=instructions,
            key_limits=principal.limits,
            sampled=sampler is not None and sampler(trace_id) if sampled is None else sampled,
            links=options.links(transcript, own_trace=own_trace) if own_trace or transcript.root_span else (),
            guards=guards.verdicts,
            judges=guards.judges,
            received_digest=_received(request, options) if request.client_tools else None,
            client=options.client,
            channel=principal.channel,
        )


class _Admitted(NamedTuple):
    """An admitted request, its limits, the transcript before it, its agent, instructions, and what the guards found."""

    request: SystemRequest
    limits: EffectiveLimits
    transcript: Transcript
    agent: RequestedAgent | None
    instructions: str | None
    guards: GuardResult


def _received(request: SystemRequest, options: CallOptions) -> str:
    return received_digest(request.messages if options.received is None else options.received)


def _delay(run_at: str, now: float) -> Delay | None:
    """Return the delay of the start; None if its time has come."""
    until = unix_seconds(run_at)
    return Delay(until) if until > now else None


def _durability(request: SystemRequest, options: CallOptions) -> Durability:
    stored = request.background or request.session_id is not None or options.idempotency_key is not None
    return "journaled" if stored else "memory"
