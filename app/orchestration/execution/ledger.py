"""What `limits.tokens` and `limits.cost` leave for one more attempt.

Theory of operation

1. Every attempt has a share of the budget: while it runs what it may take at most, afterwards what it took.
2. It may read what it is estimated to and write what is then left, but no more than was hinted, else than its engine
   keeps for an answer. It is told so, as `max_tokens`. Where not one token could be written it is refused.
3. So all shares together fit the limits whenever one is granted. An attempt may turn out to take more, since no
   provider is bound by an estimate, but never more than its engine's context window: what is used in all stays below
   the limit and one window for every attempt that can run at once.
4. What an earlier owner recorded counts from the start, and not only once it is told again, because branches are
   told one after the other.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from math import floor, fsum, inf
from typing import NamedTuple

from app.capabilities.models.context_window import count_tokens
from app.domain.contract.messages import ToolCall
from app.domain.contract.response import NO_USAGE, TokenUsage, ToolCallMade
from app.domain.failures import Code, OrchestrationFailure
from app.domain.frozen import dataclass
from app.domain.journal.header import EffectiveLimits
from app.domain.journal.outcomes import (
    AttemptCancelled,
    AttemptFailed,
    AttemptSucceeded,
    Candidate,
    InferenceSetup,
    RecordedStep,
    ToolCallSuspended,
    ToolEnded,
    usage_of,
)
from app.domain.model_call import AttemptFailureReason, EngineCall, Reply
from app.ports.journal import ExecutionHistory
from app.ports.model import EngineProfile, TokenCounter

_FREE = (0.0, 0.0)
_MILLION = 1_000_000


class BudgetShare(NamedTuple):
    """What an attempt takes: tokens, and what they cost in the configured currency."""

    tokens: int
    cost: float


@dataclass(frozen=True, slots=True)
class _Limit:
    """One limit as an attempt meets it. `fixed` is what reading takes of it, `each` a token that is written."""

    field: str
    most: float
    taken: float
    fixed: float
    each: float

    @property
    def writable(self) -> float:
        """How many tokens could be written."""
        left = self.most - self.taken - self.fixed
        return floor(left / self.each) if self.each else inf if left >= 0 else -1

    def refusal(self) -> OrchestrationFailure:
        """The failure that shows what was needed and what is left."""
        needed, left = self.fixed + self.each, max(0.0, self.most - self.taken)
        return OrchestrationFailure(
            Code.ORCHESTRATION_BUDGET_EXCEEDED,
            f"{self.field} leaves {left:.10g} and the next inference needs {needed:.10g}",
            {"field": self.field, "limit": self.most, "used": self.taken, "needed": needed},
        )


class Budget:
    """The limits of one execution and what its attempts take of them, under the attempts' keys.

    `rows` are those that an earlier owner recorded.
    """

    def __init__(self, tokens: int | None, cost: float | None, rows: Mapping[str, RecordedStep]) -> None:
        self._tokens = tokens
        self._cost = cost
        self._used = dict(_shares(rows))
        self._running: dict[str, BudgetShare] = {}

    def grant(self, key: str, call: EngineCall, profile: EngineProfile, counter: TokenCounter) -> EngineCall:
        """The call with what may be written in it. Raises: OrchestrationFailure (ORCHESTRATION_BUDGET_EXCEEDED)."""
        read = count_tokens(call, counter)
        price = profile.price or _FREE
        limits = list(self._limits(read, price))
        tightest = min(limits, key=lambda limit: limit.writable)
        usual = call.hints.max_tokens or profile.response_reserve or profile.context_window
        written = int(min(tightest.writable, usual))
        if written < 1:
            raise tightest.refusal()
        self._running[key] = _share(read, written, price)
        return replace(call, hints=call.hints.model_copy(update={"max_tokens": written}))

    def charge(self, key: str, usage: TokenUsage, price: tuple[float, float] | None) -> None:
        """The attempt has ended, and took that."""
        self._running.pop(key, None)
        self._used[key] = BudgetShare(usage.total_tokens, cost_of(usage, price))

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing is left even if what runs took nothing."""
        used = _sum(self._used)
        return (self._tokens is not None and used.tokens >= self._tokens) or (
            self._cost is not None and used.cost >= self._cost
        )

    def _limits(self, read: int, price: tuple[float, float]) -> Iterator[_Limit]:
        taken = _sum({**self._used, **self._running})
        if self._tokens is not None:
            yield _Limit("limits.tokens", self._tokens, taken.tokens, read, 1)
        if self._cost is not None:
            of_reading, of_writing = price[0] / _MILLION, price[1] / _MILLION
            yield _Limit("limits.cost", self._cost, taken.cost, read * of_reading, of_writing)


