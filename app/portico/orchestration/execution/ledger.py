"""The ledger: what an execution has used and done, and what its token and cost limits leave.

Everything is counted from recorded outcomes, so it is the same after a replay, and the order in which concurrent
branches end does not matter: the last attempt is the last by time and then by step, and floats are summed exactly.

Theory of operation of the budget

1. Every attempt has a share of the budget: while it runs what it may take at most, afterwards what it took.
2. It may read what it is estimated to read, at the dearest price of input tokens, and write what is then left, but no
   more than the hint allows, or else than its engine reserves for an answer. It is sent that number as `max_tokens`.
   If it could not write one token it is refused.
3. So all shares together fit the limits whenever one is granted. An attempt may turn out to take more, because no
   provider is bound by an estimate, but never more than the context window of its engine: the total stays below the
   limit and one window for every attempt that can run concurrently.
4. An execution that owes a final answer withholds a share for it, until the pattern has ended: what the answer may
   read and write, but at most a quarter of each limit, so that a small budget is not spent on it alone.
5. What an earlier owner recorded counts from the start and not from its replay, because branches replay in turn.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from math import floor, fsum, inf
from typing import NamedTuple

from portico.capabilities.models.context_window import count_tokens
from portico.domain.contract.messages import ToolCall
from portico.domain.contract.response import NO_USAGE, TokenUsage, ToolCallMade
from portico.domain.failures import Code, OrchestrationFailure
from portico.domain.journal.events import ToolStart
from portico.domain.journal.header import EffectiveLimits
from portico.domain.journal.outcomes import (
    AgentCallStarted,
    AttemptCancelled,
    AttemptFailed,
    AttemptSucceeded,
    Candidate,
    CodeStarted,
    InferenceSetup,
    Outcome,
    RecordedStep,
    Retrieved,
    ToolCallSuspended,
    ToolEnded,
    usage_of,
)
from portico.domain.journal.step_key import GUARD_KEY, RETRIEVAL_KEY, StepKey, numbers_of
from portico.domain.model_call import UNSENT, AttemptFailureReason, EngineCall, Reply
from portico.domain.token_prices import FREE, TokenPrices
from portico.domain.value import replace, value
from portico.orchestration.execution.tool_call_state import CANCELLED, ToolCallState
from portico.ports.journal import ExecutionHistory
from portico.ports.model import EngineProfile, TokenCounter

_FINAL_ANSWER_READS = 4096
"""Tokens that a final answer reads at most: its prompt, and what it quotes of the results."""
_LARGEST_RESERVED_SHARE = 0.25


class Ledger:
    """Sums over the recorded attempts of one execution. Every attempt is charged to the `budget`, if there is one.

    Attempts in excluded branches are paid for and not shown.
    """

    def __init__(self, budget: "Budget | None" = None, history: ExecutionHistory | None = None) -> None:
        self.budget = budget
        self.tool_calls = ToolCalls(history)
        self.usage: TokenUsage = NO_USAGE
        self.last_at = 0.0
        self.fallback_attempts = 0
        self.flags: set[str] = set()
        self.failover_ms: list[float] = []
        """Milliseconds of the attempts at inferences and of the delays between them."""
        self.retrievals: dict[StepKey, Retrieved] = {}
        """What searches of the memory found, by their steps."""
        self.costs: list[float] = []
        """The costs of what has a price, one by one."""
        self.cache_saved: float | None = None
        """What the caches of providers saved, negative if they did not pay; None without tokens of a cache."""
        self._attempts: list[_Attempt] = []
        self._excluded: tuple[str, ...] = ()

    @property
    def cost(self) -> float:
        """Cost of all attempts by the configured prices."""
        return fsum(self.costs)

    @property
    def attempts_ms(self) -> float:
        """Milliseconds that all attempts at inferences took together."""
        return fsum([each.outcome.duration_ms for each in self._attempts])

    @property
    def has_untrusted_text(self) -> bool:
        """True if a tool, an answer, or a search that is a step of a plan has returned text that is not trusted.

        What PREPARE has found is in the messages with which the execution begins, if it is used.
        """
        retrieved = any(found.chunks for key, found in self.retrievals.items() if key != RETRIEVAL_KEY)
        return retrieved or self.tool_calls.has_untrusted_result

    @property
    def was_over_budget(self) -> bool:
        """True once an attempt was refused because the budget could not pay for it."""
        return any(
            isinstance(each.outcome, AttemptFailed) and each.outcome.reason is AttemptFailureReason.OVER_BUDGET
            for each in self._attempts
        )

    @property
    def is_unsent(self) -> bool:
        """True while no provider and no tool was asked, and no document searched for."""
        refused = all(
            isinstance(each.outcome, AttemptFailed) and each.outcome.reason in UNSENT for each in self._attempts
        )
        return refused and not self.tool_calls.has_acted and not self.retrievals

    @property
    def last_answers(self) -> tuple[tuple[str, str | None, str] | None, tuple[Reply, Candidate] | None]:
        """Provider, deployment and model of the last text, also of a part; the last whole reply with its candidate."""
        speaker, reply = None, None
        for each in self.shown_attempts:
            outcome, candidate = each.outcome, each.candidate
            if isinstance(outcome, AttemptSucceeded):
                speaker = candidate.provider, candidate.deployment, outcome.reply.model
                reply = outcome.reply, candidate
            elif outcome.partial:
                speaker = candidate.provider, candidate.deployment, candidate.model
        return speaker, reply

    def exclude(self, branches: tuple[StepKey, ...]) -> None:
        """Show nothing of the attempts in these branches."""
        self._excluded += tuple(f"{branch}/" for branch in branches)

    def record_attempt(
        self,
        step: RecordedStep,
        candidate: Candidate,
        prices: TokenPrices | None,
        *,
        is_fallback: bool,
        step_name: str | None,
        agent: str | None,
        is_side_question: bool,
    ) -> None:
        """Add an attempt of an inference of that agent at these prices; `is_fallback` for all but its first."""
        outcome = step.outcome
        assert isinstance(outcome, AttemptSucceeded | AttemptFailed | AttemptCancelled)  # noqa: S101 - of an attempt
        self.last_at = max(self.last_at, step.at)
        is_unsent = isinstance(outcome, AttemptFailed) and outcome.reason in UNSENT
        self.fallback_attempts += is_fallback and not is_unsent
        key = StepKey(step.key)
        if isinstance(outcome, AttemptSucceeded):
            usage = outcome.reply.usage
            self.flags.update(outcome.reply.flags)
            if outcome.reply.tool_calls and not key.is_within(GUARD_KEY):
                self.tool_calls.add(key, [ToolCallState(call, step_name, agent) for call in outcome.reply.tool_calls])
        else:
            usage = outcome.usage
        if usage is not NO_USAGE:
            self.usage = usage if self.usage is NO_USAGE else self.usage + usage
        if prices is not None:
            self.costs.append(prices.cost_of(usage))
            if usage.cached_tokens or usage.cache_write_tokens:
                self.cache_saved = (self.cache_saved or 0.0) + (prices.saved_by_cache(usage) or 0.0)
        if self.budget is not None:
            self.budget.charge(step.key, usage, prices)
        self.failover_ms.append(outcome.duration_ms)
        self._attempts.append(_Attempt(step.at, key, candidate, outcome, step_name, is_side_question))

    def record_delay(self, step: RecordedStep, seconds: float) -> None:
        """Add a delay between two attempts."""
        self.last_at = max(self.last_at, step.at)
        self.failover_ms.append(seconds * 1000)

    def record_tool_attempt(
        self, step: RecordedStep, state: "ToolCallState", round_key: StepKey, *, is_unsafe: bool
    ) -> None:
        """Add an attempt at a tool call of that round."""
        self.last_at = max(self.last_at, step.at)
        self.tool_calls.record_attempt(step.outcome, state, round_key, is_unsafe=is_unsafe)

    def record_retrieval(self, step: RecordedStep, found: Retrieved) -> None:
        """Add a search of the memory, with what the embedding of its query took."""
        self.last_at = max(self.last_at, step.at)
        self.retrievals[StepKey(step.key)] = found
        self.flags.update(found.flagged.values())
        charge = found.embedding
        if charge is None:
            return
        self.usage += TokenUsage(input_tokens=charge.tokens, total_tokens=charge.tokens)
        if charge.cost:
            self.costs.append(charge.cost)
        if self.budget is not None:
            self.budget.charge_share(step.key, BudgetShare(charge.tokens, charge.cost))

    @property
    def shown_attempts(self) -> "Sequence[_Attempt]":
        """Return the attempts that are not in excluded branches, in the order in which they ended."""
        shown = self._attempts
        if self._excluded:
            shown = [each for each in shown if not f"{each.key}/".startswith(self._excluded)]
        return sorted(shown, key=_order) if len(shown) > 1 else shown


@value
class _Attempt:
    at: float
    key: StepKey
    candidate: Candidate
    outcome: AttemptSucceeded | AttemptFailed | AttemptCancelled
    step_name: str | None
    is_side_question: bool


class ToolCalls:
    """The tool calls of one execution, by the step that asked for them.

    Those that the history has begun count from the start, because branches replay in turn.
    """

    def __init__(self, history: ExecutionHistory | None = None) -> None:
        self.has_acted = False
        """True once a tool or other people's code was to run."""
        self.has_run_unsafe = False
        """True once a non-idempotent call was started."""
        self.has_untrusted_answer = False
        """True once an answer to a suspension was read that a model may have given."""
        self.has_grant = False
        """True once an answer was read that grants later calls."""
        self.rounds: set[StepKey] = set()
        """The rounds in which at least one call has an outcome."""
        self._begun: set[StepKey] = set() if history is None else _begun_calls(history)
        self._states: dict[StepKey, list[ToolCallState]] = {}
        self._edited: set[int] = set()
        """The identities of the calls whose result is that of a fork."""

    def add(self, key: StepKey, states: list[ToolCallState]) -> None:
        """Add the calls that this step asked for, in call order."""
        self._states[key] = states

    def note_edited(self, state: ToolCallState) -> None:
        """Note that the result of the call is that of a fork."""
        self._edited.add(id(state))

    def begin(self, key: StepKey, limit: int | None) -> bool:
        """Return whether the call of that key may run under the limit; it counts once."""
        if limit is not None and len(self._begun) >= limit and key not in self._begun:
            return False
        self._begun.add(key)
        return True

    def of(self, key: StepKey) -> list[ToolCallState]:
        """Return the calls that this step asked for, in call order."""
        return self._states.get(key, [])

    def record_attempt(self, outcome: Outcome, state: ToolCallState, round_key: StepKey, *, is_unsafe: bool) -> None:
        """Add an attempt at a call of that round."""
        assert isinstance(outcome, ToolEnded | ToolCallSuspended | AttemptCancelled)  # noqa: S101 - of a tool attempt
        self.has_run_unsafe |= is_unsafe
        self.rounds.add(round_key)
        state.attempts += _is_attempt(outcome)
        state.duration_ms += outcome.duration_ms
        # One that waits for a credential has not acted.
        state.has_begun |= outcome.ran if isinstance(outcome, ToolEnded) else not getattr(outcome, "credential", None)
        state.is_waiting = False
        match outcome:
            case ToolCallSuspended():
                state.mark_waiting()
            case ToolEnded():
                state.result, state.is_error, state.code = outcome.content, outcome.is_error, outcome.code
                state.violations = outcome.violations
                if not outcome.ran:
                    state.granted_digest = None
            case AttemptCancelled():
                state.result, state.is_error, state.code = CANCELLED, True, Code.CANCELLED_SIGNAL

    @property
    def has_untrusted_result(self) -> bool:
        """True if a tool or an answer has returned text that is not trusted, or a fork has edited a result."""
        states = chain.from_iterable(self._states.values())
        results = (each.offer for each in states if each.attempts and each.offer is not None)
        return bool(self._edited) or self.has_untrusted_answer or any(not offer.trusted for offer in results)

    def has_granted(self, state: ToolCallState) -> bool:
        """Return True if another call of the same tool with the same arguments may run, or has run."""
        return any(
            each is not state and (each.granted_digest is not None or each.attempts) and each.is_like(state.call)
            for states in self._states.values()
            for each in states
        )

    def has_failed(self, call: ToolCall, *, before: StepKey, barriers: Sequence[StepKey] = ()) -> bool:
        """Return True if the same tool failed with the same arguments in a step that precedes that one.

        A call that is one of the `barriers` began after the calls before it in its round, agents included, had ended.
        """
        return any(
            state.is_error and state.attempts and state.is_like(call)
            for key, states in self._states.items()
            if key.precedes(before) or any(key.is_in_earlier_branch(each) for each in barriers)
            for state in states
        )

    def made(self, *, is_suspended: bool) -> list[ToolCallMade]:
        """Return every call, by step and then in call order, of an execution that has ended or `is_suspended`."""
        return [
            state.made(is_suspended=is_suspended, edited=id(state) in self._edited)
            for key in sorted(filter(self._states.get, self._states), key=numbers_of)
            for state in self._states[key]
        ]


