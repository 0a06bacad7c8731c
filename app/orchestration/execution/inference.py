"""One inference: what it offers, its attempts under the fallback machine."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from app.capabilities.models.catalogue import candidate_for
from app.capabilities.models.context_window import capacity, context_exceeded, measure, results_to_cut, with_results_cut
from app.capabilities.models.failover import decide, transition_event
from app.capabilities.models.format_enforcement import choose_enforcement
from app.domain.fallback import Event as FsmEvent
from app.domain.fallback import FallbackFsm
from app.domain.frozen import dataclass
from app.domain.journal.events import (
    Event,
    FallbackTransition,
    FinishReason,
    InferenceEnd,
    InferenceRetracted,
    InferenceStart,
)
from app.domain.journal.outcomes import (
    AttemptCancelled,
    AttemptFailed,
    AttemptSucceeded,
    Candidate,
    InferenceSetup,
    Outcome,
    Refused,
    TimerFired,
    usage_of,
)
from app.domain.model_call import NO_RESPONSE_FORMAT, AttemptFailureReason, Reply
from app.domain.tools import ToolDefinition
from app.orchestration.execution.attempt import InferenceRequest, ProviderAttempt
from app.orchestration.execution.effect import Effect
from app.orchestration.execution.execution import Execution
from app.ports.model import Engine

_FINISH: Mapping[str, FinishReason] = MappingProxyType({"stop": "stop", "tool": "tool", "length": "length"})


@dataclass(frozen=True, slots=True)
class InferenceResult:
    """The answer, who gave it in which attempt, and the tools that were offered with it."""

    reply: Reply
    candidate: Candidate
    attempt_key: str
    setup: InferenceSetup


class Inference:
    """The door of `decide` for one inference; its attempts are `key/0`, `key/1`, …"""

    def __init__(self, execution: Execution, key: str, asked: InferenceRequest) -> None:
        self.anchor = key
        self.ended_at = 0.0
        """When its last attempt ended, in Unix seconds."""
        self._key = key
        self._execution = execution
        self._asked = asked
        self._offered = InferenceSetup((), ())
        self._definitions: Sequence[ToolDefinition] | None = None

    async def run(self) -> InferenceResult:
        """Offers, then attempts until one provider answers. Raises: InferenceFailure, OrchestrationFailure."""
        offer = Effect(self._key, self._asked.fingerprint, self._asked.correlation, self._offer, instant=True)
        outcome = (await self._execution.perform(offer)).outcome
        if isinstance(outcome, Refused):
            raise outcome.failure()
        assert isinstance(outcome, InferenceSetup)  # noqa: S101 - what an offer can come to
        self._offered = outcome
        if outcome.cut:
            self._asked.conversation[:] = with_results_cut(self._asked.conversation, outcome.cut)
        who, replied = await decide(self, outcome, self._execution.header.bounds.max_retries)
        return InferenceResult(replied.reply, who, self.anchor, outcome)

    def segment(self, number: int) -> str:
        """The key of that attempt."""
        return f"{self._key}/{number}"

    def moved(self, transition: FallbackTransition) -> None:
        """The machine moved."""
        self._execution.emit(self.anchor, self._asked.correlation, transition)

    def retract(self, number: int) -> None:
        """What that attempt streamed is void."""
        self._execution.emit(self.anchor, self._asked.correlation, InferenceRetracted(self.segment(number)))

    async def attempt(self, candidate: Candidate, number: int, fsm: FallbackFsm) -> AttemptSucceeded | AttemptFailed:
        """One attempt on that provider."""
        key = self.segment(number)
        trial = ProviderAttempt(self._execution, candidate, self._asked, self._told, key)
        leaf = Effect(
            key=key,
            fingerprint=candidate.fingerprint,
            correlation=trial.correlation,
            run=lambda: trial.run(fsm.retries_spent),
            start_event=self._start(candidate, key),
            end_events=lambda outcome: _ended(outcome, key, _aborted(outcome, fsm, candidate, key)),
            count=lambda row: self._execution.ledger.record_attempt(
                row, candidate, number=number, step_name=self._asked.correlation.step_name
            ),
            cancelled_outcome=trial.cancelled_outcome,
        )
        row = await self._execution.perform(leaf)
        self.anchor, self.ended_at = key, row.at
        assert isinstance(row.outcome, AttemptSucceeded | AttemptFailed)  # noqa: S101 - what an attempt can come to
        return row.outcome

    async def wait(self, number: int, seconds: float, fsm: FallbackFsm) -> None:
        """The wait that was granted after that attempt."""
        segment = self.segment(number)
        key = f"{segment}/0"

        async def sleep() -> TimerFired:
            await self._execution.environment.clock.sleep(seconds)
            return TimerFired()

        leaf = Effect(
            key=key,
            fingerprint=f"wait:{seconds}",
            correlation=self._asked.correlation,
            run=sleep,
            end_events=lambda outcome: _aborted(outcome, fsm, None, segment),
            count=lambda row: self._execution.ledger.record_wait(row, seconds),
        )
        await self._execution.perform(leaf)
        self.anchor = key

    def _told(self) -> Sequence[ToolDefinition]:
        """The definitions of the tools that were offered, looked up again when an earlier owner offered them."""
        if self._definitions is None:
            registry = self._execution.environment.tool_registry
            self._definitions = registry.offer([tool.name for tool in self._offered.tools])[1]
        return self._definitions

    def _start(self, candidate: Candidate, key: str) -> InferenceStart:
        form = self._asked.response_format or NO_RESPONSE_FORMAT
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
        world, asked = self._execution.environment, self._asked
        tools, self._definitions = world.tool_registry.offer(asked.tools)
        tools_tokens = world.token_counter.tools(self._definitions)
        moving = asked.previous_rejected and world.catalogue.reroutes_rejected_answers(asked.model)
        engines = _in_order(world.catalogue.resolve(asked.model), asked.last_provider, moving=moving)
        limit = max(capacity(engine) for engine in engines)
        parts = measure(asked.conversation, tools_tokens, world.token_counter)
        cut = results_to_cut(
            asked.conversation, turn_starts=asked.turn_starts, over=parts.used - limit, counter=world.token_counter
        )
        if cut:
            parts = measure(with_results_cut(asked.conversation, cut), tools_tokens, world.token_counter)
        if parts.used > limit:
            return Refused.by(context_exceeded(parts, limit))
        fitting = [engine for engine in engines if parts.used <= capacity(engine)]
        breakers = {engine.profile.name: world.health.breakers[engine.profile.name] for engine in fitting}
        admitted = [engine for engine in fitting if breakers[engine.profile.name].allows_attempt]
        closed = [engine for engine in fitting if engine not in admitted]
        call = asked.engine_call(self._definitions)
        return InferenceSetup(
            tools=tools,
            candidates=tuple(
                candidate_for(engine, call, choose_enforcement(call, engine.profile)) for engine in admitted
            ),
            left_out=tuple(candidate_for(engine, call, None) for engine in closed),
            closed_for=min((breakers[engine.profile.name].seconds_until_probe for engine in closed), default=0.0),
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
    if not isinstance(outcome, AttemptCancelled):
        return ()
    before = fsm.state
    fsm.fire(FsmEvent.USER_ABORT)
    return (transition_event(fsm, before, FsmEvent.USER_ABORT, "stopped", candidate=candidate, segment=segment),)


def _ended(outcome: Outcome, key: str, aborted: tuple[FallbackTransition, ...]) -> tuple[Event, ...]:
    assert isinstance(outcome, AttemptSucceeded | AttemptFailed | AttemptCancelled)  # noqa: S101 - what an attempt can come to
    usage = usage_of(outcome)
    return (
        InferenceEnd(
            segment=key,
            duration_ms=outcome.duration_ms,
            tokens_in=usage.input_tokens,
            tokens_out=usage.output_tokens,
            finish_reason=_finish_reason(outcome),
            tool_call_count=len(outcome.reply.tool_calls) if isinstance(outcome, AttemptSucceeded) else 0,
        ),
        *aborted,
    )


def _finish_reason(outcome: AttemptSucceeded | AttemptFailed | AttemptCancelled) -> FinishReason:
    match outcome:
        case AttemptSucceeded(reply):
            return _FINISH.get(reply.finish_reason, "stop")
        case AttemptFailed(reason=AttemptFailureReason.CONTENT_FILTERED):
            return "content_filter"
        case AttemptFailed():
            return "error"
        case AttemptCancelled():
            return "cancelled"
