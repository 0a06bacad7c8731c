"""Provider attempt: one call of an engine, what it streams, and its outcome."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from types import MappingProxyType
from typing import Final

from pydantic import JsonValue

from portico.capabilities.context.redaction import Redactor
from portico.capabilities.limits.quotas import Quota, Reservation
from portico.capabilities.models.context_window import count_tokens
from portico.capabilities.models.failover import FailoverWalk
from portico.capabilities.models.format_enforcement import prepare_call, submit_description, submitted_reply
from portico.capabilities.models.replies import normalise_reply
from portico.capabilities.models.tokens import estimate_exchange
from portico.capabilities.output.partial import PartialAnswer
from portico.domain.access.tool_policy import ToolCaller
from portico.domain.contract.messages import Message
from portico.domain.contract.request import ExecutionHints
from portico.domain.contract.response import NO_USAGE, TokenUsage, public_message
from portico.domain.failures import Failure, OrchestrationFailure, RequestFailure, StorageFailure
from portico.domain.fingerprints import span_id
from portico.domain.ids import ExecutionId, SpanId, ToolCallId
from portico.domain.journal.events import (
    CorrelationContext,
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
    Outcome,
    RecordedStep,
    usage_of,
)
from portico.domain.journal.step_key import segment_of
from portico.domain.model_call import NO_RESPONSE_FORMAT, AttemptFailureReason, EngineCall, Reply, ResponseFormat
from portico.domain.token_prices import FREE
from portico.domain.tools import OfferedTool, ToolDefinition
from portico.domain.value import value
from portico.orchestration.execution.branches import InputGate
from portico.orchestration.execution.effect import Effect
from portico.orchestration.execution.environment import Environment
from portico.orchestration.execution.execution import Execution
from portico.ports.model import EngineError, EngineProfile, TokenCounter

STORED_CHARACTERS: Final = 2**20
_FINISH_REASONS: Mapping[str, FinishReason] = MappingProxyType({"stop": "stop", "tool": "tool", "length": "length"})

_LIMIT_REASONS: Mapping[type[Failure], AttemptFailureReason] = MappingProxyType(
    {
        RequestFailure: AttemptFailureReason.OVER_LIMIT,
        OrchestrationFailure: AttemptFailureReason.OVER_BUDGET,
        StorageFailure: AttemptFailureReason.LIMIT_UNKNOWN,
    }
)


@value
class InferenceRequest:
    """Request of one inference.

    `conversation` is the branch's own and is cut in place; `added` is its end, new since the last inference, and
    `turn_start` the index of the first message that tool rounds added. `fingerprint` covers what was added, the hints,
    and the response format. `tools` names those that may be offered, `model` the route or engine, `replica` the number
    of the branch where several answer one question. A side question is no part of the response, so it is not streamed.
    If the `previous_rejected` answer came from one provider of a rerouting route, the next provider is asked first.
    """

    conversation: list[Message]
    added: Sequence[Message]
    turn_start: int
    hints: ExecutionHints
    last_provider: str
    fingerprint: str
    correlation: CorrelationContext
    tools: Sequence[str]
    submit: ToolDefinition | None = None
    response_format: ResponseFormat | None = None
    model: str | None = None
    replica: int | None = None
    is_side_question: bool = False
    previous_rejected: bool = False
    caused_by: SpanId | None = None
    """The span of the attempt whose tool round led here."""
    redacted: int = 0
    """Number of the first messages of the conversation that the model gets redacted."""
    caller: ToolCaller | None = None
    """The caller to whom policy offers tools; None outside of policy."""

    def asked(self) -> JsonValue:
        """Return the messages that are new since the last inference of the branch, the route, and the hints."""
        return {
            "messages": [public_message(message) for message in self.added],
            "model": self.model,
            "hints": self.hints.model_dump(mode="json", exclude_defaults=True),
        }

    def offer(
        self, environment: Environment, names: Sequence[str]
    ) -> tuple[tuple[OfferedTool, ...], list[ToolDefinition]]:
        """Return those of the tools that are available now, and the tool with which the model hands in its answer.

        Policy is asked anew. A replica is offered no tool that acts or waits for a person.
        """
        registry, caller = environment.tool_registry, self.caller
        if caller is not None and not registry.policy.is_empty:
            names = [name for name in names if registry.policy.offers(name, caller)]
        if self.replica is not None:
            names = [name for name in names if registry.may_replicate(name)]
        tools, definitions = registry.offer(names)
        if self.submit is None:
            return tools, definitions
        description, submit = submit_description(environment.prompts), self.submit
        if description != submit.description:
            submit = replace(submit, description=description)
        return (*tools, OfferedTool(submit.name, unsafe=False)), [*definitions, submit]

    def engine_call(self, tools: Sequence[ToolDefinition]) -> EngineCall:
        """Return the call with these tools."""
        response_format = self.response_format or NO_RESPONSE_FORMAT
        conversation = self.conversation
        if self.redacted:
            begun, own = conversation[: self.redacted], conversation[self.redacted :]
            conversation = [*Redactor().messages(begun), *own]
        return EngineCall(conversation, tools, self.hints, response_format.schema, response_format.grammar)


@value
class PreparedCall:
    """The call of a prepared inference, and its estimated tokens without correction; None if they were not counted."""

    call: EngineCall
    estimated: float | None

    def estimate_of(self, sent: EngineCall) -> float | None:
        """Return the estimate of what an engine is sent of the call; None if that differs."""
        return self.estimated if sent.messages is self.call.messages and sent.tools is self.call.tools else None


class HeldDeltas:
    """Deltas of one attempt, which are held until the judges of the input have passed it."""

    def __init__(self, gate: InputGate, publish: Callable[[InferenceDelta], None]) -> None:
        self._gate = gate
        self._publish = publish
        self._is_void = False

    def publish(self, delta: InferenceDelta) -> None:
        """Publish the delta, now or when the gate opens."""
        self._gate.hold(partial(self._publish_valid, delta))

    def were_published(self) -> bool:
        """Return True if deltas of the failed attempt were published; those that are still held never will be."""
        self._is_void = not self._gate.is_open
        return self._gate.is_open

    def _publish_valid(self, delta: InferenceDelta) -> None:
        if not self._is_void:
            self._publish(delta)


class AttemptStream:
    """Stream of one attempt: what has arrived of it so far.

    Implements `ports.model.Progress`. Deltas are published once `publish` is set; with `has_schema` the value that the
    text makes so far is published, too.
    """

    def __init__(self, segment: str, *, has_schema: bool) -> None:
        self.segment = segment
        self.publish: Callable[[InferenceDelta], None] | None = None
        self.held: HeldDeltas | None = None
        """The deltas that wait for the judges of the input, if there are any."""
        self.usage_so_far: TokenUsage | None = None
        self._value = PartialAnswer() if has_schema else None
        self._pieces: list[str] = []
        self._text_size = 0
        self._reasoning_size = 0

    @property
    def partial_text(self) -> str:
        """The text so far."""
        return "".join(self._pieces)

    @property
    def stored_text(self) -> str:
        """The part of the text that is stored if the attempt does not succeed: all of it unless it is very long."""
        return self.partial_text[:STORED_CHARACTERS]

    def count_tokens(self, counter: TokenCounter) -> int:
        """Estimate the tokens of the text so far."""
        text = self.stored_text
        tokens = counter.text(text)
        return tokens if len(text) == self._text_size else tokens * self._text_size // len(text)

    @property
    def has_published(self) -> bool:
        """True once a delta was published."""
        return self.publish is not None and bool(self._text_size or self._reasoning_size)

    def text(self, piece: str) -> None:
        """Take a piece of the answer."""
        if self.publish is not None:
            self.publish(InferenceDelta(self.segment, self._text_size, text=piece))
        self._pieces.append(piece)
        self._text_size += len(piece)
        if self._value is not None and self.publish is not None:
            value = self._value.add(piece)
            if value is not None:
                self.publish(InferenceDelta(self.segment, self._text_size, value=value))

    def reasoning(self, piece: str) -> None:
        """Take a piece of the reasoning."""
        if self.publish is not None:
            self.publish(InferenceDelta(self.segment, self._reasoning_size, reasoning=piece))
        self._reasoning_size += len(piece)

    def usage(self, usage: TokenUsage) -> None:
        """Take the usage that the provider reports so far."""
        self.usage_so_far = usage


class ProviderAttempt(Effect):
    """One attempt of an inference on one candidate.

    `prepared` has the tools that are offered; without it, they are looked up when the attempt runs.
    """

    start_event: InferenceStart

    def __init__(
        self,
        execution: Execution,
        request: InferenceRequest,
        candidate: Candidate,
        walk: FailoverWalk,
        *,
        prepared: PreparedCall | None,
    ) -> None:
        response_format = request.response_format or NO_RESPONSE_FORMAT
        self.key = walk.attempt_key
        self.fingerprint = candidate.fingerprint
        self.correlation = request.correlation.child(
            span_id(execution.header.execution_id, self.key), caused_by=request.caused_by
        )
        self._execution = execution
        self._request = request
        self._candidate = candidate
        self._walk = walk
        self._prepared = prepared
        self._started_at: float | None = None
        self._grant: Reservation | AttemptFailed | None = None
        if execution.recorder.has_history:
            for earlier in execution.recorder.cursor.starts(self.key):
                if isinstance(earlier, InferenceStart):
                    walk.segment = earlier.segment
        self._stream = AttemptStream(walk.segment, has_schema=response_format.schema is not None)
        self.start_event = InferenceStart(
            segment=walk.segment,
            message_count=len(request.conversation),
            tool_defs_count=len(walk.setup.tools),
            schema_present=response_format.schema is not None,
            grammar_present=response_format.grammar is not None,
            temperature=request.hints.temperature,
            provider=candidate.provider,
            model=candidate.model,
            replica=request.replica,
        )

    @property
    def provider(self) -> str:
        return self._candidate.provider

    @property
    def segment(self) -> str:
        """The name of this run in events."""
        return self._stream.segment

    async def run(self, environment: Environment) -> AttemptSucceeded | AttemptFailed:
        """Ask the engine once. An engine's error is an outcome, with the delay that was granted before a retry."""
        self._started_at = environment.clock.monotonic()
        if isinstance(self._grant, AttemptFailed):
            return self._grant
        try:
            call = self._granted_call(environment)
        except OrchestrationFailure as refusal:
            return _refused(AttemptFailureReason.OVER_BUDGET, refusal)
        self._prepared = PreparedCall(call, None if self._prepared is None else self._prepared.estimate_of(call))
        provider = self._candidate.provider
        period = environment.health.begin_attempt(provider)
        if period is None:
            return self._failed(EngineError(AttemptFailureReason.BREAKER_OPEN, "the provider's breaker is open"))
        answer: Reply | EngineError | None = None
        try:
            answer = await self._ask(environment, call)
        finally:
            environment.health.end_attempt(provider, period, answer)
        if isinstance(answer, EngineError):
            return self._failed(answer)
        return AttemptSucceeded(answer, self._elapsed_ms(environment))

    async def reserve(self, environment: Environment, quota: Quota) -> None:
        """Reserve the estimated input and what may be written, and their price.

        The first attempt of an execution whose client waits for it does not wait.
        """
        execution, profile = self._execution, self._profile(environment)
        usage, bounds = environment.usage.of(execution.header.execution_id), execution.header.bounds
        is_first = usage is not None and not usage.has_reserved and not execution.recorder.has_history
        if usage is not None:
            usage.has_reserved = True
        call = prepare_call(self._sent_call(environment), profile, self._candidate.way, self._execution.prompts)
        read = count_tokens(call, self._counter)
        written = call.hints.max_tokens or profile.response_reserve or profile.context_window
        prices = self._candidate.prices or FREE
        tokens, cost = read + written, read * prices.dearest_input_token + written * prices.output_token
        try:
            self._grant = await quota.reserve(
                tokens if bounds.tokens is None else min(tokens, bounds.tokens),
                cost if bounds.cost is None else min(cost, bounds.cost),
                patience=None if is_first and not execution.header.request.background else self._patience,
            )
        except Failure as refusal:
            self._grant = _refused(_LIMIT_REASONS[type(refusal)], refusal)

    def settle(self) -> None:
        """Give back what is left of the reservation of an attempt that has no outcome."""
        if isinstance(self._grant, Reservation):
            self._settle(NO_USAGE if self._started_at is None else self._usage_so_far())

    def asked(self) -> JsonValue:
        """Return what the inference asks."""
        return self._request.asked()

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
            case AttemptFailed(reason=AttemptFailureReason.CONTENT_FILTERED):
                usage, reason = outcome.usage, "content_filter"
            case AttemptFailed():
                usage, reason = outcome.usage, "error"
            case AttemptCancelled():
                usage, reason = outcome.usage, "cancelled"
            case _:
                raise AssertionError("no outcome of an attempt")
        prices = self._candidate.prices
        end = InferenceEnd(
            segment=self.segment,
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
            self._candidate,
            is_fallback=self._walk.attempt_number > 0,
            step_name=self._request.correlation.step_name,
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

    def _patience(self) -> float:
        return self._execution.seconds_left

    def _settle(self, usage: TokenUsage) -> None:
        """Spend what was used instead of the reservation, once."""
        if isinstance(self._grant, Reservation):
            self._grant.settle(usage.total_tokens, (self._candidate.prices or FREE).cost_of(usage))
            self._grant = None

    def _count_usage(self, step: RecordedStep) -> None:
        """Count what the attempt took as usage of the caller, unless it was inherited from another execution."""
        outcome, header = step.outcome, self._execution.header
        assert isinstance(outcome, AttemptSucceeded | AttemptFailed | AttemptCancelled)  # noqa: S101 - of an attempt
        used = usage_of(outcome)
        self._settle(used)
        counted = self._execution.environment.usage.of(header.execution_id)
        if counted is None or used is NO_USAGE or (header.fork is not None and header.fork.inherits(step.key)):
            return
        counted.add(
            self._candidate.model,
            step.at,
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            cost=(self._candidate.prices or FREE).cost_of(used),
        )

    def _sent_call(self, environment: Environment) -> EngineCall:
        """Return the call with the tools that are offered."""
        if self._prepared is not None:
            return self._prepared.call
        _, definitions = self._request.offer(environment, [tool.name for tool in self._walk.setup.tools])
        return self._request.engine_call(definitions)

    def _granted_call(self, environment: Environment) -> EngineCall:
        """Return the call for this engine. Raises: OrchestrationFailure if the budget does not allow it."""
        profile, budget = self._profile(environment), self._execution.ledger.budget
        call = prepare_call(self._sent_call(environment), profile, self._candidate.way, self._execution.prompts)
        return call if budget is None else budget.grant(self.key, call, profile, self._counter)

    async def _ask(self, environment: Environment, call: EngineCall) -> Reply | EngineError:
        execution_id, provider = self._execution.header.execution_id, self._candidate.provider
        is_streamed = not self._request.is_side_question and environment.event_feed.has_subscribers(execution_id)
        if environment.call_observer is not None:
            environment.call_observer.called(execution_id, self.segment, call.hints, is_streamed=is_streamed)
        if is_streamed:
            self._stream.publish = partial(environment.journal.publish_delta, execution_id, self.correlation)
            if self._execution.branches.input_gate is not None:
                self._stream.held = HeldDeltas(self._execution.branches.input_gate, self._stream.publish)
                self._stream.publish = self._stream.held.publish
        try:
            engine = environment.catalogue.engines[provider]
            if engine.profile.propagates_trace:
                call = replace(call, traceparent=self._traceparent())
            reply = await engine.attempt(call, self._stream, stream=is_streamed)
            reply = submitted_reply(reply, self._candidate.way)
            reply = normalise_reply(reply, self._request.conversation, self.key)
        except EngineError as error:
            return error
        if reply.usage.total_tokens or reply.usage != NO_USAGE:
            self._learn(call, reply)
            return reply
        counter = self._counter
        written = counter.message(reply.message(provider)) + counter.text(reply.reasoning)
        return replace(reply, usage=self._estimated_usage(written))

    def _learn(self, call: EngineCall, reply: Reply) -> None:
        """Let the estimator learn from the usage, unless it is an estimate itself."""
        usage = reply.usage
        if usage.estimated:
            return
        estimated = estimate_exchange(call, reply, None if self._prepared is None else self._prepared.estimated)
        if estimated is not None:
            environment, tenant = self._execution.environment, self._execution.header.tenant
            reported = usage.input_tokens + usage.output_tokens
            environment.token_estimator.learn(tenant, self._candidate.model, estimated=estimated, reported=reported)

    @property
    def _counter(self) -> TokenCounter:
        """The counter for the candidate's model."""
        execution = self._execution
        return execution.environment.token_estimator.counter(execution.header.tenant, self._candidate.model)

    def _traceparent(self) -> str:
        """Return the trace context with the span of this attempt as the parent."""
        ids, is_sampled = self.correlation, self._execution.header.sampled
        return f"00-{ids.trace_id}-{ids.span_id}-{'01' if is_sampled else '00'}"

    def _failed(self, error: EngineError) -> AttemptFailed:
        execution, stream = self._execution, self._stream
        delay = execution.environment.health.retry_delay(
            self._candidate.provider,
            error,
            spent=self._walk.retries_spent,
            seconds_left=execution.seconds_left,
            jitter=jitter(execution.header.execution_id, self.key),
        )
        text = stream.stored_text
        return AttemptFailed(
            reason=error.reason,
            message=error.message,
            wait=delay,
            retry_after=error.retry_after,
            streamed=stream.has_published and (stream.held is None or stream.held.were_published()),
            partial=text,
            usage=self._usage_so_far() if text or stream.usage_so_far else NO_USAGE,
            duration_ms=self._elapsed_ms(execution.environment),
        )

    def _elapsed_ms(self, environment: Environment) -> float:
        return (environment.clock.monotonic() - (self._started_at or 0.0)) * 1000

    def _usage_so_far(self) -> TokenUsage:
        if self._stream.usage_so_far is not None:
            return self._stream.usage_so_far
        return self._estimated_usage(self._stream.count_tokens(self._counter))

    def _estimated_usage(self, written: int) -> TokenUsage:
        """Estimate the usage with so many tokens written; no more than the context window holds."""
        environment = self._execution.environment
        window = self._profile(environment).context_window
        call = self._request.engine_call(()) if self._prepared is None else self._prepared.call
        read = min(window, count_tokens(call, self._counter))
        written = min(written, window - read)
        return TokenUsage(input_tokens=read, output_tokens=written, total_tokens=read + written, estimated=True)

    def _profile(self, environment: Environment) -> EngineProfile:
        return environment.catalogue.engines[self._candidate.provider].profile


def jitter(execution_id: ExecutionId, key: str) -> float:
    """Return a number in [0, 1) that is derived from the step."""
    return int.from_bytes(blake2b(f"{execution_id}:{key}".encode(), digest_size=7).digest()) / 2**56


def _refused(reason: AttemptFailureReason, refusal: Failure) -> AttemptFailed:
    """Return the outcome of an attempt that was refused before anything was sent."""
    return AttemptFailed(
        reason=reason,
        message=refusal.message,
        wait=None,
        retry_after=refusal.retry_after,
        streamed=False,
        partial="",
        usage=NO_USAGE,
        duration_ms=0.0,
        details=refusal.details,
    )
