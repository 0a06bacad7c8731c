"""Audit of the facade: which of its calls are recorded, under which name, and of whom.

| Part | Changes | Reads |
|---|---|---|
| executions | `cancel`, `resume` | `show`, `page`, `read`, `events`, `event_page`, `trace`, `replay` |
| records | | `input`, `steps`, `snapshot`, `suspensions` |
| erasure | `delete_execution`, `delete_session` | |
| sessions | | `show`, `messages` |
| files | `write`, `delete` | `page`, `read` |
| memory | `delete` | |
| keys | `create`, `revoke` | |
| webhooks | `put`, `delete`, `rotate` | |
| grants | `revoke` | |
| credentials | `put`, `delete` | |
| facade | `fork` | |

The line of a change is written before it, so that none happens without a line, and a second one if it then fails. A
read is answered although its line cannot be written. Without an audit log none of this is there.
"""

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final, Literal

from portico.domain.access.principal import Principal
from portico.domain.contract.request import SystemRequest
from portico.domain.credentials import NO_CREDENTIALS
from portico.domain.failures import Failure, StorageFailure
from portico.domain.ids import DocumentId, GrantId, KeyId, RequestId, SessionId, UserId
from portico.domain.journal.events import StoredEvent
from portico.orchestration.credentials import CredentialRequest, Credentials, OwnerToSet
from portico.orchestration.erasure import Erasure
from portico.orchestration.execution_views import ExecutionView
from portico.orchestration.executions import (
    AnswerAccepted,
    ExecutionPage,
    Executions,
    ResumeAccepted,
)
from portico.orchestration.facade import DEFAULT_OPTIONS, CallOptions, Facade
from portico.orchestration.files import FilePage, Files, WrittenFileView
from portico.orchestration.flow.snapshot import FlowSnapshot
from portico.orchestration.grants import Grants
from portico.orchestration.keys import KeyRequest, Keys, NewKeyView
from portico.orchestration.memory import Memory
from portico.orchestration.records import Records, SuspensionPage
from portico.orchestration.runtime.agent_trace import AgentTrace
from portico.orchestration.runtime.branch_transcripts import BranchTranscript
from portico.orchestration.runtime.event_page import EventPage, EventSelection
from portico.orchestration.runtime.fork import ForkRequest
from portico.orchestration.runtime.handle import ExecutionHandle
from portico.orchestration.runtime.recorded_turns import RecordedTurns
from portico.orchestration.runtime.replay import ReplayReport
from portico.orchestration.runtime.resume import GivenAnswer, ResumeRequest
from portico.orchestration.runtime.step_list import ALL_STEPS, StepPage, StepSelection
from portico.orchestration.sessions import MessagePage, Sessions, SessionView
from portico.orchestration.webhooks import EndpointRequest, EndpointView, NewEndpointView, Webhooks
from portico.ports.audit import Action, AuditEntry, AuditLog
from portico.ports.events import Subscription
from portico.ports.storage import ExecutionFilter, SuspensionFilter

ReadScope = Literal["none", "others", "all"]
_DECISIONS: Final = frozenset({"approve", "deny", "authorized"})


class Audit:
    """The log, and which reads are recorded in it."""

    def __init__(self, log: AuditLog, reads: ReadScope) -> None:
        self._log = log
        self._reads = reads

    @asynccontextmanager
    async def change(
        self,
        action: Action,
        principal: Principal,
        target: str | None,
        *,
        owner: UserId | None = None,
        detail: str | None = None,
    ) -> AsyncIterator[None]:
        """Record a change, then a second time if it fails. Raises: StorageFailure before it, without a line."""
        line = _entry(action, principal, target, owner, detail)
        await self._log.write(line)
        try:
            yield
        except Failure as failure:
            failed = AuditEntry(
                action,
                principal.tenant,
                principal.user,
                principal.key_id,
                target,
                owner,
                outcome="failed",
                code=failure.code,
                detail=detail,
            )
            with suppress(StorageFailure):  # the log counts its failures
                await self._log.write(failed)
            raise

    async def write(self, action: Action, principal: Principal, target: str, owner: UserId) -> None:
        """Record what was made. Raises: StorageFailure."""
        await self._log.write(_entry(action, principal, target, owner, None))

    async def read(
        self,
        action: Action,
        principal: Principal,
        target: str | None,
        *,
        owner: UserId | None,
        detail: str | None = None,
    ) -> None:
        """Record a read of data of that owner; None stands for another user that is not known."""
        if self._reads == "all" or (self._reads == "others" and owner != principal.user):
            with suppress(StorageFailure):  # the log counts its failures
                await self._log.write(_entry(action, principal, target, owner, detail))

    async def read_page(self, principal: Principal, owners: Collection[UserId]) -> None:
        """Record a page of executions: a line for each owner, with their number."""
        for owner in dict.fromkeys(owners):
            count = sum(each == owner for each in owners)
            await self.read(Action.EXECUTION_READ, principal, None, owner=owner, detail=f"{count} in a list")