def budget_for(bounds: EffectiveLimits, record: ExecutionHistory | None = None) -> Budget | None:
    """The budget of an execution under those limits, begun anew or taken over; None when it has none."""
    if bounds.tokens is None and bounds.cost is None:
        return None
    return Budget(bounds.tokens, bounds.cost, {} if record is None else record.steps)


def cost_of(usage: TokenUsage, price: tuple[float, float] | None) -> float:
    """What was used costs, by the price of a million input and output tokens."""
    read, written = price or _FREE
    return (usage.input_tokens * read + usage.output_tokens * written) / _MILLION


def _share(read: int, written: int, price: tuple[float, float]) -> BudgetShare:
    return BudgetShare(read + written, (read * price[0] + written * price[1]) / _MILLION)


def _sum(shares: Mapping[str, BudgetShare]) -> BudgetShare:
    return BudgetShare(sum(share.tokens for share in shares.values()), fsum(share.cost for share in shares.values()))


def _shares(rows: Mapping[str, RecordedStep]) -> Iterator[tuple[str, BudgetShare]]:
    for key, row in rows.items():
        if isinstance(row.outcome, AttemptSucceeded | AttemptFailed | AttemptCancelled):
            usage = usage_of(row.outcome)
            yield key, BudgetShare(usage.total_tokens, cost_of(usage, _price(rows, row)))


def _price(rows: Mapping[str, RecordedStep], attempt: RecordedStep) -> tuple[float, float] | None:
    """The price of the candidate that was tried, which stands in what its inference was offered."""
    inference = rows.get(attempt.key.rpartition("/")[0])
    offered = inference.outcome.candidates if inference and isinstance(inference.outcome, InferenceSetup) else ()
    return next((each.price for each in offered if each.fingerprint == attempt.fingerprint), None)


NOT_RUN = "not run: the execution ended before it"
CUT_OFF = "cancelled while it ran"
WAITING = "waiting for an answer"
_UNSENT = frozenset({AttemptFailureReason.BREAKER_OPEN, AttemptFailureReason.OVER_BUDGET})
"""Why an attempt ended before anything was sent."""


@dataclass(slots=True)
class ToolCallState:
    """One call the model asked for, and what has come of it."""

    call: ToolCall
    step_name: str | None = None
    result: str = NOT_RUN
    is_error: bool = True
    code: Code | None = None
    attempts: int = 0
    duration_ms: float = 0.0

    def mark_waiting(self) -> None:
        """Somebody outside has to say something first."""
        self.result, self.is_error, self.code = WAITING, False, None


@dataclass(frozen=True, slots=True)
class _Said:
    """One attempt: when and where it ended, and what was said in it."""

    at: float
    key: str
    candidate: Candidate
    outcome: AttemptSucceeded | AttemptFailed | AttemptCancelled


