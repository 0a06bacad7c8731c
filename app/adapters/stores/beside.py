"""Opens a database to look at beside whoever owns it: nothing is locked, brought up to date or written."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from app.adapters.stores.database import Database
from app.adapters.stores.opening import is_sqlite, path_of
from app.adapters.stores.postgres import open_postgres
from app.adapters.stores.sqlite import look_into_sqlite
from app.domain.failures import Code, ConfigurationFailure
from app.ports import Clock, Entropy


@asynccontextmanager
async def open_beside(url: str, clock: Clock, entropy: Entropy) -> AsyncIterator[Database]:
    """The database of that storage URL. Raises: ConfigurationFailure (CONFIG_INVALID); StorageFailure."""
    if not is_sqlite(url):
        async with open_postgres(url, clock, entropy, beside=True) as shared:
            yield shared
        return
    async with look_into_sqlite(_existing(url)) as database:
        yield database


def _existing(url: str) -> Path:
    path = Path(path_of(url))
    if not path.is_file():
        raise ConfigurationFailure(Code.CONFIG_INVALID, "storage.url names no SQLite file that is there")
    return path