class AuditedExecutions(Executions):
    """Executions whose reads, cancellations and answers are recorded."""

    def __init__(self, audit: Audit, plain: Executions) -> None:
        vars(self).update(vars(plain))
        self._audit = audit

    async def show(self, principal: Principal, request_id: RequestId) -> ExecutionView:
        view = await super().show(principal, request_id)
        await self._audit.read(Action.EXECUTION_READ, principal, request_id, owner=view.user)
        return view

    async def page(
        self, principal: Principal, selected: ExecutionFilter, *, after: str | None, limit: int
    ) -> ExecutionPage:
        page = await super().page(principal, selected, after=after, limit=limit)
        await self._audit.read_page(principal, [view.user for view in page.executions])
        return page

    async def read(
        self, principal: Principal, request_id: RequestId, *, after: int = 0, types: frozenset[str] | None = None
    ) -> Subscription:
        await self.record_read(principal, request_id)
        return await super().read(principal, request_id, after=after, types=types)

    async def event_page(self, principal: Principal, request_id: RequestId, selected: EventSelection) -> EventPage:
        await self.record_read(principal, request_id)
        return await super().event_page(principal, request_id, selected)

    async def events(self, principal: Principal, request_id: RequestId) -> list[StoredEvent]:
        await self.record_read(principal, request_id)
        return await super().events(principal, request_id)

    async def trace(self, principal: Principal, request_id: RequestId) -> AgentTrace:
        await self.record_read(principal, request_id)
        return await super().trace(principal, request_id)

    async def replay(self, principal: Principal, request_id: RequestId) -> ReplayReport:
        await self.record_read(principal, request_id)
        return await super().replay(principal, request_id)

    async def cancel(self, principal: Principal, request_id: RequestId) -> bool:
        async with self._audit.change(Action.EXECUTION_CANCEL, principal, request_id):
            return await Executions.cancel(self, principal, request_id)

    async def resume(
        self,
        principal: Principal,
        request_id: RequestId,
        request: ResumeRequest,
        *,
        subscribe: bool,
        is_untrusted: bool = False,
        credentials: Mapping[str, str] = NO_CREDENTIALS,
    ) -> ExecutionHandle | ResumeAccepted | AnswerAccepted:
        owner = None
        if self._launcher.local.find(principal.own, request_id) is None:
            owner = (await self._answerable(principal, request_id))[0].user
        detail = " ".join(map(_decision, request.given))
        async with self._audit.change(Action.SUSPENSION_ANSWER, principal, request_id, owner=owner, detail=detail):
            return await super().resume(
                principal,
                request_id,
                request,
                subscribe=subscribe,
                is_untrusted=is_untrusted,
                credentials=credentials,
            )

    async def record_read(self, principal: Principal, request_id: RequestId) -> None:
        """Record that the principal reads an execution; its owner is looked up where it may be another user.

        Raises: RequestFailure (REQUEST_NOT_FOUND), StorageFailure.
        """
        owner = principal.user
        if principal.readable.user is None:
            owner = (await super().show(principal, request_id)).user
        await self._audit.read(Action.EXECUTION_READ, principal, request_id, owner=owner)


