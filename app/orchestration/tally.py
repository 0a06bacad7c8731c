"""What an execution has used and done so far, counted from recorded outcomes alone."""

from functools import lru_cache
from math import fsum

from app.domain.boundary import TokenUsage, ToolCallMade
from app.domain.effects import (
    NO_USAGE,
    AttemptFailed,
    Candidate,
    CutOff,
    Reason,
    Replied,
    Reply,
    Row,
    ToolAsked,
    ToolEnded,
    usage_of,
)
from app.domain.failures import Code
from app.domain.frozen import dataclass
from app.domain.messages import ToolCall
from app.orchestration.budget import Budget, cost_of

NOT_RUN = "not run: the execution ended before it"
CUT_OFF = "cancelled while it ran"
WAITS = "waiting for an answer"
_UNSENT = frozenset({Reason.BREAKER_OPEN, Reason.OVER_BUDGET})
"""Why an attempt ended before anything was sent."""


@dataclass(slots=True)
class CallSlot:
    """One call the model asked for, and what has come of it."""

    call: ToolCall
    step_name: str | None = None
    result: str = NOT_RUN
    is_error: bool = True
    code: Code | None = None
    attempts: int = 0
    duration_ms: float = 0.0

    def wait(self) -> None:
        """Somebody outside has to say something first."""
        self.result, self.is_error, self.code = WAITS, False, None


@dataclass(frozen=True, slots=True)
class _Said:
    """One attempt: when and where it ended, and what was said in it."""

    at: float
    key: str
    candidate: Candidate
    outcome: Replied | AttemptFailed | CutOff


