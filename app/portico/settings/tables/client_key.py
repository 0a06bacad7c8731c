"""Key that this process sends as a client of a server."""

import os
import re
from typing import Final

from portico.domain.failures import Code, ConfigurationFailure
from portico.settings.values import Secret

CLIENT_KEY: Final = "PORTICO_KEY"
"""Variable of the key; it is no option, because other users of the machine can read the arguments of a process."""
_VISIBLE: Final = re.compile(r"[!-~]+")


def client_key() -> Secret | None:
    """Return the key of the environment, None without one.

    Raises: ConfigurationFailure (CONFIG_INVALID) if it cannot be sent in a header.
    """
    key = os.environ.get(CLIENT_KEY, "").strip()
    if not key:
        return None
    if not _VISIBLE.fullmatch(key):
        raise ConfigurationFailure(Code.CONFIG_INVALID, f"{CLIENT_KEY} must be visible ASCII characters")
    return Secret(key)
