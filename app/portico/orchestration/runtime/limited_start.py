"""Start within the limits of the caller: the request and the slot that an execution takes before it is opened."""

from collections.abc import Sequence

from portico.capabilities.limits.quotas import Quota, RunSlot, unpriced_failure
from portico.domain.failures import RequestFailure
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import RecordedStep
from portico.domain.lifecycle import Mode
from portico.orchestration.execution.environment import Environment, quota_of
from portico.ports.journal import IdempotencyClaim, IdempotencyHit

_ASKS_THE_MODEL_OF_THE_REQUEST = frozenset({Mode.CHAT, Mode.STRUCTURED})


async def open_within_limits(
    environment: Environment,
    header: ExecutionHeader,
    claim: IdempotencyClaim | None = None,
    *,
    steps: Sequence[RecordedStep] = (),
    queued: bool = False,
) -> RunSlot | IdempotencyHit | None:
    """Open the history of a new execution, and return what it has taken; None without limits.

    A queued one takes its slot when it runs. Nothing is taken if the execution is refused, or if another one holds the
    idempotency key: it is returned then, though the limits be used up. Raises: RequestFailure (REQUEST_RATE_LIMITED,
    and those of `Journal.open`); StorageFailure; AccessFailure and OrchestrationFailure for what no wait would allow.
    """
    journal, quota = environment.journal, quota_of(header, environment)
    if quota is None:
        return await journal.open(header, claim, steps=steps, queued=queued)
    if header.mode in _ASKS_THE_MODEL_OF_THE_REQUEST:
        _refuse_impossible(environment, header, quota)
    try:
        slot = await (quota.admit_to_queue() if queued else quota.admit())
    except RequestFailure:
        hit = None if claim is None else await journal.holder_of_key(header, claim)
        if hit is None:
            raise
        return hit
    try:
        hit = await journal.open(header, claim, steps=steps, queued=queued)
    except BaseException:
        slot.refund()
        raise
    if hit is None:
        return slot
    slot.refund()
    return hit


def _refuse_impossible(environment: Environment, header: ExecutionHeader, quota: Quota) -> None:
    """Refuse a request whose first inference could never run: no engine has a price, or it may write too much.

    Raises: AccessFailure; OrchestrationFailure (ORCHESTRATION_BUDGET_EXCEEDED).
    """
    request, bounds = header.request, header.bounds
    profiles = [engine.profile for engine in environment.catalogue.resolve(request.model)]
    if quota.has_cost_limit:
        profiles = [each for each in profiles if each.price is not None]
    if not profiles:
        raise unpriced_failure()
    written = request.hints.max_tokens or min(each.response_reserve for each in profiles)
    quota.require_possible(written if bounds.tokens is None else min(written, bounds.tokens))