class BudgetShare(NamedTuple):
    """Share of the budget that an attempt takes: tokens, and their cost in the configured currency."""

    tokens: int
    cost: float


NOTHING = BudgetShare(0, 0.0)


@value
class _Limit:
    """One limit as an attempt meets it: `reading` is what its input takes, `per_token` what a written token takes.

    What is `reserved` for the final answer is out of reach.
    """

    field: str
    maximum: float
    taken: float
    reserved: float
    reading: float
    per_token: float

    @property
    def writable_tokens(self) -> float:
        left = self.maximum - self.reserved - self.taken - self.reading
        return floor(left / self.per_token) if self.per_token else inf if left >= 0 else -1

    def refusal(self) -> OrchestrationFailure:
        needed, left = self.reading + self.per_token, max(0.0, self.maximum - self.reserved - self.taken)
        reserved = {"reserved": self.reserved} if self.reserved else {}
        return OrchestrationFailure(
            Code.ORCHESTRATION_BUDGET_EXCEEDED,
            f"{self.field} leaves {left:.10g} and the next inference needs {needed:.10g}",
            {"field": self.field, "limit": self.maximum, "used": self.taken, "needed": needed, **reserved},
        )


class Budget:
    """The token and cost limits of one execution, and the share that each attempt takes of them.

    `steps` are those that an earlier owner recorded. The `reserve` is withheld until it is used.
    """

    def __init__(
        self,
        tokens: int | None,
        cost: float | None,
        steps: Mapping[StepKey, RecordedStep],
        reserve: BudgetShare = NOTHING,
    ) -> None:
        self._tokens = tokens
        self._cost = cost
        self._reserve = reserve
        self._used = dict(_recorded_shares(steps))
        self._running: dict[str, BudgetShare] = {}

    @property
    def is_exhausted(self) -> bool:
        """True if nothing is left even if the running attempts take nothing."""
        used, reserve = _sum(self._used), self._reserve
        return (self._tokens is not None and used.tokens + reserve.tokens >= self._tokens) or (
            self._cost is not None and used.cost + reserve.cost >= self._cost
        )

    def grant(self, key: str, call: EngineCall, profile: EngineProfile, counter: TokenCounter) -> EngineCall:
        """Return the call with the tokens that it may write.

        Raises: OrchestrationFailure (ORCHESTRATION_BUDGET_EXCEEDED) if it could not write one.
        """
        read = count_tokens(call, counter)
        prices = profile.price or FREE
        tightest = min(self._limits(read, prices), key=lambda limit: limit.writable_tokens)
        wanted = call.hints.max_tokens or profile.response_reserve or profile.context_window
        written = int(min(tightest.writable_tokens, wanted))
        if written < 1:
            raise tightest.refusal()
        cost = read * prices.dearest_input_token + written * prices.output_token
        self._running[key] = BudgetShare(read + written, cost)
        return replace(call, hints=call.hints.model_copy(update={"max_tokens": written}), is_limited=True)

    def use_reserve(self) -> None:
        """Let the next attempts take what was withheld."""
        self._reserve = NOTHING

    def charge(self, key: str, usage: TokenUsage, prices: TokenPrices | None) -> None:
        """Replace the share of an attempt that ended with what it took."""
        self._running.pop(key, None)
        self.charge_share(key, BudgetShare(usage.total_tokens, (prices or FREE).cost_of(usage)))

    def charge_share(self, key: str, share: BudgetShare) -> None:
        """Add what a step took, once."""
        self._used[key] = share

    def _limits(self, read: int, prices: TokenPrices) -> Iterator[_Limit]:
        taken, reserve = _sum({**self._used, **self._running}), self._reserve
        if self._tokens is not None:
            yield _Limit("limits.tokens", self._tokens, taken.tokens, reserve.tokens, read, 1)
        if self._cost is not None:
            reading = read * prices.dearest_input_token
            yield _Limit("limits.cost", self._cost, taken.cost, reserve.cost, reading, prices.output_token)


