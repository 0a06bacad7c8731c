"""Start within limits: the request, the slot and the place that an execution takes before it is opened.

A request that is refused leaves nothing, since nothing is written before it has all that it takes. An execution in
memory takes its place when it starts: until then nothing of it is written.
"""

from collections.abc import Sequence
from typing import NamedTuple

from portico.capabilities.limits.quotas import Quota, RunSlot, unpriced_failure
from portico.capabilities.tools.credentials import CredentialHolder, CredentialSource
from portico.domain.failures import RequestFailure
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import RecordedStep
from portico.domain.lifecycle import Mode
from portico.orchestration.execution.environment import Environment
from portico.ports.journal import IdempotencyClaim, IdempotencyHit
from portico.ports.runtime import ReservedPlace, Runner

_ASKS_THE_MODEL_OF_THE_REQUEST = frozenset({Mode.CHAT, Mode.STRUCTURED})


class Opening(NamedTuple):
    """Resources of an execution that was opened: a slot in the limits of its caller, and a place to run in."""

    slot: RunSlot | None = None
    place: ReservedPlace | None = None

    def refund(self) -> None:
        """Give everything back."""
        if self.slot is not None:
            self.slot.refund()
        if self.place is not None:
            self.place.release()


NOTHING_TAKEN = Opening()


async def open_within_limits(
    environment: Environment,
    runner: Runner,
    header: ExecutionHeader,
    claim: IdempotencyClaim | None = None,
    *,
    steps: Sequence[RecordedStep] = (),
    queued: bool = False,
) -> Opening | IdempotencyHit:
    """Open the history of a new execution, and return what it has taken.

    A queued one takes its slot and its place when it runs. Nothing is taken if the execution is refused, or if another
    one holds the idempotency key: it is returned then, though the limits be used up.

    Raises: RequestFailure (REQUEST_RATE_LIMITED, REQUEST_OVERLOADED, REQUEST_SHUTTING_DOWN, and those of
    `Journal.open`); StorageFailure; AccessFailure and OrchestrationFailure for what no wait would allow.
    """
    source = environment.credentials
    if source is not None and header.execution_id in source.arriving:
        return await _open_with_credentials(source, environment, runner, header, claim, steps=steps, queued=queued)
    journal, quota = environment.journal, environment.quotas.of(header.tenant, header.key_id, header.key_limits)
    if quota is None and header.durability == "memory":
        hit = await journal.open(header, claim, steps=steps)
        return NOTHING_TAKEN if hit is None else hit
    try:
        if queued:
            await runner.admit()
        if quota is not None and header.mode in _ASKS_THE_MODEL_OF_THE_REQUEST:
            _refuse_impossible(environment, header, quota)
        opening = await _take(runner, header, quota, queued=queued)
    except RequestFailure:
        hit = None if claim is None else await journal.holder_of_key(header, claim)
        if hit is None:
            raise
        return hit
    try:
        hit = await journal.open(header, claim, steps=steps, queued=queued)
    except BaseException:
        opening.refund()
        raise
    if hit is None:
        return opening
    opening.refund()
    return hit


async def _open_with_credentials(
    source: CredentialSource,
    environment: Environment,
    runner: Runner,
    header: ExecutionHeader,
    claim: IdempotencyClaim | None,
    *,
    steps: Sequence[RecordedStep],
    queued: bool,
) -> Opening | IdempotencyHit:
    """Open the history of an execution whose request has brought values of credentials.

    They are stored before it if it is journaled, and gone again if it is refused.
    """
    holder = CredentialHolder(header.tenant, header.user, header.execution_id)
    given = source.arriving.pop(header.execution_id)
    await source.hold(holder, given, stored=header.durability == "journaled")
    opening: Opening | IdempotencyHit | None = None
    try:
        opening = await open_within_limits(environment, runner, header, claim, steps=steps, queued=queued)
    finally:
        if not isinstance(opening, Opening):
            await source.forget(header.execution_id)
    return opening


async def _take(runner: Runner, header: ExecutionHeader, quota: Quota | None, *, queued: bool) -> Opening:
    """Take the request and the slot, then the place of an execution that is written before it starts."""
    if queued:
        return Opening(None if quota is None else await quota.admit_to_queue())
    slot = None if quota is None else await quota.admit()
    try:
        return Opening(slot, runner.reserve() if header.durability == "journaled" else None)
    except RequestFailure:
        if slot is not None:
            slot.refund()
        raise


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
