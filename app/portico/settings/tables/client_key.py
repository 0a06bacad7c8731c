"""Key that this process sends as a client of a server."""

import os
import re
from pathlib import Path
from typing import Final

from portico.domain.failures import Code, ConfigurationFailure
from portico.settings.values import Secret

CLIENT_KEY: Final = "PORTICO_KEY"
"""Variable of the key; it is no option, because other users of the machine can read the arguments of a process."""
_VISIBLE: Final = re.compile(r"[!-~]+")


def client_key(file: Path | None = None) -> Secret | None:
    """Return the key of the file, else that of the environment, None without one.

    Raises: ConfigurationFailure (CONFIG_INVALID) for a file that cannot be read or has no key, and for a key that
    cannot be sent in a header. No message quotes the key.
    """
    source, key = CLIENT_KEY, os.environ.get(CLIENT_KEY, "").strip()
    if file is not None:
        source, key = str(file), _read_key(file)
    elif not key:
        return None
    if not _VISIBLE.fullmatch(key):
        raise ConfigurationFailure(Code.CONFIG_INVALID, f"{source} must be visible ASCII characters")
    return Secret(key)


def _read_key(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        message = f"{file} cannot be read: {error.strerror}"
    raise ConfigurationFailure(Code.CONFIG_INVALID, message)
