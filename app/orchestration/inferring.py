"""One inference: what it offers, its attempts under the fallback machine, its deltas."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from types import MappingProxyType

from app.capabilities.adapting import adapted
from app.capabilities.constraint.partial import PartialAnswer
from app.capabilities.context import cut_to_fit, exceeded, measure, room, with_cut
from app.capabilities.failover import decide, transition
from app.capabilities.forming import asked_for, handed_in, way_of
from app.capabilities.inference import candidate
from app.capabilities.replies import usable
from app.domain.boundary import ExecutionHints, TokenUsage
from app.domain.effects import (
    NO_USAGE,
    AttemptFailed,
    Candidate,
    CutOff,
    EngineCall,
    Form,
    Offered,
    Outcome,
    Prepared,
    Reason,
    Refused,
    Replied,
    Reply,
    Slept,
)
from app.domain.events import (
    Event,
    FallbackTransition,
    FinishReason,
    InferenceDelta,
    InferenceEnd,
    InferenceRetracted,
    InferenceStart,
)
from app.domain.fallback import Event as FsmEvent
from app.domain.fallback import FallbackFsm
from app.domain.messages import Message
from app.domain.tools import ToolDefinition
from app.orchestration.execution import Execution
from app.orchestration.leaf import Leaf
from app.ports import Engine, EngineFault

_FINISH: Mapping[str, FinishReason] = MappingProxyType({"stop": "stop", "tool": "tool", "length": "length"})


@dataclass(frozen=True, slots=True)
class Asked:
    """What one inference is about.

    `conversation` is the branch's own and is cut in place; `turn_starts` is the index at which what tool rounds added
    begins. `fingerprint` covers what was added since the branch's last inference, the hints, and the `form` that the
    answer must have. `tools` are the names of those that may be offered, `model` is the route or engine that is asked,
    and `replica` the number of who asks where several do.
    """

    conversation: list[Message]
    turn_starts: int
    hints: ExecutionHints
    last_provider: str
    fingerprint: str
    tools: Sequence[str]
    form: Form | None = None
    model: str | None = None
    replica: int | None = None

    def call(self, tools: Sequence[ToolDefinition]) -> EngineCall:
        """What is asked, with these tools."""
        form = self.form or Form()
        return EngineCall(self.conversation, tools, self.hints, form.schema, form.grammar)


@dataclass(frozen=True, slots=True)
class Inferred:
    """The answer, who gave it in which attempt, and the tools that were offered with it."""

    reply: Reply
    candidate: Candidate
    attempt_key: str
    offered: Offered
    at: float


class Inference:
    """The door of `decide` for one inference; its attempts are `key/0`, `key/1`, …"""

    def __init__(self, execution: Execution, key: str, asked: Asked, prepared: Prepared) -> None:
        self.anchor = key
        self._key = key
        self._execution = execution
        self._asked = asked
        self._prepared = prepared
        self._offered = Offered((), ())
        self._definitions: Sequence[ToolDefinition] | None = None
        self._at = 0.0

    async def run(self) -> Inferred:
        """Offers, then attempts until one provider answers. Raises: InferenceFailure."""
        offer = Leaf(self._key, self._asked.fingerprint, self._execution.root, self._offer, instant=True)
        outcome = (await self._execution.perform(offer)).outcome
        if isinstance(outcome, Refused):
            raise outcome.failure()
        assert isinstance(outcome, Offered)  # noqa: S101 - what an offer can come to
        self._offered = outcome
        if outcome.cut:
            self._asked.conversation[:] = with_cut(self._asked.conversation, outcome.cut)
        max_retries = self._prepared.bounds.max_retries
        who, replied = await decide(self, outcome, max_retries)
        return Inferred(replied.reply, who, self.anchor, outcome, self._at)

    def segment(self, number: int) -> str:
        """The key of that attempt."""
        return f"{self._key}/{number}"

    def moved(self, transition: FallbackTransition) -> None:
        """The machine moved."""
        self._execution.emit(self.anchor, transition)

    def retract(self, number: int) -> None:
        """What that attempt streamed is void."""
        self._execution.emit(self.anchor, InferenceRetracted(self.segment(number)))

    async def attempt(self, candidate: Candidate, number: int, fsm: FallbackFsm) -> Replied | AttemptFailed:
        """One attempt on that provider."""
        key = self.segment(number)
        trial = Trial(self._execution, candidate, self._asked, self._told, key)
        leaf = Leaf(
            key=key,
            fingerprint=f"attempt:{candidate.provider}:{candidate.model}",
            correlation=trial.correlation,
            act=lambda: trial.act(fsm.retries_spent),
            start=self._start(candidate, key),
            end=lambda outcome: _ended(outcome, key, _aborted(outcome, fsm, candidate, key)),
            count=lambda row: self._execution.tally.attempt(row, candidate, number=number),
            cut_off=trial.cut_off,
        )
        row = await self._execution.perform(leaf)
        self.anchor, self._at = key, row.at
        assert isinstance(row.outcome, Replied | AttemptFailed)  # noqa: S101 - what an attempt can come to
        return row.outcome

    async def wait(self, number: int, seconds: float, fsm: FallbackFsm) -> None:
        """The wait that was granted after that attempt."""
        segment = self.segment(number)
        key = f"{segment}/0"

        async def sleep() -> Slept:
            await self._execution.world.clock.sleep(seconds)
            return Slept()

        leaf = Leaf(
            key=key,
            fingerprint=f"wait:{seconds}",
            correlation=self._execution.root,
            act=sleep,
            end=lambda outcome: _aborted(outcome, fsm, None, segment),
            count=lambda row: self._execution.tally.waited(row, seconds),
        )
        await self._execution.perform(leaf)
        self.anchor = key

    def _told(self) -> Sequence[ToolDefinition]:
        """The definitions of the tools that were offered, looked up again when an earlier owner offered them."""
        if self._definitions is None:
            registry = self._execution.world.registry
            self._definitions = registry.offer([tool.name for tool in self._offered.tools])[1]
        return self._definitions

    def _start(self, candidate: Candidate, key: str) -> InferenceStart:
        form = self._asked.form or Form()
        return InferenceStart(
            segment=key,
            message_count=len(self._asked.conversation),
            tool_defs_count=len(self._offered.tools),
            schema_present=form.schema is not None,
            grammar_present=form.grammar is not None,
            temperature=self._asked.hints.temperature,
            provider=candidate.provider,
            model=candidate.model,
            replica=self._asked.replica,
        )

    async def _offer(self) -> Outcome:
        world, asked = self._execution.world, self._asked
        tools, self._definitions = world.registry.offer(asked.tools)
        tools_tokens = world.counter.tools(self._definitions)
        engines = _in_order(world.catalogue.resolve(asked.model), asked.last_provider)
        limit = max(room(engine) for engine in engines)
        parts = measure(asked.conversation, tools_tokens, world.counter)
        cut = cut_to_fit(
            asked.conversation, turn_starts=asked.turn_starts, over=parts.used - limit, counter=world.counter
        )
        if cut:
            parts = measure(with_cut(asked.conversation, cut), tools_tokens, world.counter)
        if parts.used > limit:
            return Refused.by(exceeded(parts, limit))
        fitting = [engine for engine in engines if parts.used <= room(engine)]
        breakers = {engine.profile.name: world.health.breakers[engine.profile.name] for engine in fitting}
        admitted = [engine for engine in fitting if breakers[engine.profile.name].admits]
        closed = [engine for engine in fitting if engine not in admitted]
        call = asked.call(self._definitions)
        return Offered(
            tools=tools,
            candidates=tuple(candidate(engine, call, way_of(call, engine.profile)) for engine in admitted),
            left_out=tuple(candidate(engine, call, None) for engine in closed),
            closed_for=min((breakers[engine.profile.name].seconds_closed for engine in closed), default=0.0),
            cut=cut,
        )


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
        self.correlation = execution.span(key)
        self._execution = execution
        self._candidate = candidate
        self._asked = asked
        self._tools = tools
        self._key = key
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
        if not world.health.enter(self._candidate.provider):
            return self._failed(EngineFault(Reason.BREAKER_OPEN, "the provider's breaker is open"), retries_spent)
        answer: Reply | EngineFault | None = None
        try:
            answer = await self._ask(world.catalogue.engines[self._candidate.provider])
        finally:
            world.health.leave(self._candidate.provider, answer)
        return (
            self._failed(answer, retries_spent) if isinstance(answer, EngineFault) else Replied(answer, self._ran_ms())
        )

    async def _ask(self, engine: Engine) -> Reply | EngineFault:
        world = self._execution.world
        if world.watchers.watched(self._execution.header.execution_id):
            self._tell = self._execution.teller(self.correlation)
        way = self._candidate.way
        call = asked_for(self._asked.call(self._tools()), way)
        try:
            reply = await engine.attempt(adapted(call, engine.profile), self, stream=self._tell is not None)
            return usable(handed_in(reply, way), self._asked.conversation, self._key)
        except EngineFault as fault:
            return fault

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
        if self._used is not None:
            return self._used
        counter = self._execution.world.counter
        read, written = counter.messages(self._asked.conversation), counter.text("".join(self._text))
        return TokenUsage(input_tokens=read, output_tokens=written, total_tokens=read + written, estimated=True)


def jitter(execution_id: str, key: str) -> float:
    """A number in [0, 1) that belongs to that step and no other."""
    return int.from_bytes(blake2b(f"{execution_id}:{key}".encode(), digest_size=7).digest()) / 2**56


def _in_order(engines: Sequence[Engine], first: str) -> list[Engine]:
    return sorted(engines, key=lambda engine: engine.profile.name != first)


def _aborted(
    outcome: Outcome, fsm: FallbackFsm, candidate: Candidate | None, segment: str
) -> tuple[FallbackTransition, ...]:
    if not isinstance(outcome, CutOff):
        return ()
    before = fsm.state
    fsm.fire(FsmEvent.USER_ABORT)
    return (transition(fsm, before, FsmEvent.USER_ABORT, "stopped", candidate=candidate, segment=segment),)


def _ended(outcome: Outcome, key: str, aborted: tuple[FallbackTransition, ...]) -> tuple[Event, ...]:
    assert isinstance(outcome, Replied | AttemptFailed | CutOff)  # noqa: S101 - what an attempt can come to
    usage = outcome.reply.usage if isinstance(outcome, Replied) else outcome.usage
    return (
        InferenceEnd(
            segment=key,
            duration_ms=outcome.duration_ms,
            tokens_in=usage.input_tokens,
            tokens_out=usage.output_tokens,
            finish_reason=_finish_reason(outcome),
            tool_call_count=len(outcome.reply.tool_calls) if isinstance(outcome, Replied) else 0,
        ),
        *aborted,
    )


def _finish_reason(outcome: Replied | AttemptFailed | CutOff) -> FinishReason:
    match outcome:
        case Replied(reply):
            return _FINISH.get(reply.finish_reason, "stop")
        case AttemptFailed(reason=Reason.CONTENT_FILTERED):
            return "content_filter"
        case AttemptFailed():
            return "error"
        case CutOff():
            return "cancelled"