class AuditedRecords(Records):
    """Records of executions whose reads are recorded."""

    def __init__(self, audit: Audit, plain: Records, executions: AuditedExecutions) -> None:
        vars(self).update(vars(plain))
        self._audit = audit
        self._executions = executions

    async def input(self, principal: Principal, request_id: RequestId) -> SystemRequest:
        await self._executions.record_read(principal, request_id)
        return await super().input(principal, request_id)

    async def steps(self, principal: Principal, request_id: RequestId, selected: StepSelection = ALL_STEPS) -> StepPage:
        await self._executions.record_read(principal, request_id)
        return await super().steps(principal, request_id, selected)

    async def transcripts(self, principal: Principal, request_id: RequestId) -> list[BranchTranscript]:
        await self._executions.record_read(principal, request_id)
        return await super().transcripts(principal, request_id)

    async def snapshot(self, principal: Principal, request_id: RequestId) -> FlowSnapshot:
        await self._executions.record_read(principal, request_id)
        return await super().snapshot(principal, request_id)

    async def turns(self, principal: Principal, request_id: RequestId) -> RecordedTurns:
        await self._executions.record_read(principal, request_id)
        return await super().turns(principal, request_id)

    async def suspensions(
        self, principal: Principal, selected: SuspensionFilter, *, after: str | None, limit: int
    ) -> SuspensionPage:
        page = await super().suspensions(principal, selected, after=after, limit=limit)
        await self._audit.read_page(principal, [view.user for view in page.suspensions])
        return page


class AuditedErasure(Erasure):
    """Erasure whose deletions are recorded."""

    def __init__(self, audit: Audit, plain: Erasure) -> None:
        vars(self).update(vars(plain))
        self._audit = audit

    async def delete_execution(self, principal: Principal, request_id: RequestId, *, with_forks: bool) -> bool:
        async with self._audit.change(Action.EXECUTION_DELETE, principal, request_id, owner=principal.user):
            return await super().delete_execution(principal, request_id, with_forks=with_forks)

    async def delete_session(self, principal: Principal, session_id: SessionId, *, with_forks: bool) -> None:
        async with self._audit.change(Action.SESSION_DELETE, principal, session_id, owner=principal.user):
            await super().delete_session(principal, session_id, with_forks=with_forks)


class AuditedFiles(Files):
    """Files of sessions, whose reads and changes are recorded."""

    def __init__(self, audit: Audit, plain: Files) -> None:
        vars(self).update(vars(plain))
        self._audit = audit

    async def page(self, principal: Principal, session_id: SessionId, *, after: str | None, limit: int) -> FilePage:
        page = await super().page(principal, session_id, after=after, limit=limit)
        await self._audit.read(Action.FILE_READ, principal, session_id, owner=principal.user)
        return page

    async def read(self, principal: Principal, session_id: SessionId, path: str) -> bytes:
        content = await super().read(principal, session_id, path)
        await self._audit.read(Action.FILE_READ, principal, session_id, owner=principal.user, detail="content")
        return content

    async def write(
        self, principal: Principal, session_id: SessionId, path: str, content: bytes
    ) -> tuple[WrittenFileView, bool]:
        async with self._audit.change(Action.FILE_WRITE, principal, session_id, owner=principal.user):
            return await super().write(principal, session_id, path, content)

    async def delete(self, principal: Principal, session_id: SessionId, path: str) -> None:
        async with self._audit.change(Action.FILE_DELETE, principal, session_id, owner=principal.user):
            await super().delete(principal, session_id, path)


class AuditedSessions(Sessions):
    """Sessions whose reads are recorded; the owner of another user's session is not known here."""

    def __init__(self, audit: Audit, plain: Sessions) -> None:
        vars(self).update(vars(plain))
        self._audit = audit
        self.files = AuditedFiles(audit, plain.files)

    async def show(self, principal: Principal, session_id: SessionId) -> SessionView:
        view = await super().show(principal, session_id)
        await self._record_read(principal, session_id)
        return view

    async def messages(self, principal: Principal, session_id: SessionId, *, after: int, limit: int) -> MessagePage:
        page = await super().messages(principal, session_id, after=after, limit=limit)
        await self._record_read(principal, session_id)
        return page

    async def _record_read(self, principal: Principal, session_id: SessionId) -> None:
        owner: UserId | None = principal.user
        if principal.readable.user is None:
            own = await self._environment.conversations.session(principal.own, session_id)
            owner = None if own is None else owner
        await self._audit.read(Action.SESSION_READ, principal, session_id, owner=owner)


class AuditedMemory(Memory):
    """Memory of documents whose deletions are recorded."""

    def __init__(self, audit: Audit, plain: Memory) -> None:
        vars(self).update(vars(plain))
        self._audit = audit

    async def delete(self, principal: Principal, document_id: DocumentId) -> None:
        async with self._audit.change(Action.MEMORY_DELETE, principal, document_id, owner=principal.user):
            await super().delete(principal, document_id)


