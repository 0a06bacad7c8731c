"""Composition of backup and restoration, for the command line."""

from pathlib import Path

from portico.adapters.stores.backup import Backup, Restored, back_up, newest_executions, restore
from portico.adapters.stores.factory import is_sqlite_url, sqlite_path
from portico.adapters.system import SystemClock
from portico.domain.failures import Code, ConfigurationFailure
from portico.settings import Settings

__all__ = ["Backup", "Restored", "make_backup", "newest_executions", "restore_backup", "settings_of_backup"]


def make_backup(settings: Settings, target: Path) -> Backup:
    """Copy the database of the settings into a new file. Raises: as `back_up`; ConfigurationFailure without a file."""
    database = _database(settings, "use pg_dump, as docs/upgrade.md shows")
    return back_up(database, target, now=SystemClock().now())


def restore_backup(settings: Settings, backup: Path, *, replace: bool, resume: bool) -> Restored:
    """Put a backup in the place of the database. Raises: as `restore`; ConfigurationFailure without a file."""
    database = _database(settings, "use pg_restore, as docs/upgrade.md shows")
    return restore(backup, database, now=SystemClock().now(), replace=replace, resume=resume)


def settings_of_backup(settings: Settings, backup: Path) -> Settings:
    """Return the settings with the backup in the place of the database."""
    storage = settings.storage.model_copy(update={"url": f"sqlite:///{backup.absolute()}"})
    return settings.model_copy(update={"storage": storage})


def _database(settings: Settings, otherwise: str) -> Path:
    url = settings.storage.url
    if not is_sqlite_url(url):
        raise ConfigurationFailure(Code.CONFIG_INVALID, f"storage.url: names PostgreSQL; {otherwise}")
    if not sqlite_path(url):
        raise ConfigurationFailure(Code.CONFIG_INVALID, "storage.url: sqlite:// keeps no file; name one")
    return Path(sqlite_path(url))
