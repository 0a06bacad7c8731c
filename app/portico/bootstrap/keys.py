"""Composition of the administration of API keys, for the command line."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from portico.adapters.system import SystemClock, SystemEntropy
from portico.capabilities.key_administration import KeyAdministration, KeyGrant, generate_key
from portico.domain.access.api_key import ApiKey

if TYPE_CHECKING:
    from portico.settings import Settings

__all__ = ["KeyAdministration", "KeyGrant", "new_key", "open_keys"]


@asynccontextmanager
async def open_keys(settings: "Settings") -> AsyncIterator[KeyAdministration]:
    """Open the keys in the database of the settings, also while servers run on it.

    Raises: ConfigurationFailure (CONFIG_INVALID), StorageFailure.
    """
    from portico.adapters.stores.access.api_keys import DatabaseKeys  # noqa: PLC0415 - a new key needs no database
    from portico.adapters.stores.factory import open_beside  # noqa: PLC0415 - see above

    clock = SystemClock()
    entropy = SystemEntropy(clock)
    async with open_beside(settings.storage.url, clock, entropy) as database:
        keys = DatabaseKeys(database)
        if settings.audit.file is None:
            yield KeyAdministration(keys, clock, entropy)
            return
        from portico.adapters.audit.file import AuditFile  # noqa: PLC0415 - see above
        from portico.adapters.audit.keys import AuditedKeyStore  # noqa: PLC0415 - see above

        log = AuditFile(Path(settings.audit.file), clock)
        try:
            yield KeyAdministration(AuditedKeyStore(keys, log), clock, entropy)
        finally:
            log.close()


def new_key() -> ApiKey:
    """Return a new key that is stored nowhere, for a bootstrap key file."""
    return generate_key(SystemEntropy(SystemClock()))
