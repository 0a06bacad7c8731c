"""One inference: what it offers, its attempts under the fallback machine."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from app.capabilities.context import cut_to_fit, exceeded, measure, room, with_cut
from app.capabilities.failover import decide, transition
from app.capabilities.forming import way_of
from app.capabilities.inference import candidate
from app.domain.effects import (
    NO_FORM,
    AttemptFailed,
    Candidate,
    CutOff,
    Offered,
    Outcome,
    Reason,
    Refused,
    Replied,
    Reply,
    Slept,
    usage_of,
)
from app.domain.events import (
    Event,
    FallbackTransition,
    FinishReason,
    InferenceEnd,
    InferenceRetracted,
    InferenceStart,
)
from app.domain.fallback import Event as FsmEvent
from app.domain.fallback import FallbackFsm
from app.domain.frozen import dataclass
from app.domain.tools import ToolDefinition
from app.orchestration.execution import Execution
from app.orchestration.leaf import Leaf
from app.orchestration.trial import Asked, Trial
from app.ports import Engine

_FINISH: Mapping[str, FinishReason] = MappingProxyType({"stop": "stop", "tool": "tool", "length": "length"})


@dataclass(frozen=True, slots=True)
class Inferred:
    """The answer, who gave it in which attempt, and the tools that were offered with it."""

    reply: Reply
    candidate: Candidate
    attempt_key: str
    offered: Offered


class Inference:
    """The door of `decide` for one inference; its attempts are `key/0`, `key/1`, …"""

    def __init__(self, execution: Execution, key: str, asked: Asked) -> None:
        self.anchor = key
        self.at = 0.0
        """When its last attempt ended, in Unix seconds."""
        self._key = key
        self._execution = execution
        self._asked = asked
        self._offered = Offered((), ())
        self._definitions: Sequence[ToolDefinition] | None = None

    async def run(self) -> Inferred:
        """Offers, then attempts until one provider answers. Raises: InferenceFailure, OrchestrationFailure."""
        offer = Leaf(self._key, self._asked.fingerprint, self._asked.context, self._offer, instant=True)
        outcome = (await self._execution.perform(offer)).outcome
        if isinstance(outcome, Refused):
            raise outcome.failure()
        assert isinstance(outcome, Offered)  # noqa: S101 - what an offer can come to
        self._offered = outcome
        if outcome.cut:
            self._asked.conversation[:] = with_cut(self._asked.conversation, outcome.cut)
        who, replied = await decide(self, outcome, self._execution.header.bounds.max_retries)
        return Inferred(replied.reply, who, self.anchor, outcome)

    def segment(self, number: int) -> str:
        """The key of that attempt."""
        return f"{self._key}/{number}"

    def moved(self, transition: FallbackTransition) -> None:
        """The machine moved."""
        self._execution.emit(self.anchor, self._asked.context, transition)

    def retract(self, number: int) -> None:
        """What that attempt streamed is void."""
        self._execution.emit(self.anchor, self._asked.context, InferenceRetracted(self.segment(number)))

    async def attempt(self, candidate: Candidate, number: int, fsm: FallbackFsm) -> Replied | AttemptFailed:
        """One attempt on that provider."""
        key = self.segment(number)
        trial = Trial(self._execution, candidate, self._asked, self._told, key)
        leaf = Leaf(
            key=key,
            fingerprint=candidate.fingerprint,
            correlation=trial.correlation,
            act=lambda: trial.act(fsm.retries_spent),
            start=self._start(candidate, key),
            end=lambda outcome: _ended(outcome, key, _aborted(outcome, fsm, candidate, key)),
            count=lambda row: self._execution.tally.attempt(
                row, candidate, number=number, step_name=self._asked.context.step_name
            ),
            cut_off=trial.cut_off,
        )
        row = await self._execution.perform(leaf)
        self.anchor, self.at = key, row.at
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
            correlation=self._asked.context,
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
        form = self._asked.form or NO_FORM
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
        moving = asked.rejected and world.catalogue.moves_on(asked.model)
        engines = _in_order(world.catalogue.resolve(asked.model), asked.last_provider, moving=moving)
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


def _in_order(engines: Sequence[Engine], last: str, *, moving: bool) -> list[Engine]:
    """The one that answered last comes first; when moving it comes last, behind all others, which follow it."""
    if not moving:
        return sorted(engines, key=lambda engine: engine.profile.name != last)
    after = next((place + 1 for place, engine in enumerate(engines) if engine.profile.name == last), 0)
    return [*engines[after:], *engines[:after]]


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
    usage = usage_of(outcome)
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