class Tally:
    """Sums over outcomes; the order in which concurrent branches settle does not matter to it.

    So what is last is last by time and then by step, and floats are summed exactly. `unheard` is what the keys of
    branches begin with that are no part of the answer: they are paid for, and what they said is not shown. What was
    used is told to the `budget`, where there is one.
    """

    def __init__(self, budget: Budget | None = None) -> None:
        self.budget = budget
        self.usage: TokenUsage = NO_USAGE
        self.priced = False
        self.last_at = 0.0
        self.fallback_attempts = 0
        self.acted_once = False
        """Whether a call was begun that must not act twice."""
        self.unheard: tuple[str, ...] = ()
        self._costs: list[float] = []
        self._upstream_ms: list[float] = []
        self._waited_ms: list[float] = []
        self._said: list[_Said] = []
        self._rounds: set[str] = set()
        self._slots: dict[tuple[int, ...], list[CallSlot]] = {}

    @property
    def cost(self) -> float:
        """What all attempts cost by the configured prices."""
        return fsum(self._costs)

    @property
    def upstream_ms(self) -> float:
        """Milliseconds that attempts took."""
        return fsum(self._upstream_ms)

    @property
    def waited_ms(self) -> float:
        """Milliseconds between attempts."""
        return fsum(self._waited_ms)

    @property
    def partial(self) -> str | None:
        """The text of the last attempt where it did not become a reply."""
        last = self._last(Replied, AttemptFailed, CutOff)
        return None if last is None or isinstance(last.outcome, Replied) else last.outcome.partial or None

    @property
    def spoke(self) -> tuple[str, str] | None:
        """Provider and model of the last text, whole or partial."""
        last = self._last(Replied, AttemptFailed, CutOff, with_text=True)
        if last is None:
            return None
        model = last.outcome.reply.model if isinstance(last.outcome, Replied) else last.candidate.model
        return last.candidate.provider, model

    @property
    def answered(self) -> tuple[Reply, Candidate] | None:
        """The last whole reply, and who gave it."""
        last = self._last(Replied)
        return (last.outcome.reply, last.candidate) if last and isinstance(last.outcome, Replied) else None

    @property
    def tool_rounds(self) -> int:
        """Rounds in which at least one call came to an outcome."""
        return len(self._rounds)

    def attempt(self, row: Row, candidate: Candidate, *, number: int, step_name: str | None) -> None:
        """Counts one attempt of an inference; `number` is 0 for its first."""
        outcome = row.outcome
        assert isinstance(outcome, Replied | AttemptFailed | CutOff)  # noqa: S101 - what an attempt can come to
        self.last_at = max(self.last_at, row.at)
        self._upstream_ms.append(outcome.duration_ms)
        self.fallback_attempts += number > 0 and not _refused(outcome)
        self._count(row.key, usage_of(outcome), candidate.price)
        self._said.append(_Said(row.at, row.key, candidate, outcome))
        if isinstance(outcome, Replied):
            self._slots[_path(row.key)] = [CallSlot(call, step_name) for call in outcome.reply.tool_calls]

    def called(self, key: str, slot: CallSlot) -> None:
        """Counts a call that no reply asked for."""
        self._slots[_path(key)] = [slot]

    def waited(self, row: Row, seconds: float) -> None:
        """Counts a wait between two attempts."""
        self.last_at = max(self.last_at, row.at)
        self._waited_ms.append(seconds * 1000)

    def tool(self, row: Row, slot: CallSlot, *, round_key: str) -> None:
        """Counts one attempt at a tool call."""
        outcome = row.outcome
        assert isinstance(outcome, ToolEnded | ToolAsked | CutOff)  # noqa: S101 - what a tool attempt can come to
        self.last_at = max(self.last_at, row.at)
        self._rounds.add(round_key)
        slot.attempts += not isinstance(outcome, ToolEnded) or outcome.ran
        slot.duration_ms += outcome.duration_ms
        if isinstance(outcome, ToolAsked):
            slot.wait()
            return
        slot.result = outcome.content if isinstance(outcome, ToolEnded) else CUT_OFF
        slot.is_error = not isinstance(outcome, ToolEnded) or outcome.is_error
        slot.code = outcome.code if isinstance(outcome, ToolEnded) else Code.CANCELLED_SIGNAL

    def has_failed(self, call: ToolCall, *, before: str) -> bool:
        """Whether the same tool has failed with the same arguments before that step, in what led to it."""
        return any(
            slot.is_error and slot.attempts and (slot.call.name, slot.call.arguments) == (call.name, call.arguments)
            for path, slots in self._slots.items()
            if _leads_to(path, _path(before))
            for slot in slots
        )

    def slots(self, attempt_key: str) -> list[CallSlot]:
        """The calls that the reply under that key asks for, in call order."""
        return self._slots[_path(attempt_key)]

    def calls_made(self) -> list[ToolCallMade]:
        """Every call asked for, by step and then in call order."""
        return [
            ToolCallMade(
                id=slot.call.id,
                name=slot.call.name,
                arguments=slot.call.arguments,
                result=slot.result,
                is_error=slot.is_error,
                attempts=slot.attempts,
                duration_ms=slot.duration_ms,
                step_name=slot.step_name,
            )
            for path in sorted(self._slots)
            for slot in self._slots[path]
        ]

    def _count(self, key: str, usage: TokenUsage, price: tuple[float, float] | None) -> None:
        if usage is not NO_USAGE:
            self.usage = usage if self.usage is NO_USAGE else self.usage + usage
        if price is not None:
            self.priced = True
            self._costs.append(cost_of(usage, price))
        if self.budget is not None:
            self.budget.settle(key, usage, price)

    def _last(self, *kinds: type[Replied | AttemptFailed | CutOff], with_text: bool = False) -> _Said | None:
        """The last attempt that came to one of these, and with text where that is asked for."""
        fitting = (
            said
            for said in self._said
            if isinstance(said.outcome, kinds)
            and not (with_text and not isinstance(said.outcome, Replied) and not said.outcome.partial)
            and not (self.unheard and said.key.startswith(self.unheard))
        )
        return max(fitting, key=lambda said: (said.at, _path(said.key)), default=None)


def _refused(outcome: Replied | AttemptFailed | CutOff) -> bool:
    """Whether nothing was sent."""
    return isinstance(outcome, AttemptFailed) and outcome.reason in _UNSENT


def _leads_to(earlier: tuple[int, ...], later: tuple[int, ...]) -> bool:
    """Whether what a step did was over before the other began; branches of one gather do not lead to each other.

    Ordinals stand at even places of a key, branches at odd ones.
    """
    places = (place for place, pair in enumerate(zip(earlier, later, strict=False)) if pair[0] != pair[1])
    differing = next(places, None)
    return differing is not None and differing % 2 == 0 and earlier[differing] < later[differing]


@lru_cache(maxsize=1024)
def _path(key: str) -> tuple[int, ...]:
    return tuple(map(int, key.split("/")))