class AuditedGrants(Grants):
    """Grants whose revocations are recorded."""

    def __init__(self, audit: Audit, plain: Grants) -> None:
        vars(self).update(vars(plain))
        self._audit = audit

    async def revoke(self, principal: Principal, grant_id: GrantId) -> None:
        async with self._audit.change(Action.GRANT_REVOKE, principal, grant_id):
            await super().revoke(principal, grant_id)


class AuditedCredentials(Credentials):
    """Credentials whose changes are recorded, without their values."""

    def __init__(self, audit: Audit, plain: Credentials) -> None:
        vars(self).update(vars(plain))
        self._audit = audit

    async def put(self, principal: Principal, name: str, asked: CredentialRequest, owner: OwnerToSet) -> None:
        async with self._audit.change(Action.CREDENTIAL_PUT, principal, name, detail=owner):
            await super().put(principal, name, asked, owner)

    async def delete(self, principal: Principal, name: str, owner: OwnerToSet) -> None:
        async with self._audit.change(Action.CREDENTIAL_DELETE, principal, name, detail=owner):
            await super().delete(principal, name, owner)


class AuditedKeys(Keys):
    """Keys whose creation and revocation are recorded; the public id of a new key is in a second line."""

    def __init__(self, audit: Audit, plain: Keys) -> None:
        vars(self).update(vars(plain))
        self._audit = audit

    async def create(self, principal: Principal, asked: KeyRequest) -> NewKeyView:
        owner = UserId(asked.user)
        async with self._audit.change(Action.KEY_CREATE, principal, None, owner=owner):
            made = await super().create(principal, asked)
        with suppress(StorageFailure):  # the log counts its failures
            await self._audit.write(Action.KEY_CREATE, principal, made.public_id, owner)
        return made

    async def revoke(self, principal: Principal, key_id: KeyId, *, cancel: bool) -> None:
        async with self._audit.change(Action.KEY_REVOKE, principal, key_id):
            await super().revoke(principal, key_id, cancel=cancel)


class AuditedWebhooks(Webhooks):
    """Endpoints of webhooks whose changes are recorded."""

    def __init__(self, audit: Audit, plain: Webhooks) -> None:
        vars(self).update(vars(plain))
        self._audit = audit

    async def put(self, principal: Principal, name: str, asked: EndpointRequest) -> tuple[EndpointView, bool]:
        async with self._audit.change(Action.WEBHOOK_PUT, principal, name):
            return await super().put(principal, name, asked)

    async def delete(self, principal: Principal, name: str) -> None:
        async with self._audit.change(Action.WEBHOOK_DELETE, principal, name):
            await super().delete(principal, name)

    async def rotate(self, principal: Principal, name: str) -> NewEndpointView:
        async with self._audit.change(Action.WEBHOOK_ROTATE, principal, name):
            return await super().rotate(principal, name)


class AuditedFacade(Facade):
    """Facade whose parts are audited."""

    def __init__(self, audit: Audit, plain: Facade) -> None:
        vars(self).update(vars(plain))
        self._audit = audit
        executions = AuditedExecutions(audit, plain.executions)
        self.executions = executions
        self.records = AuditedRecords(audit, plain.records, executions)
        self.erasure = AuditedErasure(audit, plain.erasure)
        self.sessions = AuditedSessions(audit, plain.sessions)
        self.memory = AuditedMemory(audit, plain.memory)
        self.keys = AuditedKeys(audit, plain.keys)
        self.webhooks = AuditedWebhooks(audit, plain.webhooks)
        self.grants = AuditedGrants(audit, plain.grants)

    async def fork(
        self, request_id: RequestId, fork: ForkRequest, principal: Principal, options: CallOptions = DEFAULT_OPTIONS
    ) -> ExecutionHandle:
        async with self._audit.change(Action.EXECUTION_FORK, principal, request_id, owner=principal.user):
            return await super().fork(request_id, fork, principal, options)


def _entry(
    action: Action, principal: Principal, target: str | None, owner: UserId | None, detail: str | None
) -> AuditEntry:
    return AuditEntry(action, principal.tenant, principal.user, principal.key_id, target, owner, detail=detail)


def _decision(answer: GivenAnswer) -> str:
    """Return the decision about a call; `answer` for any other answer, whose content is not recorded."""
    decision = answer.payload.get("decision") if isinstance(answer.payload, dict) else None
    return decision if isinstance(decision, str) and decision in _DECISIONS else "answer"
