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
from dataclasses import dataclass, replace
from math import floor, fsum, inf
from typing import NamedTuple

from app.capabilities.context import tokens_of
from app.domain.boundary import TokenUsage
from app.domain.effects import AttemptFailed, Bounds, CutOff, EngineCall, Offered, Replied, Row, usage_of
from app.domain.failures import Code, OrchestrationFailure
from app.ports import EngineProfile, Record, TokenCounter

_FREE = (0.0, 0.0)
_MILLION = 1_000_000


class Share(NamedTuple):
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

    def __init__(self, tokens: int | None, cost: float | None, rows: Mapping[str, Row]) -> None:
        self._tokens = tokens
        self._cost = cost
        self._used = dict(_shares(rows))
        self._running: dict[str, Share] = {}

    def grant(self, key: str, call: EngineCall, profile: EngineProfile, counter: TokenCounter) -> EngineCall:
        """The call with what may be written in it. Raises: OrchestrationFailure (ORCHESTRATION_BUDGET_EXCEEDED)."""
        read = tokens_of(call, counter)
        price = profile.price or _FREE
        limits = list(self._limits(read, price))
        tightest = min(limits, key=lambda limit: limit.writable)
        usual = call.hints.max_tokens or profile.response_reserve or profile.context_window
        written = int(min(tightest.writable, usual))
        if written < 1:
            raise tightest.refusal()
        self._running[key] = _share(read, written, price)
        return replace(call, hints=call.hints.model_copy(update={"max_tokens": written}))

    def settle(self, key: str, usage: TokenUsage, price: tuple[float, float] | None) -> None:
        """The attempt has ended, and took that."""
        self._running.pop(key, None)
        self._used[key] = Share(usage.total_tokens, cost_of(usage, price))

    @property
    def spent(self) -> bool:
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


def budget_of(bounds: Bounds, record: Record | None = None) -> Budget | None:
    """The budget of an execution under those limits, begun anew or taken over; None when it has none."""
    if bounds.tokens is None and bounds.cost is None:
        return None
    return Budget(bounds.tokens, bounds.cost, {} if record is None else record.rows)


def cost_of(usage: TokenUsage, price: tuple[float, float] | None) -> float:
    """What was used costs, by the price of a million input and output tokens."""
    read, written = price or _FREE
    return (usage.input_tokens * read + usage.output_tokens * written) / _MILLION


def _share(read: int, written: int, price: tuple[float, float]) -> Share:
    return Share(read + written, (read * price[0] + written * price[1]) / _MILLION)


def _sum(shares: Mapping[str, Share]) -> Share:
    return Share(sum(share.tokens for share in shares.values()), fsum(share.cost for share in shares.values()))


def _shares(rows: Mapping[str, Row]) -> Iterator[tuple[str, Share]]:
    for key, row in rows.items():
        if isinstance(row.outcome, Replied | AttemptFailed | CutOff):
            usage = usage_of(row.outcome)
            yield key, Share(usage.total_tokens, cost_of(usage, _price(rows, row)))


def _price(rows: Mapping[str, Row], attempt: Row) -> tuple[float, float] | None:
    """The price of the candidate that was tried, which stands in what its inference was offered."""
    inference = rows.get(attempt.key.rpartition("/")[0])
    offered = inference.outcome.candidates if inference and isinstance(inference.outcome, Offered) else ()
    return next((each.price for each in offered if each.fingerprint == attempt.fingerprint), None)