class Ledger:
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
        self.ran_unsafe_call = False
        """Whether a call was begun that must not act twice."""
        self.excluded_prefixes: tuple[str, ...] = ()
        self._costs: list[float] = []
        self._upstream_ms: list[float] = []
        self._waited_ms: list[float] = []
        self._said: list[_Said] = []
        self._rounds: set[str] = set()
        self._slots: dict[tuple[int, ...], list[ToolCallState]] = {}

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
    def partial_text(self) -> str | None:
        """The text of the last attempt where it did not become a reply."""
        last = self._last(AttemptSucceeded, AttemptFailed, AttemptCancelled)
        return None if last is None or isinstance(last.outcome, AttemptSucceeded) else last.outcome.partial or None

    @property
    def last_speaker(self) -> tuple[str, str] | None:
        """Provider and model of the last text, whole or partial."""
        last = self._last(AttemptSucceeded, AttemptFailed, AttemptCancelled, with_text=True)
        if last is None:
            return None
        model = last.outcome.reply.model if isinstance(last.outcome, AttemptSucceeded) else last.candidate.model
        return last.candidate.provider, model

    @property
    def last_reply(self) -> tuple[Reply, Candidate] | None:
        """The last whole reply, and who gave it."""
        last = self._last(AttemptSucceeded)
        return (last.outcome.reply, last.candidate) if last and isinstance(last.outcome, AttemptSucceeded) else None

    @property
    def tool_rounds(self) -> int:
        """Rounds in which at least one call came to an outcome."""
        return len(self._rounds)

    def record_attempt(self, row: RecordedStep, candidate: Candidate, *, number: int, step_name: str | None) -> None:
        """Counts one attempt of an inference; `number` is 0 for its first."""
        outcome = row.outcome
        assert isinstance(outcome, AttemptSucceeded | AttemptFailed | AttemptCancelled)  # noqa: S101 - what an attempt can come to
        self.last_at = max(self.last_at, row.at)
        self._upstream_ms.append(outcome.duration_ms)
        self.fallback_attempts += number > 0 and not _refused(outcome)
        self._count(row.key, usage_of(outcome), candidate.price)
        self._said.append(_Said(row.at, row.key, candidate, outcome))
        if isinstance(outcome, AttemptSucceeded):
            self._slots[_path(row.key)] = [ToolCallState(call, step_name) for call in outcome.reply.tool_calls]

    def add_tool_call(self, key: str, slot: ToolCallState) -> None:
        """Counts a call that no reply asked for."""
        self._slots[_path(key)] = [slot]

    def record_wait(self, row: RecordedStep, seconds: float) -> None:
        """Counts a wait between two attempts."""
        self.last_at = max(self.last_at, row.at)
        self._waited_ms.append(seconds * 1000)

    def record_tool_attempt(self, row: RecordedStep, slot: ToolCallState, *, round_key: str) -> None:
        """Counts one attempt at a tool call."""
        outcome = row.outcome
        assert isinstance(outcome, ToolEnded | ToolCallSuspended | AttemptCancelled)  # noqa: S101 - what a tool attempt can come to
        self.last_at = max(self.last_at, row.at)
        self._rounds.add(round_key)
        slot.attempts += not isinstance(outcome, ToolEnded) or outcome.ran
        slot.duration_ms += outcome.duration_ms
        if isinstance(outcome, ToolCallSuspended):
            slot.mark_waiting()
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

    def tool_calls_of(self, attempt_key: str) -> list[ToolCallState]:
        """The calls that the reply under that key asks for, in call order."""
        return self._slots[_path(attempt_key)]

    def tool_calls_made(self) -> list[ToolCallMade]:
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
            self.budget.charge(key, usage, price)

    def _last(
        self, *kinds: type[AttemptSucceeded | AttemptFailed | AttemptCancelled], with_text: bool = False
    ) -> _Said | None:
        """The last attempt that came to one of these, and with text where that is asked for."""
        fitting = (
            said
            for said in self._said
            if isinstance(said.outcome, kinds)
            and not (with_text and not isinstance(said.outcome, AttemptSucceeded) and not said.outcome.partial)
            and not (self.excluded_prefixes and said.key.startswith(self.excluded_prefixes))
        )
        return max(fitting, key=lambda said: (said.at, _path(said.key)), default=None)


def _refused(outcome: AttemptSucceeded | AttemptFailed | AttemptCancelled) -> bool:
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
