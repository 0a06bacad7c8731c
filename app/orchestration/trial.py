"""One attempt on one provider: what it is asked, what arrives of the answer, and what it comes to."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b

from app.capabilities.constraint.partial import PartialAnswer
from app.capabilities.context import tokens_of
from app.capabilities.forming import handed_in, sent
from app.capabilities.replies import usable
from app.domain.boundary import ExecutionHints, TokenUsage
from app.domain.digests import span_id
from app.domain.effects import (
    NO_FORM,
    NO_USAGE,
    AttemptFailed,
    Candidate,
    CutOff,
    EngineCall,
    Form,
    Reason,
    Replied,
    Reply,
)
from app.domain.events import CorrelationContext, InferenceDelta, Live
from app.domain.failures import OrchestrationFailure
from app.domain.frozen import dataclass
from app.domain.messages import Message
from app.domain.tools import ToolDefinition
from app.orchestration.execution import Execution
from app.orchestration.world import World
from app.ports import EngineFault, EngineProfile


@dataclass(frozen=True, slots=True)
class Asked:
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
    context: CorrelationContext
    tools: Sequence[str]
    form: Form | None = None
    model: str | None = None
    replica: int | None = None
    aside: bool = False
    rejected: bool = False

    def call(self, tools: Sequence[ToolDefinition]) -> EngineCall:
        """What is asked, with these tools."""
        form = self.form or NO_FORM
        return EngineCall(self.conversation, tools, self.hints, form.schema, form.grammar)


class Trial:
    """One attempt as it is acted; also its `Progress`, which publishes what arrives to whoever is watching."""

    def __init__(
        self,
        execution: Execution,
        candidate: Candidate,
        asked: Asked,
        tools: Callable[[], Sequence[ToolDefinition]],
        key: str,
    ) -> None:
        self.correlation = asked.context.below(span_id(execution.header.execution_id, key))
        self._execution = execution
        self._candidate = candidate
        self._asked = asked
        self._tools = tools
        self._key = key
        self._sent = asked.call(())
        self._tell: Callable[[InferenceDelta], None] | None = None
        self._value = PartialAnswer() if asked.form is not None and asked.form.schema is not None else None
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

    def so_far(self) -> list[Live]:
        """All that was published of it, for a reader who joins in its midst."""
        if self._tell is None or not self._text:
            return []
        said = InferenceDelta(self._key, 0, text="".join(self._text))
        return [Live(self._execution.world.clock.now(), self.correlation, said)]

    def usage(self, usage: TokenUsage) -> None:
        """The provider said what it has used so far."""
        self._used = usage

    def cut_off(self) -> CutOff:
        """What had been used and streamed when the attempt was cancelled; estimated unless the provider said it."""
        return CutOff(self._ran_ms(), self._used_so_far(), "".join(self._text))

    async def act(self, retries_spent: int) -> Replied | AttemptFailed:
        """Asks the engine once; a fault is an outcome, with the wait it was granted."""
        world = self._execution.world
        self._began_at = world.clock.monotonic()
        try:
            self._sent = self._granted(world)
        except OrchestrationFailure as refused:
            return _over_budget(refused)
        if not world.health.enter(self._candidate.provider):
            return self._failed(EngineFault(Reason.BREAKER_OPEN, "the provider's breaker is open"), retries_spent)
        answer: Reply | EngineFault | None = None
        self._execution.speaking[self._key] = self.so_far
        try:
            answer = await self._ask(world)
        finally:
            del self._execution.speaking[self._key]
            world.health.leave(self._candidate.provider, answer)
        return (
            self._failed(answer, retries_spent) if isinstance(answer, EngineFault) else Replied(answer, self._ran_ms())
        )

    def _granted(self, world: World) -> EngineCall:
        """What the engine is asked. Raises: OrchestrationFailure when that is more than the budget leaves."""
        profile, budget = self._profile, self._execution.tally.budget
        call = sent(self._asked.call(self._tools()), profile, self._candidate.way)
        return call if budget is None else budget.grant(self._key, call, profile, world.counter)

    async def _ask(self, world: World) -> Reply | EngineFault:
        execution_id = self._execution.header.execution_id
        watched = not self._asked.aside and world.watchers.watched(execution_id)
        self._tell = partial(world.journal.delta, execution_id, self.correlation) if watched else None
        try:
            reply = await world.catalogue.engines[self._candidate.provider].attempt(self._sent, self, stream=watched)
            reply = usable(handed_in(reply, self._candidate.way), self._asked.conversation, self._key)
        except EngineFault as fault:
            return fault
        uncounted = not reply.usage.total_tokens and reply.usage == NO_USAGE
        return replace(reply, usage=self._estimate(self._written(reply))) if uncounted else reply

    def _written(self, reply: Reply) -> int:
        counter = self._execution.world.counter
        return counter.messages([reply.message(self._candidate.provider)]) + counter.text(reply.reasoning)

    def _failed(self, fault: EngineFault, retries_spent: int) -> AttemptFailed:
        wait = self._execution.world.health.grant(
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
        return (self._execution.world.clock.monotonic() - self._began_at) * 1000

    def _used_so_far(self) -> TokenUsage:
        return self._used or self._estimate(self._execution.world.counter.text("".join(self._text)))

    def _estimate(self, written: int) -> TokenUsage:
        """What was used, with so many tokens written; no more than the context window holds."""
        window = self._profile.context_window
        read = min(window, tokens_of(self._sent, self._execution.world.counter))
        written = min(written, window - read)
        return TokenUsage(input_tokens=read, output_tokens=written, total_tokens=read + written, estimated=True)

    @property
    def _profile(self) -> EngineProfile:
        return self._execution.world.catalogue.engines[self._candidate.provider].profile


def jitter(execution_id: str, key: str) -> float:
    """A number in [0, 1) that belongs to that step and no other."""
    return int.from_bytes(blake2b(f"{execution_id}:{key}".encode(), digest_size=7).digest()) / 2**56


def _over_budget(refused: OrchestrationFailure) -> AttemptFailed:
    return AttemptFailed(
        reason=Reason.OVER_BUDGET,
        message=refused.message,
        wait=None,
        retry_after=None,
        streamed=False,
        partial="",
        usage=NO_USAGE,
        duration_ms=0.0,
        details=refused.details,
    )
