"""Inference: the providers that are offered a request, and the attempts until one answers."""

from collections.abc import Sequence

from pydantic import JsonValue

from portico.capabilities.limits.quotas import unpriced_failure
from portico.capabilities.models.breaker import ProviderHealth
from portico.capabilities.models.context_window import (
    Window,
    capacity,
    context_exceeded,
    largest_window,
    measure,
    results_to_cut,
    with_results_cut,
)
from portico.capabilities.models.failover import FailoverWalk
from portico.capabilities.models.format_enforcement import candidate_for, choose_enforcement
from portico.domain.fallback import State
from portico.domain.journal.events import Event, InferenceRetracted
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import (
    AttemptCancelled,
    AttemptFailed,
    AttemptSucceeded,
    Candidate,
    InferenceSetup,
    Outcome,
    RecordedStep,
    Refused,
    TimerFired,
)
from portico.domain.journal.step_key import StepKey
from portico.domain.model_call import EngineCall, Reply
from portico.domain.value import value
from portico.orchestration.execution.effect import Effect
from portico.orchestration.execution.environment import Environment, quota_of
from portico.orchestration.execution.execution import Execution
from portico.orchestration.execution.inferences.attempt import InferenceRequest, PreparedCall, ProviderAttempt
from portico.ports.model import Engine


@value
class InferenceResult:
    """The reply, the candidate and the attempt that gave it, and what the inference was offered."""

    reply: Reply
    candidate: Candidate
    attempt_key: StepKey
    setup: InferenceSetup


class Inference:
    """One inference. Its attempts are `key/0`, `key/1`, …; the delay before the retry of `key/0` is `key/0/0`."""

    def __init__(self, execution: Execution, key: StepKey, request: InferenceRequest) -> None:
        self.ended_at = 0.0
        """When its last attempt ended, in Unix seconds."""
        self._execution = execution
        self._key = key
        self._anchor = key
        self._request = request

    async def run(self) -> InferenceResult:
        """Ask one provider after the other until one answers. Raises: InferenceFailure, OrchestrationFailure."""
        preparation = InferencePreparation(self._key, self._request, self._execution.header)
        if not self._execution.recorder.is_read_only:
            preparation.is_instant = self._execution.environment.tool_registry.is_current(self._request.tools)
        setup = (await self._execution.perform(preparation)).outcome
        if isinstance(setup, Refused):
            raise setup.failure()
        assert isinstance(setup, InferenceSetup)  # noqa: S101 - the other outcome of a preparation
        if setup.cut:
            self._request.conversation[:] = with_results_cut(self._request.conversation, setup.cut)
        walk = FailoverWalk(self._key, setup, self._execution.header.bounds.max_retries)
        recorder, correlation = self._execution.recorder, self._request.correlation
        while True:
            recorder.emit(self._anchor, correlation, *walk.select())
            if walk.candidate is None:
                raise walk.failure()
            reply = await self._ask(walk.candidate, walk, preparation.prepared)
            if reply is not None:
                return InferenceResult(reply, walk.candidate, self._anchor, setup)

    async def _ask(self, candidate: Candidate, walk: FailoverWalk, prepared: PreparedCall | None) -> Reply | None:
        """Attempt the candidate until it answers or is left. Raises: Failure if another one would not help."""
        recorder, correlation = self._execution.recorder, self._request.correlation
        while True:
            attempt = ProviderAttempt(self._execution, self._request, candidate, walk, prepared=prepared)
            step = await self._execution.perform(attempt)
            self._anchor, self.ended_at, outcome = attempt.key, step.at, step.outcome
            if isinstance(outcome, AttemptSucceeded):
                recorder.emit(self._anchor, correlation, *walk.succeed())
                return outcome.reply
            assert isinstance(outcome, AttemptFailed)  # noqa: S101 - the other outcome of an attempt
            await self._move_on(walk, outcome)
            is_left = walk.state is not State.ATTEMPTING
            if outcome.streamed and (walk.has_candidates_left or not is_left):
                recorder.emit(self._anchor, correlation, InferenceRetracted(attempt.segment))
            if is_left:
                return None

    async def _move_on(self, walk: FailoverWalk, outcome: AttemptFailed) -> None:
        """Go on to a retry, after its delay, or leave the candidate. Raises: Failure if the request is at fault."""
        recorder, correlation = self._execution.recorder, self._request.correlation
        recorder.emit(self._anchor, correlation, *walk.fail(outcome))
        if walk.refusal is not None:
            raise walk.refusal
        if walk.state is State.RETRYING:
            if outcome.wait:
                delay = RetryDelay(self._execution, self._request, walk, outcome.wait)
                await self._execution.perform(delay)
                self._anchor = delay.key
            recorder.emit(self._anchor, correlation, *walk.retry())


