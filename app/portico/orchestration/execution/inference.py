"""Inference: the providers that are offered what a branch asks, and the attempts until one answers."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType

from pydantic import JsonValue

from portico.capabilities.context.redaction import Redactor
from portico.capabilities.limits.caps import CallSize, CapReservation
from portico.capabilities.limits.quotas import Reservation
from portico.capabilities.models.context_window import count_tokens, with_results_cut
from portico.capabilities.models.engine_downgrade import without_kept
from portico.capabilities.models.failover import FailoverWalk
from portico.capabilities.models.format_enforcement import prepare_call, submitted_reply
from portico.capabilities.models.lane import Lane
from portico.capabilities.models.replies import normalise_reply
from portico.capabilities.models.room import Room
from portico.capabilities.models.tokens import estimate_exchange
from portico.domain.contract.messages import Message
from portico.domain.contract.response import NO_USAGE, TokenUsage, public_message
from portico.domain.failures import Failure, OrchestrationFailure, RequestFailure, StorageFailure
from portico.domain.fallback import State
from portico.domain.fingerprints import span_id
from portico.domain.ids import ToolCallId
from portico.domain.journal.events import (
    Event,
    FinishReason,
    InferenceDelta,
    InferenceEnd,
    InferenceRetracted,
    InferenceStart,
    LiveDelta,
)
from portico.domain.journal.outcomes import (
    AttemptCancelled,
    AttemptFailed,
    AttemptSucceeded,
    Candidate,
    InferenceSetup,
    Outcome,
    RecordedStep,
    Refused,
    TimerFired,
)
from portico.domain.journal.step_key import StepKey, segment_of
from portico.domain.model_call import UNSENT, AttemptFailureReason, EngineCall, Reply
from portico.domain.token_prices import FREE
from portico.domain.value import replace
from portico.orchestration.execution.attempt_room import call_size, next_attempt, refused, take_room, unsent
from portico.orchestration.execution.attempt_stream import AttemptStream, HeldDeltas
from portico.orchestration.execution.branch_settings import BranchSettings
from portico.orchestration.execution.effect import BranchStopped, Effect, RecordedValue
from portico.orchestration.execution.environment import Environment
from portico.orchestration.execution.execution import Execution
from portico.orchestration.execution.inference_setup import find_setup, offer_tools
from portico.orchestration.execution.progress import Conversation
from portico.orchestration.execution.prompt_cache import prompt_cache_key
from portico.ports.model import Engine, EngineError, EngineProfile, TokenCounter

_FINISH_REASONS: Mapping[str, FinishReason] = MappingProxyType({"stop": "stop", "tool": "tool", "length": "length"})
_LIMIT_REASONS: Mapping[type[Failure], AttemptFailureReason] = MappingProxyType(
    {
        RequestFailure: AttemptFailureReason.OVER_LIMIT,
        OrchestrationFailure: AttemptFailureReason.OVER_BUDGET,
        StorageFailure: AttemptFailureReason.LIMIT_UNKNOWN,
    }
)


class Inference:
    """One inference of a branch: its setup, its walk through the providers, and their attempts.

    Its attempts are `key/0`, `key/1`, …; the delay before the retry of `key/0` is `key/0/0`. `fingerprint` covers what
    was `added` to the conversation since the last inference, the hints and the response format; the `call` has both and
    no tools yet.
    """

    def __init__(
        self,
        execution: Execution,
        key: StepKey,
        fingerprint: str,
        *,
        settings: BranchSettings,
        conversation: Conversation,
        added: Sequence[Message],
        call: EngineCall,
    ) -> None:
        self.execution = execution
        self.key = key
        self.settings = settings
        self.conversation = conversation
        self.call = call
        """What engines are asked, with the tools that are offered once the setup is known."""
        self.estimated: float | None = None
        """Estimated tokens of the call without correction; None if an earlier run found the setup."""
        self.anchor = key
        """The step of its last attempt."""
        self.ended_at = 0.0
        """When its last attempt ended, in Unix seconds."""
        self._fingerprint = fingerprint
        self._added = added

    async def run(self) -> Reply:
        """Ask one provider after the other until one answers; its setup waits only if tools have to be asked.

        Raises: InferenceFailure, OrchestrationFailure.
        """
        execution, setup, tools = self.execution, self._setup_effect(), self.settings.tools
        step = execution.find(setup)
        if step is None and (not tools or execution.environment.tool_registry.is_current(tools)):
            step = execution.recorder.add(setup, self._find_setup())
        step = step or await execution.perform(setup)
        walk = self._begin_walk(step.outcome)
        while walk.candidate is not None:
            attempt = Attempt(self, walk, walk.candidate)
            ended = execution.find(attempt)
            if ended is None:
                ended = execution.recorder.complete(attempt, await attempt.run(execution.environment))
            self.anchor, self.ended_at = attempt.key, ended.at
            if isinstance(ended.outcome, AttemptSucceeded):
                execution.recorder.emit(self.anchor, self.settings.correlation, *walk.succeed())
                return self._answer(ended.outcome.reply, walk, attempt)
            assert isinstance(ended.outcome, AttemptFailed)  # noqa: S101 - the other outcome of an attempt
            await self._move_on(walk, attempt, ended.outcome)
        raise walk.failure()

    def asked(self) -> JsonValue:
        """Return the messages that are new since the last inference of the branch, the route, and the hints."""
        return {
            "messages": [public_message(message) for message in self._added],
            "model": self.settings.model,
            "hints": self.call.hints.model_dump(mode="json", exclude_defaults=True),
        }

    def _setup_effect(self) -> RecordedValue:
        """Return the effect that asks which tools are available now, and then finds the setup."""

        async def find(environment: Environment) -> Outcome:
            await environment.tool_registry.refresh(self.settings.tools)
            return self._find_setup()

        correlation = self.settings.correlation
        return RecordedValue(self.key, self._fingerprint, correlation, find=find, is_instant=False, asked=self.asked)

    def _find_setup(self) -> InferenceSetup | Refused:
        """Return the setup as it is now, and take over what follows from it."""
        found = find_setup(self.execution, self.key, self.settings, self.conversation, self.call)
        if isinstance(found, Refused):
            return found
        setup, self.call, self.estimated = found
        return setup

    def _begin_walk(self, setup: Outcome) -> FailoverWalk:
        """Return the walk with its first candidate. Raises: the failure that refused the inference."""
        if isinstance(setup, Refused):
            raise setup.failure()
        assert isinstance(setup, InferenceSetup)  # noqa: S101 - the other outcome of an inference's setup
        execution, messages = self.execution, self.conversation.messages
        if setup.cut:
            messages[:] = with_results_cut(messages, setup.cut)
            del self.conversation.sizes[min(setup.cut) :]
        inherited = self.conversation.inherited
        if inherited and execution.header.redacts_inherited:
            redacted = [*Redactor().messages(messages[:inherited]), *messages[inherited:]]
            self.call = replace(self.call, messages=redacted)
        if self.estimated is None and setup.tools and not execution.recorder.is_read_only:
            _, definitions = offer_tools(
                execution, self.settings, [tool.name for tool in setup.tools if not tool.client]
            )
            self.call = replace(self.call, tools=definitions)
        walk = FailoverWalk(self.key, setup, execution.header.bounds.max_retries)
        execution.recorder.emit(self.key, self.settings.correlation, *walk.select())
        return walk

    async def _move_on(self, walk: FailoverWalk, attempt: "Attempt", outcome: AttemptFailed) -> None:
        """Go on to a retry, after its delay, or to the next candidate. Raises: Failure if the request is at fault."""
        self._emit(walk.fail(outcome))
        if walk.refusal is not None:
            raise walk.refusal
        if walk.state is State.RETRYING:
            if outcome.wait:
                delay = RetryDelay(self, walk, outcome.wait)
                await self.execution.perform(delay)
                self.anchor = delay.key
            self._emit(walk.retry())
        is_left = walk.state is not State.ATTEMPTING
        if outcome.streamed and (walk.has_candidates_left or not is_left):
            self._emit([InferenceRetracted(attempt.segment)])
        if is_left:
            self._emit(walk.select())

    def _answer(self, reply: Reply, walk: FailoverWalk, attempt: "Attempt") -> Reply:
        """Add the reply to the conversation and return it."""
        calls = self.execution.ledger.tool_calls.of(attempt.key) if reply.tool_calls else ()
        span = attempt.correlation.span_id if calls else None
        self.conversation.answer(reply, attempt.candidate, walk.setup, calls, span)
        return reply

    def _emit(self, events: Sequence[Event]) -> None:
        self.execution.recorder.emit(self.anchor, self.settings.correlation, *events)


class RetryDelay(Effect):
    """The effect of waiting before the candidate is attempted again."""

    def __init__(self, inference: Inference, walk: FailoverWalk, seconds: float) -> None:
        self.key = walk.attempt_key.child(0)
        self.fingerprint = f"wait:{seconds}"
        self.correlation = inference.settings.correlation
        self._ledger = inference.execution.ledger
        self._walk = walk
        self._seconds = seconds

    def asked(self) -> JsonValue:
        """Return the seconds to wait."""
        return {"seconds": self._seconds}

    async def run(self, environment: Environment) -> TimerFired:
        """Wait."""
        await environment.clock.sleep(self._seconds)
        return TimerFired()

    def end_events(self, outcome: Outcome) -> Sequence[Event]:
        """Return the abort of the fallback machine after a cancellation."""
        return [self._walk.abort(is_waiting=True)] if isinstance(outcome, AttemptCancelled) else ()

    def account(self, step: RecordedStep) -> None:
        """Add the delay to the ledger."""
        self._ledger.record_delay(step, self._seconds)


class Attempt(Effect):
    """One attempt of an inference on one candidate."""

    start_event: InferenceStart

    def __init__(self, inference: Inference, walk: FailoverWalk, candidate: Candidate) -> None:
        execution, call, conversation = inference.execution, inference.call, inference.conversation
        self.key = walk.attempt_key
        self.fingerprint = candidate.fingerprint
        self.correlation = inference.settings.correlation.child(
            span_id(execution.header.execution_id, self.key), caused_by=conversation.round_span
        )
        self._execution = execution
        self.inference = inference
        self._walk = walk
        self.candidate = candidate
        self._prices = None if candidate.price is None else candidate.prices
        self._grant: Reservation | AttemptFailed | None = None
        self._caps: CapReservation | None = None
        if execution.recorder.cursor.has_history:
            for earlier in execution.recorder.cursor.starts(self.key):
                if isinstance(earlier, InferenceStart):
                    walk.segment = earlier.segment
        self._stream = AttemptStream(walk.segment, has_schema=call.schema is not None)
        self.start_event = InferenceStart(
            segment=walk.segment,
            message_count=len(conversation.messages),
            tool_defs_count=len(walk.setup.tools),
            schema_present=call.schema is not None,
            grammar_present=call.grammar is not None,
            temperature=call.hints.temperature,
            provider=candidate.provider,
            model=candidate.model,
            replica=inference.settings.replica,
            deployment=candidate.deployment,
        )

    @property
    def segment(self) -> str:
        """The name of this run in events."""
        return self._stream.segment

    async def run(self, environment: Environment) -> AttemptSucceeded | AttemptFailed:
        """Ask the engine once, when it is its turn in the engine's lane.

        An engine's error is an outcome, with the delay that was granted before a retry. What was used without an
        outcome is settled. Raises: BranchStopped.
        """
        execution, candidate, slots = self._execution, self.candidate, self._execution.branches.model_call_slots
        address = candidate.provider if candidate.deployment is None else candidate.address
        if address not in environment.catalogue.endpoints:
            return self._end_unsent(unsent(AttemptFailureReason.MODEL_MISSING, "it is configured no longer"))
        engine, lane = environment.catalogue.endpoints[address], environment.catalogue.lanes[address]
        room = environment.health.rooms.get(address)
        with execution.branches.scope(self.key):
            quota = execution.facts.quota
            reserve = self._reserve if quota is not None and quota.needs_reservation else None
            waits = reserve is not None or (room is not None and not room.is_unlimited)
            if waits or not lane.enter_if_free(slots):
                with self._waiting():
                    refusal = None if room is None else await self._take_room(room, lane, reserve)
                    if refusal is None:
                        await lane.enter(execution.header.execution_id, slots, reserve if room is None else None)
                if refusal is not None:
                    return self._end_unsent(refusal)
            try:
                with execution.branches.running(self) as started_at:
                    return await self._ask(environment, engine, address, started_at)
            except BaseException:
                if self._grant is not None or self._caps is not None:
                    self._settle(self._usage_so_far())
                raise
            finally:
                lane.close(slots)
        raise BranchStopped

    async def _ask(
        self, environment: Environment, engine: Engine, address: str, started_at: float
    ) -> AttemptSucceeded | AttemptFailed:
        """Ask the engine at that address, from that time of the clock on."""
        call, health = self._sent_call(engine.profile), environment.health
        if isinstance(call, AttemptFailed):
            return call
        begun = health.begin_attempt(address)
        if begun is None:
            closed = EngineError(AttemptFailureReason.BREAKER_OPEN, "the provider's breaker is open")
            return self._failed(closed, started_at)
        answer: Reply | EngineError | None = None
        try:
            is_streamed = self._open_stream(environment, call)
            if engine.profile.propagates_trace:
                call = self._traced(call)
            answer = self._read(call, await engine.attempt(call, self._stream, stream=is_streamed))
        except EngineError as error:
            answer = error
        finally:
            health.end_attempt(address, begun, answer, self._execution.header.execution_id)
        if isinstance(answer, EngineError):
            return self._failed(answer, started_at)
        return AttemptSucceeded(answer, (environment.clock.monotonic() - started_at) * 1000)

    def asked(self) -> JsonValue:
        """Return what the inference asks."""
        return self.inference.asked()

    def start_again(self, runs: int) -> tuple[Event, ...]:
        """Return the retraction of the interrupted run, and the start of another one in a segment of its own."""
        retracted = InferenceRetracted(self.segment)
        self._walk.segment = self._stream.segment = segment_of(self.key, runs + 1)
        self.start_event = replace(self.start_event, segment=self.segment)
        return retracted, self.start_event

    def cancelled(self, ran_ms: float) -> AttemptCancelled:
        """Return what had been used and streamed; the usage is estimated unless the provider reported it."""
        return AttemptCancelled(ran_ms, self._usage_so_far(), self._stream.stored_text)

    def end_events(self, outcome: Outcome) -> tuple[Event, ...]:
        """Return the end of the inference and, after a cancellation, the abort of its fallback machine."""
        calls: tuple[ToolCallId, ...] = ()
        match outcome:
            case AttemptSucceeded(reply):
                usage, reason = reply.usage, _FINISH_REASONS.get(reply.finish_reason, "stop")
                calls = tuple([call.id for call in reply.tool_calls])
            case AttemptFailed():
                is_filtered = outcome.reason is AttemptFailureReason.CONTENT_FILTERED
                usage, reason = outcome.usage, "content_filter" if is_filtered else "error"
            case AttemptCancelled():
                usage, reason = outcome.usage, "cancelled"
            case _:
                raise AssertionError("no outcome of an attempt")
        prices = self._prices
        end = InferenceEnd(
            segment=self._stream.segment,
            duration_ms=outcome.duration_ms,
            tokens_in=usage.input_tokens,
            tokens_out=usage.output_tokens,
            finish_reason=reason,
            tool_call_count=len(calls),
            tool_call_ids=calls,
            tokens_cached=usage.cached_tokens,
            tokens_cache_written=usage.cache_write_tokens,
            tokens_reasoning=usage.reasoning_tokens,
            cost=None if prices is None else prices.cost_of(usage),
        )
        return (end, self._walk.abort()) if isinstance(outcome, AttemptCancelled) else (end,)

    def account(self, step: RecordedStep) -> None:
        """Add the attempt to the ledger."""
        self._execution.ledger.record_attempt(
            step,
            self.candidate,
            self._prices,
            is_fallback=self._walk.attempt_number > 0,
            step_name=self.correlation.step_name,
            agent=self.inference.settings.caller.agent,
            is_side_question=self.inference.settings.is_side_question,
        )
        if not self._execution.recorder.is_read_only:
            self._count_usage(step)

    def streamed_deltas(self) -> list[LiveDelta]:
        """Return one delta with all the text that was published."""
        text = self._stream.partial_text
        if self._stream.publish is None or not text or self._execution.branches.is_withheld:
            return []
        delta = InferenceDelta(self.segment, 0, text=text)
        return [LiveDelta(self._execution.environment.clock.now(), self.correlation, delta)]

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Wait in the lane; give the reservation back if the attempt does not get its turn."""
        try:
            with self._execution.branches.waiting(self):
                yield
        except BaseException:
            self._settle(NO_USAGE, was_sent=False)
            raise

    def _end_unsent(self, refusal: AttemptFailed) -> AttemptFailed:
        """Start and end the attempt, for which nothing is sent."""
        self._settle(NO_USAGE, was_sent=False)
        with self._execution.branches.running(self):
            return refusal

    async def _take_room(
        self, room: Room, lane: Lane, reserve: Callable[[], Awaitable[None]] | None
    ) -> AttemptFailed | None:
        """Take what the limits of the caller and the caps of the engine ask for; the refusal is the outcome."""
        if reserve is not None:
            await reserve()
            if isinstance(self._grant, AttemptFailed):
                return self._grant
        taken = await take_room(room, lane, self._execution, self._size(), follows=bool(self._walk.other_deployments))
        self._caps = None if isinstance(taken, AttemptFailed) else taken
        return taken if isinstance(taken, AttemptFailed) else None

    def _size(self) -> CallSize:
        """Return what the attempt may take at most."""
        profile = self._profile()
        call = prepare_call(self.inference.call, profile, self.candidate.way, self._execution.facts.prompts)
        return call_size(call, profile, self._prices or FREE, self._counter)

    async def _reserve(self) -> None:
        """Reserve what the attempt may take at most; a refusal is the outcome.

        The first attempt of an execution whose client waits for it does not wait.
        """
        execution, size = self._execution, self._size()
        header, bounds = execution.header, execution.header.bounds
        assert execution.facts.quota is not None  # noqa: S101 - there is none to reserve from otherwise
        usage = execution.environment.usage.of(header.execution_id)
        is_first = usage is not None and not usage.has_reserved and not execution.recorder.cursor.has_history
        if usage is not None:
            usage.has_reserved = True
        try:
            self._grant = await execution.facts.quota.reserve(
                size.tokens if bounds.tokens is None else min(size.tokens, bounds.tokens),
                size.cost if bounds.cost is None else min(size.cost, bounds.cost),
                patience=None if is_first and not header.request.background else self._patience,
            )
        except Failure as refusal:
            self._grant = refused(_LIMIT_REASONS[type(refusal)], refusal)

    def _patience(self) -> float:
        return self._execution.seconds_left

    def _settle(self, usage: TokenUsage, *, was_sent: bool = True) -> None:
        """Spend what was used instead of the reservations, once."""
        cost = (self._prices or FREE).cost_of(usage)
        if isinstance(self._grant, Reservation):
            self._grant.settle(usage.total_tokens, cost)
            self._grant = None
        if self._caps is not None:
            self._caps.settle(usage.total_tokens, cost, was_sent=was_sent)
            self._caps = None

    def _count_usage(self, step: RecordedStep) -> None:
        """Count what the attempt took as usage of the caller, unless it was inherited from another execution."""
        outcome, header = step.outcome, self._execution.header
        assert isinstance(outcome, AttemptSucceeded | AttemptFailed | AttemptCancelled)  # noqa: S101 - of an attempt
        used = outcome.reply.usage if isinstance(outcome, AttemptSucceeded) else outcome.usage
        if self._grant is not None or self._caps is not None:
            self._settle(used, was_sent=not (isinstance(outcome, AttemptFailed) and outcome.reason in UNSENT))
        counted = self._execution.environment.usage.of(header.execution_id)
        if counted is None or used is NO_USAGE or (header.fork is not None and header.fork.inherits(step.key)):
            return
        counted.add(
            self.candidate.model,
            step.at,
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            cost=0.0 if self._prices is None else self._prices.cost_of(used),
        )

    def _sent_call(self, profile: EngineProfile) -> EngineCall | AttemptFailed:
        """Return the call as this engine is sent it; the refusal if limits or the budget do not allow it."""
        if isinstance(self._grant, AttemptFailed):
            return self._grant
        execution, budget = self._execution, self._execution.ledger.budget
        call = prepare_call(self.inference.call, profile, self.candidate.way, execution.facts.prompts)
        if execution.header.request.output.reasoning and not self.inference.settings.is_side_question:
            call = replace(call, shows_reasoning=True)
        if self._walk.drops_kept:
            call = without_kept(call)
        if profile.caches_prompts:
            key = prompt_cache_key(execution.header, self.inference.settings, self._walk.setup, call.messages)
            call = replace(call, cache_key=key)
        try:
            return call if budget is None else budget.grant(self.key, call, profile, self._counter)
        except OrchestrationFailure as refusal:
            return refused(AttemptFailureReason.OVER_BUDGET, refusal)

    def _open_stream(self, environment: Environment, call: EngineCall) -> bool:
        """Return whether the engine is asked for a stream: events of the execution are read as they come."""
        execution_id = self._execution.header.execution_id
        feed, is_shown = environment.event_feed, not self.inference.settings.is_side_question
        is_streamed = is_shown and feed.has_subscribers(execution_id)
        if environment.call_observer is not None:
            environment.call_observer.called(execution_id, self.segment, call.hints, is_streamed=is_streamed)
        if is_streamed:
            self._stream.publish = partial(environment.journal.publish_delta, execution_id, self.correlation)
            if self._execution.branches.input_gate is not None:
                self._stream.held = HeldDeltas(self._execution.branches.input_gate, self._stream.publish)
                self._stream.publish = self._stream.held.publish
        return is_streamed

    def _traced(self, call: EngineCall) -> EngineCall:
        """Return the call with the span of this attempt as its parent."""
        ids, is_sampled = self.correlation, self._execution.header.sampled
        return replace(call, traceparent=f"00-{ids.trace_id}-{ids.span_id}-{'01' if is_sampled else '00'}")

    def _read(self, call: EngineCall, reply: Reply) -> Reply:
        """Return the reply, with an estimated usage if the provider reports none. Raises: EngineError."""
        provider = self.candidate.provider
        if self.candidate.way is not None:
            reply = submitted_reply(reply, self.candidate.way)
        reply = normalise_reply(reply, self.inference.conversation.messages, self.key)
        if self._walk.drops_kept:
            reply = replace(reply, withheld=(*reply.withheld, f"messages.kept.{provider}"))
        if reply.usage.total_tokens or reply.usage != NO_USAGE:
            self._learn(call, reply)
            return reply
        counter = self._counter
        written = counter.message(reply.message(provider)) + counter.text(reply.reasoning)
        return replace(reply, usage=self._estimated_usage(written))

    def _learn(self, call: EngineCall, reply: Reply) -> None:
        """Let the estimator learn from the usage, unless it is an estimate itself."""
        usage, inference = reply.usage, self.inference
        if usage.estimated:
            return
        is_whole = call.messages is inference.call.messages and call.tools is inference.call.tools
        estimated = estimate_exchange(call, reply, inference.estimated if is_whole else None)
        if estimated is not None:
            environment, tenant = self._execution.environment, self._execution.header.tenant
            reported = usage.input_tokens + usage.output_tokens
            environment.token_estimator.learn(tenant, self.candidate.model, estimated=estimated, reported=reported)

    @property
    def _counter(self) -> TokenCounter:
        """The counter for the candidate's model."""
        execution = self._execution
        return execution.environment.token_estimator.counter(execution.header.tenant, self.candidate.model)

    def _failed(self, error: EngineError, started_at: float) -> AttemptFailed:
        stream = self._stream
        delay, leaves_engine = next_attempt(error, self._execution, self._walk)
        text = stream.stored_text
        return AttemptFailed(
            reason=error.reason,
            message=error.message,
            wait=delay,
            retry_after=error.retry_after,
            streamed=stream.has_published and (stream.held is None or stream.held.were_published()),
            partial=text,
            usage=self._usage_so_far() if text or stream.usage_so_far else NO_USAGE,
            duration_ms=(self._execution.environment.clock.monotonic() - started_at) * 1000,
            leaves_engine=leaves_engine,
        )

    def _usage_so_far(self) -> TokenUsage:
        if self._stream.usage_so_far is not None:
            return self._stream.usage_so_far
        return self._estimated_usage(self._stream.count_tokens(self._counter))

    def _estimated_usage(self, written: int) -> TokenUsage:
        """Estimate the usage with so many tokens written; no more than the context window holds."""
        window = self._profile().context_window
        read = min(window, count_tokens(self.inference.call, self._counter))
        written = min(written, window - read)
        return TokenUsage(input_tokens=read, output_tokens=written, total_tokens=read + written, estimated=True)

    def _profile(self) -> EngineProfile:
        return self._execution.environment.catalogue.endpoints[self.candidate.address].profile
