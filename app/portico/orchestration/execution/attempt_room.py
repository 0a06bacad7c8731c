"""The place of an attempt on its engine: the room that it waits for, and what follows when it has failed."""

from hashlib import blake2b
from math import isfinite

from portico.capabilities.limits.caps import CallSize, CapReservation
from portico.capabilities.models.context_window import count_tokens
from portico.capabilities.models.failover import FailoverWalk
from portico.capabilities.models.lane import Lane
from portico.capabilities.models.room import Room
from portico.domain.contract.response import NO_USAGE
from portico.domain.failures import Failure, StorageFailure
from portico.domain.ids import ExecutionId
from portico.domain.journal.outcomes import AttemptFailed
from portico.domain.model_call import RULES, UNSENT, AttemptFailureReason, EngineCall, FailureAction
from portico.domain.token_prices import TokenPrices
from portico.domain.value import replace
from portico.orchestration.execution.execution import Execution
from portico.ports.model import EngineError, EngineProfile, TokenCounter


def call_size(call: EngineCall, profile: EngineProfile, prices: TokenPrices, counter: TokenCounter) -> CallSize:
    """Return the estimated input of the call and what may be written, and their price."""
    read = count_tokens(call, counter)
    written = call.hints.max_tokens or profile.response_reserve or profile.context_window
    return CallSize(read + written, read * prices.dearest_input_token + written * prices.output_token)


async def take_room(
    room: Room, lane: Lane, execution: Execution, size: CallSize, *, follows: bool
) -> CapReservation | AttemptFailed:
    """Take what a call of that size needs of the caps, after a rest; the refusal is the outcome.

    It is not waited for where another deployment of the engine `follows`, and a free connection is needed then.
    """
    if follows and not lane.free:
        return unsent(AttemptFailureReason.LIMITED, "all connections of the deployment are taken")
    patience = 0.0 if follows else min(execution.environment.health.policy.retry_after_cap, execution.seconds_left)
    try:
        taken = await room.take(execution.header.execution_id, size, patience)
    except StorageFailure as unknown:
        return refused(AttemptFailureReason.LIMIT_UNKNOWN, unknown)
    if isinstance(taken, CapReservation):
        return taken
    retry_after = taken if isfinite(taken) else None
    return unsent(AttemptFailureReason.LIMITED, "a limit of the engine leaves no room for the attempt", retry_after)


def next_attempt(error: EngineError, execution: Execution, walk: FailoverWalk) -> tuple[float | None, bool]:
    """Return the delay before a retry, None if there is none, and whether the engine is left with all deployments.

    Where another deployment follows it is asked instead, at once, unless only the kept blocks were refused.
    """
    health, reason = execution.environment.health, error.reason
    assert walk.candidate is not None  # noqa: S101 - it has failed
    address = walk.candidate.address
    if reason is not AttemptFailureReason.KEPT_REFUSED and (following := walk.other_deployments):
        is_asked_again = reason not in UNSENT and RULES[reason].action is not FailureAction.FATAL
        return None, is_asked_again and not health.may_follow(address, following)
    delay = health.retry_delay(
        address,
        error,
        spent=walk.retries_spent,
        seconds_left=execution.seconds_left,
        jitter=jitter(execution.header.execution_id, walk.attempt_key),
    )
    return delay, False


def jitter(execution_id: ExecutionId, key: str) -> float:
    """Return a number in [0, 1) that is derived from the step."""
    return int.from_bytes(blake2b(f"{execution_id}:{key}".encode(), digest_size=7).digest()) / 2**56


def refused(reason: AttemptFailureReason, refusal: Failure) -> AttemptFailed:
    """Return the outcome of an attempt that was refused before anything was sent."""
    return replace(unsent(reason, refusal.message, refusal.retry_after), details=refusal.details)


def unsent(reason: AttemptFailureReason, message: str, retry_after: float | None = None) -> AttemptFailed:
    """Return the outcome of an attempt for which nothing was sent."""
    return AttemptFailed(
        reason, message, None, retry_after, streamed=False, partial="", usage=NO_USAGE, duration_ms=0.0
    )