def budget_for(
    limits: EffectiveLimits, history: ExecutionHistory | None = None, answered_by: Sequence[EngineProfile] = ()
) -> Budget | None:
    """Return the budget under these limits, less what the history has used; None without token and cost limits.

    A share is withheld for a final answer that one of the engines `answered_by` may write.
    """
    if limits.tokens is None and limits.cost is None:
        return None
    steps = {} if history is None else history.steps
    return Budget(limits.tokens, limits.cost, steps, _reserve(limits, answered_by))


def _reserve(limits: EffectiveLimits, answered_by: Sequence[EngineProfile]) -> BudgetShare:
    """Return what a final answer may take, but at most a quarter of each limit."""
    if not answered_by:
        return NOTHING
    tokens = max(_FINAL_ANSWER_READS + each.response_reserve for each in answered_by)
    cost = max(_final_answer_cost(each) for each in answered_by)
    return BudgetShare(
        tokens if limits.tokens is None else int(min(tokens, limits.tokens * _LARGEST_RESERVED_SHARE)),
        cost if limits.cost is None else min(cost, limits.cost * _LARGEST_RESERVED_SHARE),
    )


def _final_answer_cost(engine: EngineProfile) -> float:
    prices = engine.price or FREE
    return _FINAL_ANSWER_READS * prices.dearest_input_token + engine.response_reserve * prices.output_token


