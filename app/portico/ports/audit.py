"""Port of the audit log: who read, changed and deleted what, and whose requests were refused."""

from enum import StrEnum
from typing import Literal, Protocol

from portico.domain.failures import Code
from portico.domain.ids import KeyId, TenantId, UserId
from portico.domain.value import value


class Action(StrEnum):
    """Action that the audit log records."""

    EXECUTION_READ = "execution.read"
    EXECUTION_CANCEL = "execution.cancel"
    EXECUTION_DELETE = "execution.delete"
    EXECUTION_FORK = "execution.fork"
    SESSION_READ = "session.read"
    SESSION_DELETE = "session.delete"
    FILE_READ = "file.read"
    FILE_WRITE = "file.write"
    FILE_DELETE = "file.delete"
    SUSPENSION_ANSWER = "suspension.answer"
    GRANT_REVOKE = "grant.revoke"
    MEMORY_DELETE = "memory.delete"
    KEY_CREATE = "key.create"
    KEY_REVOKE = "key.revoke"
    WEBHOOK_PUT = "webhook.put"
    WEBHOOK_DELETE = "webhook.delete"
    WEBHOOK_ROTATE = "webhook.rotate"
    CREDENTIAL_PUT = "credential.put"
    CREDENTIAL_DELETE = "credential.delete"
    ACCESS_REFUSE = "access.refuse"
    SERVICE_START = "service.start"
    SERVICE_STOP = "service.stop"


Outcome = Literal["ok", "refused", "failed"]


@value
class AuditEntry:
    """A line of the audit log: names and codes, never content.

    `key` is the public id of the caller's key, `target` the name of what the action is about, `owner` its user.
    """

    action: Action
    tenant: TenantId | None = None
    user: UserId | None = None
    key: KeyId | None = None
    target: str | None = None
    owner: UserId | None = None
    outcome: Outcome = "ok"
    code: Code | None = None
    detail: str | None = None


class AuditLog(Protocol):
    """Append-only log."""

    async def write(self, entry: AuditEntry) -> None:
        """Append the entry. Raises: StorageFailure if it cannot be written."""
        ...
