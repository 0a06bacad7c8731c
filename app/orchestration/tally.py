"""What an execution has used and done so far, counted from recorded outcomes alone."""

from dataclasses import dataclass

from app.domain.boundary import TokenUsage, ToolCallMade, Way
from app.domain.effects import NO_USAGE, AttemptFailed, Candidate, CutOff, Reason, Replied, Reply, Row, ToolEnded
from app.domain.failures import Code
from app.domain.messages import ToolCall

NOT_RUN = "not run: the execution ended before it"
CUT_OFF = "cancelled while it ran"


@dataclass(slots=True)
class CallSlot:
    """One call the model asked for, and what has come of it."""

    call: ToolCall
    result: str = NOT_RUN
    is_error: bool = True
    code: Code | None = None
    attempts: int = 0
    duration_ms: float = 0.0


class Tally:
    """Sums over outcomes; the order in which concurrent branches settle does not matter to it."""

    def __init__(self) -> None:
        self.usage: TokenUsage = NO_USAGE
        self.cost = 0.0
        self.priced = False
        self.last_at = 0.0
        self.upstream_ms = 0.0
        self.waited_ms = 0.0
        self.fallback_attempts = 0
        self.partial: str | None = None
        self.spoke: tuple[str, str] | None = None
        """Provider and model of the last text, whole or partial."""
        self.reply: Reply | None = None
        self.withheld: tuple[str, ...] = ()
        self.way: Way | None = None
        self._rounds: set[str] = set()
        self._slots: dict[tuple[int, ...], list[CallSlot]] = {}

    @property
    def tool_rounds(self) -> int:
        """Rounds in which at least one call came to an outcome."""
        return len(self._rounds)

    def attempt(self, row: Row, candidate: Candidate, *, number: int) -> None:
        """Counts one attempt of an inference; `number` is 0 for its first."""
        outcome = row.outcome
        assert isinstance(outcome, Replied | AttemptFailed | CutOff)  # noqa: S101 - what an attempt can come to
        usage = outcome.reply.usage if isinstance(outcome, Replied) else outcome.usage
        self.last_at = max(self.last_at, row.at)
        self.upstream_ms += outcome.duration_ms
        self.fallback_attempts += number > 0 and not _refused(outcome)
        self._count(usage, candidate.price)
        self.partial = None if isinstance(outcome, Replied) else outcome.partial or None
        if self.partial is not None:
            self.spoke = (candidate.provider, candidate.model)
        if isinstance(outcome, Replied):
            self.spoke = (candidate.provider, outcome.reply.model)
            self.reply, self.withheld, self.way = outcome.reply, candidate.withheld, candidate.way
            self._slots[_path(row.key)] = [CallSlot(call) for call in outcome.reply.tool_calls]

    def waited(self, row: Row, seconds: float) -> None:
        """Counts a wait between two attempts."""
        self.last_at = max(self.last_at, row.at)
        self.waited_ms += seconds * 1000

    def tool(self, row: Row, slot: CallSlot, *, round_key: str) -> None:
        """Counts one attempt at a tool call."""
        outcome = row.outcome
        assert isinstance(outcome, ToolEnded | CutOff)  # noqa: S101 - what a tool attempt can come to
        self.last_at = max(self.last_at, row.at)
        self._rounds.add(round_key)
        slot.attempts += not isinstance(outcome, ToolEnded) or outcome.ran
        slot.duration_ms += outcome.duration_ms
        slot.result = outcome.content if isinstance(outcome, ToolEnded) else CUT_OFF
        slot.is_error = not isinstance(outcome, ToolEnded) or outcome.is_error
        slot.code = outcome.code if isinstance(outcome, ToolEnded) else Code.CANCELLED_SIGNAL

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
            )
            for path in sorted(self._slots)
            for slot in self._slots[path]
        ]

    def _count(self, usage: TokenUsage, price: tuple[float, float] | None) -> None:
        if usage is not NO_USAGE:
            self.usage = usage if self.usage is NO_USAGE else self.usage + usage
        if price is not None:
            self.priced = True
            self.cost += (usage.input_tokens * price[0] + usage.output_tokens * price[1]) / 1_000_000


def _refused(outcome: Replied | AttemptFailed | CutOff) -> bool:
    """Whether nothing was sent, because the breaker had opened meanwhile."""
    return isinstance(outcome, AttemptFailed) and outcome.reason is Reason.BREAKER_OPEN


def _path(key: str) -> tuple[int, ...]:
    return tuple(map(int, key.split("/")))