def _sum(shares: Mapping[str, BudgetShare]) -> BudgetShare:
    return BudgetShare(sum(share.tokens for share in shares.values()), fsum(share.cost for share in shares.values()))


def _recorded_shares(steps: Mapping[StepKey, RecordedStep]) -> Iterator[tuple[str, BudgetShare]]:
    for key, step in steps.items():
        if isinstance(step.outcome, AttemptSucceeded | AttemptFailed | AttemptCancelled):
            usage = usage_of(step.outcome)
            yield key, BudgetShare(usage.total_tokens, (recorded_prices(steps, step) or FREE).cost_of(usage))
        elif isinstance(step.outcome, Retrieved) and step.outcome.embedding is not None:
            yield key, BudgetShare(step.outcome.embedding.tokens, step.outcome.embedding.cost)


def recorded_prices(steps: Mapping[StepKey, RecordedStep], attempt: RecordedStep) -> TokenPrices | None:
    """Return the prices of the candidate of a recorded attempt, from the setup of its inference."""
    inference = steps.get(StepKey(attempt.key).parent)
    if inference is None or not isinstance(inference.outcome, InferenceSetup):
        return None
    setup = inference.outcome
    candidates = setup.all_candidates if setup.by_cause else setup.candidates
    return next((each.prices for each in candidates if each.fingerprint == attempt.fingerprint), None)


