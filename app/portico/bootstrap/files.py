"""Files of callers: their directories, as the configuration has them."""

from typing import TYPE_CHECKING

from portico.domain.failures import Code, ConfigurationFailure
from portico.settings import Settings

if TYPE_CHECKING:
    from portico.adapters.tools.files.directories import FileDirectories
    from portico.adapters.tools.files.store import DirectoryFiles


def open_files(settings: Settings) -> "FileDirectories | None":
    """Return the directories of files, whose root is made; None if none is configured.

    Raises: ConfigurationFailure (CONFIG_INVALID) for a root that cannot be used.
    """
    table = settings.tools.files
    root = settings.files_root
    if table is None or root is None:
        return None
    if any(each.is_relative_to(root) for each in settings.protected_files):
        raise ConfigurationFailure(Code.CONFIG_INVALID, "tools.files.root: must not contain files of the service")
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        message = f"tools.files.root: cannot be made: {error.strerror}"
        raise ConfigurationFailure(Code.CONFIG_INVALID, message) from None
    from portico.adapters.tools.files.directories import FileDirectories, FileLimits  # noqa: PLC0415 - only with files

    limits = FileLimits(table.max_file_bytes, table.quota_bytes, table.quota_files)
    return FileDirectories(root, limits, is_for_tenant=table.scope == "tenant")


def session_files(directories: "FileDirectories | None") -> "DirectoryFiles | None":
    """Return the files of sessions and executions; None without any, or if they are those of tenants."""
    if directories is None or directories.is_for_tenant:
        return None
    from portico.adapters.tools.files.store import DirectoryFiles  # noqa: PLC0415 - only with files

    return DirectoryFiles(directories)
