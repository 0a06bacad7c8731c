"""One attempt on one provider: what it is asked, what arrives of the answer, and what it comes to."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b

from app.capabilities.models.context_window import count_tokens
from app.capabilities.models.format_enforcement import prepare_call, submitted_reply
from app.capabilities.models.replies import normalise_reply
from app.capabilities.output.partial import PartialAnswer
from app.domain.contract.messages import Message
from app.domain.contract.request import ExecutionHints
from app.domain.contract.response import NO_USAGE, TokenUsage
from app.domain.failures import OrchestrationFailure
from app.domain.fingerprints import span_id
from app.domain.frozen import dataclass
from app.domain.ids import ExecutionId
from app.domain.journal.events import CorrelationContext, InferenceDelta, LiveDelta
from app.domain.journal.outcomes import AttemptCancelled, AttemptFailed, AttemptSucceeded, Candidate
from app.domain.model_call import NO_RESPONSE_FORMAT, AttemptFailureReason, EngineCall, Reply, ResponseFormat
from app.domain.tools import ToolDefinition
from app.orchestration.execution.environment import Environment
from app.orchestration.execution.execution import Execution
from app.ports.model import EngineError, EngineProfile


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """What one inference is about.

    `conversation` is the branch's own and is cut in place; `turn_starts` is the index at which what tool rounds added
    begins. `fingerprint` covers what was added since the branch's last inference, the hints, and the `form` that the
    answer must have. `tools` are the names of those that may be offered, `model` is the route or engine that is asked,
    and `replica` the number of who asks where several do. An answer that is asked for `aside` is no part of the
    response, so nobody watches it. After an answer that was `rejected` its provider need not be the first to be asked.
    `context` is what is told with it.
    """

    conversation: list[Message]
    turn_starts: int
    hints: ExecutionHints
    last_provider: str
    fingerprint: str
    correlation: CorrelationContext
    tools: Sequence[str]
    response_format: ResponseFormat | None = None
    model: str | None = None
    replica: int | None = None
    is_side_question: bool = False
    previous_rejected: bool = False

    def engine_call(self, tools: Sequence[ToolDefinition]) -> EngineCall:
        """What is asked, with these tools."""
        form = self.response_format or NO_RESPONSE_FORMAT
        return EngineCall(self.conversation, tools, self.hints, form.schema, form.grammar)


class ProviderAttempt:
    """One attempt as it is acted; also its `Progress`, which publishes what arrives to whoever is watching."""

    def __init__(
        self,
        execution: Execution,
        candidate: Candidate,
        asked: InferenceRequest,
        tools: Callable[[], Sequence[ToolDefinition]],
        key: str,
    ) -> None:
        self.correlation = asked.correlation.child(span_id(execution.header.execution_id, key))
        self._execution = execution
        self._candidate = candidate
        self._asked = asked
        self._tools = tools
        self._key = key
        self._sent = asked.engine_call(())
        self._tell: Callable[[InferenceDelta], None] | None = None
        self._value = (
            PartialAnswer() if asked.response_format is not None and asked.response_format.schema is not None else None
        )
        self._text: list[str] = []
        self._text_size = 0
        self._reasoning_size = 0
        self._used: TokenUsage | None = None
        self._began_at = 0.0

    def text(self, piece: str) -> None:
        """A piece of the answer arrived."""
        if self._tell is not None:
            self._tell(InferenceDelta(self._key, self._text_size, text=piece))
        self._text.append(piece)
        self._text_size += len(piece)
        if self._value is not None and self._tell is not None:
            value = self._value.add(piece)
            if value is not None:
                self._tell(InferenceDelta(self._key, self._text_size, value=value))

    def reasoning(self, piece: str) -> None:
        """A piece of the reasoning arrived."""
        if self._tell is not None:
            self._tell(InferenceDelta(self._key, self._reasoning_size, reasoning=piece))
        self._reasoning_size += len(piece)

    def streamed_so_far(self) -> list[LiveDelta]:
        """All that was published of it, for a reader who joins in its midst."""
        if self._tell is None or not self._text:
            return []
        said = InferenceDelta(self._key, 0, text="".join(self._text))
        return [LiveDelta(self._execution.environment.clock.now(), self.correlation, said)]

    def usage(self, usage: TokenUsage) -> None:
        """The provider said what it has used so far."""
        self._used = usage

    def cancelled_outcome(self) -> AttemptCancelled:
        """What had been used and streamed when the attempt was cancelled; estimated unless the provider said it."""
        return AttemptCancelled(self._ran_ms(), self._used_so_far(), "".join(self._text))

    async def run(self, retries_spent: int) -> AttemptSucceeded | AttemptFailed:
        """Asks the engine once; a fault is an outcome, with the wait it was granted."""
        world = self._execution.environment
        self._began_at = world.clock.monotonic()
        try:
            self._sent = self._granted(world)
        except OrchestrationFailure as refused:
            return _over_budget(refused)
        if not world.health.begin_attempt(self._candidate.provider):
            return self._failed(
                EngineError(AttemptFailureReason.BREAKER_OPEN, "the provider's breaker is open"), retries_spent
            )
        answer: Reply | EngineError | None = None
        self._execution.live_attempts[self._key] = self.streamed_so_far
        try:
            answer = await self._ask(world)
        finally:
            del self._execution.live_attempts[self._key]
            world.health.end_attempt(self._candidate.provider, answer)
        return (
            self._failed(answer, retries_spent)
            if isinstance(answer, EngineError)
            else AttemptSucceeded(answer, self._ran_ms())
        )

    def _granted(self, world: Environment) -> EngineCall:
        """What the engine is asked. Raises: OrchestrationFailure when that is more than the budget leaves."""
        profile, budget = self._profile, self._execution.ledger.budget
        call = prepare_call(self._asked.engine_call(self._tools()), profile, self._candidate.way)
        return call if budget is None else budget.grant(self._key, call, profile, world.token_counter)

    async def _ask(self, world: Environment) -> Reply | EngineError:
        execution_id = self._execution.header.execution_id
        watched = not self._asked.is_side_question and world.event_feed.has_subscribers(execution_id)
        self._tell = partial(world.journal.publish_delta, execution_id, self.correlation) if watched else None
        try:
            reply = await world.catalogue.engines[self._candidate.provider].attempt(self._sent, self, stream=watched)
            reply = normalise_reply(submitted_reply(reply, self._candidate.way), self._asked.conversation, self._key)
        except EngineError as fault:
            return fault
        uncounted = not reply.usage.total_tokens and reply.usage == NO_USAGE
        return replace(reply, usage=self._estimate(self._written(reply))) if uncounted else reply

    def _written(self, reply: Reply) -> int:
        counter = self._execution.environment.token_counter
        return counter.messages([reply.message(self._candidate.provider)]) + counter.text(reply.reasoning)

    def _failed(self, fault: EngineError, retries_spent: int) -> AttemptFailed:
        wait = self._execution.environment.health.retry_delay(
            self._candidate.provider,
            fault,
            spent=retries_spent,
            seconds_left=self._execution.seconds_left,
            jitter=jitter(self._execution.header.execution_id, self._key),
        )
        return AttemptFailed(
            reason=fault.reason,
            message=fault.message,
            wait=wait,
            retry_after=fault.retry_after,
            streamed=self._tell is not None and bool(self._text_size or self._reasoning_size),
            partial="".join(self._text),
            usage=self._used_so_far() if self._text or self._used else NO_USAGE,
            duration_ms=self._ran_ms(),
        )

    def _ran_ms(self) -> float:
        return (self._execution.environment.clock.monotonic() - self._began_at) * 1000

    def _used_so_far(self) -> TokenUsage:
        return self._used or self._estimate(self._execution.environment.token_counter.text("".join(self._text)))

    def _estimate(self, written: int) -> TokenUsage:
        """What was used, with so many tokens written; no more than the context window holds."""
        window = self._profile.context_window
        read = min(window, count_tokens(self._sent, self._execution.environment.token_counter))
        written = min(written, window - read)
        return TokenUsage(input_tokens=read, output_tokens=written, total_tokens=read + written, estimated=True)

    @property
    def _profile(self) -> EngineProfile:
        return self._execution.environment.catalogue.engines[self._candidate.provider].profile


def jitter(execution_id: ExecutionId, key: str) -> float:
    """A number in [0, 1) that belongs to that step and no other."""
    return int.from_bytes(blake2b(f"{execution_id}:{key}".encode(), digest_size=7).digest()) / 2**56


def _over_budget(refused: OrchestrationFailure) -> AttemptFailed:
    return AttemptFailed(
        reason=AttemptFailureReason.OVER_BUDGET,
        message=refused.message,
        wait=None,
        retry_after=None,
        streamed=False,
        partial="",
        usage=NO_USAGE,
        duration_ms=0.0,
        details=refused.details,
    )
