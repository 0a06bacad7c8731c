"""Authorizations: the arrival of a credential answers the calls that wait for it, and they go on in the background."""

from contextlib import suppress
from typing import Final

from portico.capabilities.tools.credentials import CredentialHolder, CredentialSource
from portico.domain.access.principal import AccessScope
from portico.domain.contract.response import Suspension, SuspensionKind
from portico.domain.failures import RequestFailure
from portico.domain.ids import RequestId, TenantId, UserId
from portico.domain.journal.events import RESUME_ANCHOR, ExecutionResumed
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.suspensions import AUTHORIZED
from portico.orchestration.runtime.resume import answer_step
from portico.ports.credentials import IssuerError
from portico.ports.runtime import Clock, QueueTicket, Runner
from portico.ports.storage import (
    ExecutionStore,
    OpenSuspension,
    OtherUsers,
    RecordStore,
    SuspensionAnswers,
    SuspensionFilter,
)

_PAGE: Final = 200


class Authorizations:
    """Answers to the suspensions of calls whose credential has arrived. Raises: StorageFailure, in every method."""

    def __init__(
        self, source: CredentialSource, store: ExecutionStore, records: RecordStore, runner: Runner, clock: Clock
    ) -> None:
        self._source = source
        self._store = store
        self._records = records
        self._runner = runner
        self._clock = clock

    async def answer(
        self, tenant: TenantId, user: UserId | None, name: str | None, request_id: RequestId | None = None
    ) -> None:
        """Answer the open questions for that credential, of a user or of all users, for which it has a value now.

        Without a name all credentials are meant; with a `request_id` that execution alone.
        """
        others = OtherUsers.ALL if user is None else OtherUsers.NONE
        where = SuspensionFilter(kind=SuspensionKind.AUTHORIZATION, request_id=request_id)
        after: str | None = None
        while True:
            page = await self._records.suspensions(AccessScope(tenant, user), where, others, after=after, limit=_PAGE)
            for each in page.items:
                if name in {None, credential_of(each.suspension)}:
                    await self._answer_if_arrived(tenant, each)
            after = page.next
            if after is None:
                return

    async def answer_all(self) -> None:
        """Answer what a process has left that ended between the arrival of a value and its answers."""
        for tenant in await self._source.parts.store.waiting_tenants():
            await self.answer(tenant, None, None)

    async def after_suspension(self, header: ExecutionHeader) -> None:
        """Keep what the request brought of credentials while it waits, and answer what has arrived meanwhile."""
        holder = CredentialHolder(header.tenant, header.user, header.execution_id)
        held = self._source.in_memory.get(header.execution_id)
        if held and header.request.store:
            await self._source.hold(holder, held, stored=True)
            self._source.in_memory.pop(header.execution_id, None)
        await self.answer(header.tenant, header.user, None, header.request_id)

    async def _answer_if_arrived(self, tenant: TenantId, found: OpenSuspension) -> None:
        suspension = found.suspension
        holder = CredentialHolder(tenant, found.user, found.execution_id)
        if not await has_value(self._source, suspension, holder):
            return
        history = await self._store.load(tenant, found.execution_id)
        if history is None:
            return
        step = answer_step(suspension, dict(AUTHORIZED), at=self._clock.now())
        event = ExecutionResumed(suspension.suspension_id, suspension.kind, suspension.tool_id, found.user)
        answers = SuspensionAnswers([step], [(RESUME_ANCHOR, history.events[0].correlation, event)])
        with suppress(RequestFailure):  # answered or cancelled meanwhile
            receipt = await self._store.answer(tenant, found.execution_id, answers)
            if receipt.open_suspensions == 0:
                await self._runner.queue(QueueTicket(tenant, found.execution_id, receipt.epoch))


def credential_of(suspension: Suspension) -> str | None:
    """Return the name of the credential that an authorization asks for."""
    value = suspension.value
    name = value.get("credential") if isinstance(value, dict) else None
    return name if isinstance(name, str) else None


async def has_value(source: CredentialSource, suspension: Suspension, holder: CredentialHolder) -> bool:
    """Return True if the credential that an authorization asks for has a value. Raises: StorageFailure."""
    credential = source.credentials.get(credential_of(suspension) or "")
    if credential is None:
        return False
    try:
        return await source.find(credential, holder) is not None
    except IssuerError:
        return False
