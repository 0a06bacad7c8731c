"""Start within the limits of the caller: the request and the slot that an execution takes before it is opened."""

from collections.abc import Sequence

from app.capabilities.limits.quotas import RunSlot
from app.domain.failures import RequestFailure
from app.domain.journal.header import ExecutionHeader
from app.domain.journal.outcomes import RecordedStep
from app.orchestration.execution.environment import Environment, quota_of
from app.ports.journal import IdempotencyClaim, IdempotencyHit


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
    and those of `Journal.open`); StorageFailure.
    """
    journal, quota = environment.journal, quota_of(header, environment)
    if quota is None:
        return await journal.open(header, claim, steps=steps, queued=queued)
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
