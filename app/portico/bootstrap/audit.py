"""Composition of the audit log: the file, what is recorded in it, and the refusals."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from anyio import CancelScope
from anyio.abc import TaskGroup

from portico.adapters.audit.file import AuditFile
from portico.adapters.audit.refusals import RefusalLog
from portico.domain.failures import Code, ConfigurationFailure, StorageFailure
from portico.domain.value import value
from portico.orchestration.audit import Audit, AuditedCredentials, AuditedFacade
from portico.orchestration.credentials import Credentials
from portico.orchestration.facade import Facade
from portico.ports.audit import Action, AuditEntry
from portico.ports.runtime import Clock
from portico.settings import AuditSettings


@value
class ServiceAudit:
    """Audit of a running service: that of its facade, and the refusals of its entry points; without a log both are
    None.
    """

    audit: Audit | None = None
    refusals: RefusalLog | None = None

    def facade(self, plain: Facade) -> Facade:
        """Return the facade with audited parts; without a log, as it is."""
        return plain if self.audit is None else AuditedFacade(self.audit, plain)

    def credentials(self, plain: Credentials) -> Credentials:
        """Return the credentials with audited changes; without a log, as they are."""
        return plain if self.audit is None else AuditedCredentials(self.audit, plain)


@asynccontextmanager
async def open_audit(
    settings: AuditSettings, clock: Clock, on_failure: Callable[[], None], group: TaskGroup
) -> AsyncIterator[ServiceAudit]:
    """Record that the service starts, and at the end that it stops; refusals are written in the group.

    Raises: ConfigurationFailure (CONFIG_INVALID) if the file cannot be written.
    """
    if settings.file is None:
        yield ServiceAudit()
        return
    file = AuditFile(Path(settings.file), clock, on_failure)
    try:
        try:
            await file.write(AuditEntry(Action.SERVICE_START))
        except StorageFailure as failure:
            raise unwritable(settings.file, failure) from failure
        refusals = RefusalLog(file, clock)
        group.start_soon(refusals.run)
        yield ServiceAudit(Audit(file, settings.reads), refusals)
        with CancelScope(shield=True), suppress(StorageFailure):  # the log counts its failures
            await refusals.flush()
            await file.write(AuditEntry(Action.SERVICE_STOP))
    finally:
        file.close()


def unwritable(path: str, failure: StorageFailure) -> ConfigurationFailure:
    """Return the failure of a start with a log that cannot be written."""
    reason = failure.__cause__.strerror if isinstance(failure.__cause__, OSError) else failure.message
    return ConfigurationFailure(Code.CONFIG_INVALID, f"audit.file: cannot write {path}: {(reason or '').lower()}")