class InferencePreparation(Effect):
    """The effect that finds out which tools and candidates an inference has, and what is cut to fit them.

    It waits only if the availability of a tool is not known.
    """

    is_instant = True

    def __init__(self, key: StepKey, request: InferenceRequest, header: ExecutionHeader) -> None:
        self.key = key
        self.fingerprint = request.fingerprint
        self.correlation = request.correlation
        self.prepared: PreparedCall | None = None
        """The call with the tools that are offered; None if an earlier run prepared the inference."""
        self._request = request
        self._header = header

    def asked(self) -> JsonValue:
        """Return what the inference asks."""
        return self._request.asked()

    async def run(self, environment: Environment) -> Outcome:
        """Return the setup, or a refusal if the conversation exceeds every context window, or no engine has a price
        and the caller has a cost limit.
        """
        request = self._request
        if not self.is_instant:
            await environment.tool_registry.refresh(request.tools)
        engines = self._engines(environment)
        quota = quota_of(self._header, environment)
        if quota is not None and quota.has_cost_limit:
            engines = [engine for engine in engines if engine.profile.price is not None]
            if not engines:
                return Refused.by(unpriced_failure())
        tools, definitions = request.offer(environment, request.tools)
        window = largest_window(engines, self._header.tenant, environment.token_estimator)
        counter = window.counter
        terms = measure(request.conversation, definitions, counter, window.limit)
        cut: tuple[int, ...] = ()
        if terms.used > terms.limit:
            over = terms.used - terms.limit
            cut = results_to_cut(request.conversation, turn_starts=request.turn_start, over=over, counter=counter)
            terms = measure(with_results_cut(request.conversation, cut), definitions, counter, terms.limit)
            if terms.used > terms.limit:
                return Refused.by(context_exceeded(terms))
        call, estimated = request.engine_call(definitions), terms.used / counter.ratio
        self.prepared = PreparedCall(call, estimated)
        fitting = [engine for engine in engines if self._fits(engine, window, terms.used, environment)]
        candidates, left_out, closed_for = _candidates(call, environment.health, fitting)
        return InferenceSetup(tools, candidates, left_out, closed_for, cut, terms)

    def _fits(self, engine: Engine, widest: Window, used: int, environment: Environment) -> bool:
        """Return True if what uses so much of the widest window fits that of the engine, in the tokens of its model."""
        counter = environment.token_estimator.counter(self._header.tenant, engine.profile.model)
        if counter.ratio == widest.counter.ratio:
            return used <= capacity(engine)
        return used / widest.counter.ratio * counter.ratio <= capacity(engine)

    def _engines(self, environment: Environment) -> Sequence[Engine]:
        """Return the engines in the order in which they are asked.

        The one that answered last comes first; after a rejected answer, on a rerouting route, it comes last.
        """
        engines = environment.catalogue.resolve(self._request.model)
        last = self._request.last_provider
        reroutes = environment.catalogue.reroutes_rejected_answers(self._request.model)
        if not (self._request.previous_rejected and reroutes):
            return sorted(engines, key=lambda engine: engine.profile.name != last)
        after = next((index + 1 for index, engine in enumerate(engines) if engine.profile.name == last), 0)
        return [*engines[after:], *engines[:after]]


class RetryDelay(Effect):
    """The effect of waiting before the candidate is attempted again."""

    def __init__(self, execution: Execution, request: InferenceRequest, walk: FailoverWalk, seconds: float) -> None:
        self.key = walk.attempt_key.child(0)
        self.fingerprint = f"wait:{seconds}"
        self.correlation = request.correlation
        self._execution = execution
        self._walk = walk
        self._seconds = seconds

    def asked(self) -> JsonValue:
        """Return the seconds to wait."""
        return {"seconds": self._seconds}

    async def run(self, environment: Environment) -> TimerFired:
        """Wait."""
        await environment.clock.sleep(self._seconds)
        return TimerFired()

    def end_events(self, outcome: Outcome) -> Sequence[Event]:
        """Return the abort of the fallback machine after a cancellation."""
        return [self._walk.abort(is_waiting=True)] if isinstance(outcome, AttemptCancelled) else ()

    def account(self, step: RecordedStep) -> None:
        """Add the delay to the ledger."""
        self._execution.ledger.record_delay(step, self._seconds)


def _candidates(
    call: EngineCall, health: ProviderHealth, engines: Sequence[Engine]
) -> tuple[tuple[Candidate, ...], tuple[Candidate, ...], float]:
    """Return the engines whose breaker allows an attempt, the others, and in how many seconds one of these does."""
    candidates, left_out, seconds_until_probe = [], [], []
    for engine in engines:
        breaker = health.breakers[engine.profile.name]
        if breaker.allows_attempt:
            candidates.append(candidate_for(call, engine.profile, choose_enforcement(call, engine.profile)))
        else:
            left_out.append(candidate_for(call, engine.profile, None))
            seconds_until_probe.append(breaker.seconds_until_probe)
    return tuple(candidates), tuple(left_out), min(seconds_until_probe, default=0.0)
