"""Quotas: the limits that hold for one caller, those of its key beside those of its tenant.

Admission takes a request and a slot. Each attempt on a model reserves what it may take at most before it starts, and
settles when it has ended. The first reservation of an execution is refused if it does not fit, because its client can
come back; a later one waits within the deadline, because the work before it is paid for.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from math import ceil, inf
from types import MappingProxyType
from typing import Final, NamedTuple

from portico.capabilities.limits.accounts import RateAccount, SlotAccount, millionths, take_units
from portico.capabilities.limits.caps import Caps
from portico.domain.access.limits import DEFAULT_TENANT, MILLIONTHS, NO_LIMITS, AccessLimits, LimitKind, Rate
from portico.domain.failures import AccessFailure, Code, OrchestrationFailure, RequestFailure, StorageFailure
from portico.domain.ids import TenantId
from portico.ports.limits import LimitStore
from portico.ports.runtime import Clock

SLOT_RETRY_S: Final = 1.0
_RENEWAL_S: Final = 5.0
_MAX_ACCOUNTS: Final = 10_000
"""Limits that are remembered although nothing of them is used."""
_CAPS: Final = "engine:"
"""Prefix of the accounts of engines, which the configuration names once."""


class PolicyStatus(NamedTuple):
    """One limit as a client sees it: what is left of it, and after how many seconds that is all of it."""

    name: str
    kind: LimitKind
    quota: int
    seconds: int | None
    remaining: int
    full_in: float


class LimitObserver:
    """Counts of what limits have held up. `on_refused` is called with the name of each limit that refused."""

    def __init__(self, on_refused: Callable[[str], None] = lambda _: None) -> None:
        self.on_refused = on_refused
        self.waiting: Counter[LimitKind] = Counter()
        """Executions that wait now: for a slot (`concurrency`), for tokens or for cost."""


class RunSlot:
    """The request and the slots that one execution has taken."""

    def __init__(self, slots: Sequence[SlotAccount] = (), requests: Sequence[RateAccount] = ()) -> None:
        self._slots = slots
        self._held = list(slots)
        self._requests = requests

    def release(self) -> None:
        """Free the slots; a second time changes nothing."""
        held, self._held = self._held, []
        for account in held:
            account.release()

    async def retake(self) -> None:
        """Take the slots again once there are some, if they were released. A cancelled wait may have taken a few."""
        if not self._held:
            for account in self._slots:
                await account.wait_and_take()
                self._held.append(account)

    def refund(self) -> None:
        """Free the slots and give the request back: there was no execution."""
        self.release()
        requests, self._requests = self._requests, ()
        for account in requests:
            account.spend(-1)


class Reservation:
    """Most that one attempt may take of tokens and cost, until it is settled."""

    def __init__(self, claims: Sequence[tuple[LimitKind, RateAccount, int]]) -> None:
        self._claims = claims

    def settle(self, tokens: int, cost: float) -> None:
        """Spend what the attempt took instead; a second time changes nothing."""
        claims, self._claims = self._claims, ()
        taken = {LimitKind.TOKENS: tokens, LimitKind.COST: millionths(cost)}
        for kind, account, units in claims:
            account.spend(taken[kind] - units)


class Quota:
    """The limits of one caller."""

    def __init__(
        self,
        rates: Sequence[tuple[LimitKind, RateAccount]],
        slots: Sequence[SlotAccount],
        observer: LimitObserver,
        clock: Clock,
    ) -> None:
        self._rates = rates
        self._clock = clock
        self._slots = slots
        self._observer = observer
        self._requests = [account for kind, account in rates if kind is LimitKind.REQUESTS]
        self._reserved = [(kind, account) for kind, account in rates if kind is not LimitKind.REQUESTS]
        self.has_cost_limit = any(kind is LimitKind.COST for kind, _ in rates)

    @property
    def needs_reservation(self) -> bool:
        """True if attempts take tokens or cost of it."""
        return bool(self._reserved)

    def status(self) -> list[PolicyStatus]:
        """Return every limit, as far as this replica knows."""
        now = self._clock.now()
        rates = [
            PolicyStatus(account.policy, kind, account.rate.quota, account.rate.seconds, *account.state(now))
            for kind, account in self._rates
        ]
        kind = LimitKind.CONCURRENCY
        return rates + [PolicyStatus(each.policy, kind, each.limit, None, each.available, 0.0) for each in self._slots]

    async def admit(self) -> RunSlot:
        """Take a request and the slots. Raises: RequestFailure (REQUEST_RATE_LIMITED); StorageFailure."""
        await self.admit_to_queue()
        taken: list[SlotAccount] = []
        try:
            refused = await self._take_slots(taken)
        except BaseException:
            RunSlot(taken, self._requests).refund()
            raise
        if refused is not None:
            RunSlot(taken, self._requests).refund()
            raise self._refused({refused.policy: SLOT_RETRY_S})
        return RunSlot(taken, self._requests)

    async def admit_to_queue(self) -> RunSlot:
        """Take a request only: the execution waits for its slot later. Raises: as `admit`."""
        late = await take_units([(account, 1) for account in self._requests])
        if late:
            raise self._refused({account.policy: seconds for account, seconds in late.items()})
        return RunSlot((), self._requests)

    async def wait_for_slot(self) -> RunSlot:
        """Take the slots once there are some."""
        taken: list[SlotAccount] = []
        self._observer.waiting[LimitKind.CONCURRENCY] += 1
        try:
            for account in self._slots:
                await account.wait_and_take()
                taken.append(account)
        except BaseException:
            RunSlot(taken).release()
            raise
        finally:
            self._observer.waiting[LimitKind.CONCURRENCY] -= 1
        return RunSlot(taken)

    def require_possible(self, tokens: int) -> None:
        """Raise OrchestrationFailure (ORCHESTRATION_BUDGET_EXCEEDED) if an inference that may take them never fits."""
        for kind, account in self._reserved:
            if kind is LimitKind.TOKENS and tokens > account.rate.quota:
                raise _never_fits(kind, account, tokens)

    async def reserve(self, tokens: int, cost: float, patience: Callable[[], float] | None = None) -> Reservation:
        """Take what an attempt may take at most; without `patience` at once, else within so many seconds.

        Raises: OrchestrationFailure (ORCHESTRATION_BUDGET_EXCEEDED) if it can never fit or not within that time;
        RequestFailure (REQUEST_RATE_LIMITED) if it does not fit at once; StorageFailure.
        """
        needed = {LimitKind.TOKENS: tokens, LimitKind.COST: millionths(cost)}
        claims = [(kind, account, needed[kind]) for kind, account in self._reserved]
        for kind, account, units in claims:
            if units > account.rate.quota:
                raise _never_fits(kind, account, units)
        while late := await take_units([(account, units) for _, account, units in claims]):
            account, seconds = max(late.items(), key=lambda each: each[1])
            if patience is None:
                raise self._refused({each.policy: wait for each, wait in late.items()})
            if seconds > patience():
                raise _does_not_fit_in_time(account, seconds)
            await self._wait(account, seconds)
        return Reservation(claims)

    async def _take_slots(self, taken: list[SlotAccount]) -> SlotAccount | None:
        """Take a slot of each account and add it to those taken; return the account that has none."""
        for account in self._slots:
            if not await account.take():
                return account
            taken.append(account)
        return None

    async def _wait(self, account: RateAccount, seconds: float) -> None:
        kind = next(kind for kind, each in self._reserved if each is account)
        self._observer.waiting[kind] += 1
        try:
            await account.wait(seconds)
        finally:
            self._observer.waiting[kind] -= 1

    def _refused(self, waits: Mapping[str, float]) -> RequestFailure:
        for policy in waits:
            self._observer.on_refused(policy)
        names = ", ".join(waits)
        message = f"the limit is used up: {names}" if len(waits) == 1 else f"these limits are used up: {names}"
        details = {"violated_policies": list(waits)}
        return RequestFailure(Code.REQUEST_RATE_LIMITED, message, details, retry_after=ceil(max(waits.values())))


class Quotas:
    """The quotas of all callers of this replica. `tenants` are the configured limits by tenant.

    `engines` has for each address of an engine or a deployment the limits that hold for it, by the name of whose they
    are: those of a deployment and of its engine.
    """

    def __init__(
        self,
        store: LimitStore,
        clock: Clock,
        tenants: Mapping[str, AccessLimits] = MappingProxyType({}),
        observer: LimitObserver | None = None,
        engines: Mapping[str, Mapping[str, AccessLimits]] = MappingProxyType({}),
    ) -> None:
        self.observer = observer or LimitObserver()
        self._store = store
        self._clock = clock
        self._tenants = tenants
        self._rates: dict[tuple[str, Rate], RateAccount] = {}
        self._slots: dict[tuple[str, int], SlotAccount] = {}
        self._quotas: dict[tuple[TenantId, str | None], tuple[AccessLimits, Quota | None]] = {}
        self.caps: Mapping[str, Caps] = {address: self._caps(limits) for address, limits in engines.items()}
        """What engines and deployments may take, by address; those that may take anything are absent."""

    def of(self, tenant: TenantId, key_id: str | None = None, key_limits: AccessLimits = NO_LIMITS) -> Quota | None:
        """Return the quota of a caller; None if nothing limits it."""
        if key_limits is NO_LIMITS and not self._tenants:
            return None
        known = self._quotas.get((tenant, key_id))
        if known is None or known[0] != key_limits:
            known = self._quotas[tenant, key_id] = key_limits, self._quota(tenant, key_id, key_limits)
        return known[1]

    async def settle(self) -> None:
        """Give back what is not used, take what was overspent, and renew the slots. Raises: StorageFailure."""
        async with AsyncExitStack() as stack:
            slots = {account.name: account.used for account in await self._slots_to_renew(stack)}
            surplus = [(account, units) for account in self._rates.values() if (units := account.surplus())]
            for account, units in surplus:
                account.give_back(units)
            if surplus or slots:
                try:
                    await self._store.settle(
                        {(account.name, account.rate): -units for account, units in surplus}, slots
                    )
                except StorageFailure:
                    for account, units in surplus:
                        account.give_back(-units)
                    raise
        self._drop_idle()

    async def _slots_to_renew(self, stack: AsyncExitStack) -> list[SlotAccount]:
        """Return the accounts with slots to give back or to renew, locked; what is not used is not held any more."""
        due = []
        for account in [each for each in self._slots.values() if each.held]:
            await stack.enter_async_context(account.lock)
            now = self._clock.monotonic()
            if account.held > account.used or now - account.renewed_at >= _RENEWAL_S:
                account.held, account.renewed_at = account.used, now
                due.append(account)
        return due

    def _drop_idle(self) -> None:
        """Forget the callers that use nothing once there are many."""
        idle = [key for key, account in self._rates.items() if account.is_idle and not key[0].startswith(_CAPS)]
        for account in self._rates.values():
            account.was_used = False
        if len(self._rates) + len(self._slots) > _MAX_ACCOUNTS:
            for key in idle:
                del self._rates[key]
            slots = [key for key, account in self._slots.items() if account.is_idle and not key[0].startswith(_CAPS)]
            for name in slots:
                del self._slots[name]
            self._quotas.clear()

    def _quota(self, tenant: TenantId, key_id: str | None, key_limits: AccessLimits) -> Quota | None:
        shared = self._tenants.get(tenant, self._tenants.get(DEFAULT_TENANT, NO_LIMITS))
        owners = [(f"tenant:{tenant}", "tenant-", shared)]
        if key_id is not None:
            owners.insert(0, (f"key:{key_id}", "", key_limits))
        rates = [
            (kind, self._rate_account(f"{owner}/{kind}", prefix + kind, rate))
            for owner, prefix, limits in owners
            for kind, rate in _rates(limits)
        ]
        slots = [
            self._slot_account(f"{owner}/{LimitKind.CONCURRENCY}", prefix + LimitKind.CONCURRENCY, limits.concurrency)
            for owner, prefix, limits in owners
            if limits.concurrency is not None
        ]
        return Quota(rates, slots, self.observer, self._clock) if rates or slots else None

    def _caps(self, limits: Mapping[str, AccessLimits]) -> Caps:
        rates = [
            (kind, self._rate_account(f"{_CAPS}{owner}/{kind}", kind, rate))
            for owner, each in limits.items()
            for kind, rate in _rates(each)
        ]
        kind = LimitKind.CONCURRENCY
        slots = [
            self._slot_account(f"{_CAPS}{owner}/{kind}", kind, each.concurrency)
            for owner, each in limits.items()
            if each.concurrency is not None
        ]
        return Caps(rates, slots, self._clock)

    def _rate_account(self, name: str, policy: str, rate: Rate) -> RateAccount:
        return self._rates.setdefault((name, rate), RateAccount(name, policy, rate, self._store, self._clock))

    def _slot_account(self, name: str, policy: str, limit: int) -> SlotAccount:
        return self._slots.setdefault((name, limit), SlotAccount(name, policy, limit, self._store, self._clock))


def unpriced_failure() -> AccessFailure:
    """Return the refusal of a model without a price to a caller with a cost limit."""
    message = "the caller has a cost limit, and no engine of this model has a price; configure engines.NAME.price"
    return AccessFailure(Code.ACCESS_DENIED, message)


def _rates(limits: AccessLimits) -> list[tuple[LimitKind, Rate]]:
    given = (
        (LimitKind.REQUESTS, limits.requests),
        (LimitKind.TOKENS, limits.tokens),
        (LimitKind.COST, limits.cost),
    )
    return [(kind, rate) for kind, rate in given if rate is not None]


def _shown(kind: LimitKind, units: float) -> float:
    return units / MILLIONTHS if kind is LimitKind.COST else units


def _never_fits(kind: LimitKind, account: RateAccount, units: int) -> OrchestrationFailure:
    limit, needed = _shown(kind, account.rate.quota), _shown(kind, units)
    return OrchestrationFailure(
        Code.ORCHESTRATION_BUDGET_EXCEEDED,
        f"the inference may take {needed:.10g} of {account.policy}, and the limit is {limit:.10g} at once",
        {"field": account.policy, "limit": limit, "needed": needed},
    )


def _does_not_fit_in_time(account: RateAccount, seconds: float) -> OrchestrationFailure:
    details: dict[str, object] = {"field": account.policy}
    if seconds < inf:
        details["retry_after"] = seconds
    return OrchestrationFailure(
        Code.ORCHESTRATION_BUDGET_EXCEEDED,
        f"the limit {account.policy} leaves enough only after the deadline",
        details,
    )
