"""Caps: the most that all callers together may send to an engine or a deployment; replicas share them as quotas."""

from collections.abc import Callable, Sequence
from typing import Final

from portico.capabilities.limits.accounts import RateAccount, SlotAccount, millionths, take_units
from portico.domain.access.limits import LimitKind
from portico.domain.value import value
from portico.ports.runtime import Clock

SLOT_RETRY_S: Final = 1.0
"""Seconds after which a slot that other replicas use may be free."""


@value
class CallSize:
    """Most that one attempt may take: tokens, and their cost."""

    tokens: int
    cost: float

    def units(self, kind: LimitKind) -> int:
        """Return what that is of a limit of this kind."""
        match kind:
            case LimitKind.TOKENS:
                return self.tokens
            case LimitKind.COST:
                return millionths(self.cost)
            case _:
                return 1


class CapReservation:
    """Most that one attempt may take of the caps, until it is settled. `on_settled` is called then."""

    def __init__(
        self,
        claims: Sequence[tuple[LimitKind, RateAccount, int]],
        slots: Sequence[SlotAccount],
        on_settled: Callable[[], None],
    ) -> None:
        self._claims = claims
        self._slots = slots
        self._on_settled: Callable[[], None] | None = on_settled

    def settle(self, tokens: int, cost: float, *, was_sent: bool = True) -> None:
        """Spend what the attempt took instead, nothing if it was not sent; a second time changes nothing."""
        if self._on_settled is None:
            return
        taken = CallSize(tokens, cost)
        for kind, account, units in self._claims:
            account.spend((taken.units(kind) if was_sent else 0) - units)
        for slot in self._slots:
            slot.release()
        on_settled, self._on_settled = self._on_settled, None
        on_settled()


class Caps:
    """The caps of one deployment and of its engine, or of an engine without deployments."""

    def __init__(
        self, rates: Sequence[tuple[LimitKind, RateAccount]], slots: Sequence[SlotAccount], clock: Clock
    ) -> None:
        self._rates = rates
        self._slots = slots
        self._clock = clock

    def seconds_until(self, size: CallSize) -> float:
        """Return after how long a call of that size may be sent, as far as this replica knows; 0 if it may now."""
        waits = [account.seconds_until(size.units(kind)) for kind, account in self._rates]
        waits += [SLOT_RETRY_S for account in self._slots if not account.available]
        return max(waits, default=0.0)

    async def take(self, size: CallSize, on_settled: Callable[[], None]) -> CapReservation | float:
        """Take what a call of that size needs, or nothing and return after how many seconds it may be there.

        Those are infinite if it can never fit. Raises: StorageFailure.
        """
        taken: list[SlotAccount] = []
        claims = [(kind, account, size.units(kind)) for kind, account in self._rates]
        is_taken = False
        try:
            for slot in self._slots:
                if not await slot.take():
                    return SLOT_RETRY_S
                taken.append(slot)
            late = await take_units([(account, units) for _, account, units in claims])
            if late:
                return max(late.values())
            is_taken = True
            return CapReservation(claims, taken, on_settled)
        finally:
            if not is_taken:
                for slot in taken:
                    slot.release()