def _begun_calls(history: ExecutionHistory) -> set[StepKey]:
    """Return the keys of the tool calls that have run, or may have."""
    if not history.steps and not history.events:
        return set()
    ended = {
        key: not isinstance(step.outcome, ToolEnded) or step.outcome.ran
        for key, step in history.steps.items()
        if isinstance(step.outcome, ToolEnded | ToolCallSuspended | AgentCallStarted | CodeStarted)
    }
    started = {StepKey(each.anchor): True for each in history.events if isinstance(each.event, ToolStart)}
    return {call_key(attempt) for attempt, has_run in (started | ended).items() if has_run}


def _is_attempt(outcome: ToolEnded | ToolCallSuspended | AttemptCancelled) -> bool:
    """Return True for an outcome that ends an attempt at a call: it ran, and does not go on after a question."""
    if isinstance(outcome, ToolCallSuspended):
        return outcome.state is None
    return not isinstance(outcome, ToolEnded) or outcome.ran


def too_many_calls(limit: int | None) -> str:
    """Return the result of a call beyond the limit of the execution."""
    return f"not run: an execution makes at most {limit} tool calls"


def call_key(attempt: StepKey) -> StepKey:
    """Return the key of the tool call that an attempt belongs to."""
    return attempt.parent.parent


def _order(attempt: _Attempt) -> tuple[float, tuple[int, ...]]:
    return attempt.at, numbers_of(attempt.key)
