"""Seal of secrets by Fernet keys, of which the first seals and all open, so that a key is changed in two steps."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from portico.domain.ids import TenantId


class FernetSeal:
    """Implementation of the `SecretSeal` port. `on_unopened` is called with the name of what no key opens."""

    def __init__(self, keys: Sequence[str], on_unopened: Callable[[str], None]) -> None:
        self._fernet = MultiFernet([Fernet(key) for key in keys])
        self._on_unopened = on_unopened

    def seal(self, tenant: TenantId, owner: str, name: str, secret: str) -> bytes:
        return self._fernet.encrypt(_bound(tenant, owner, name) + secret.encode())

    def open(self, tenant: TenantId, owner: str, name: str, sealed: bytes) -> str | None:
        begin = _bound(tenant, owner, name)
        try:
            opened = self._fernet.decrypt(sealed)
        except InvalidToken:
            opened = b""
        if opened.startswith(begin):
            return opened.removeprefix(begin).decode()
        self._on_unopened(f"{tenant}/{owner}/{name}")
        return None


def new_key() -> str:
    """Return a new random key."""
    return Fernet.generate_key().decode()


def key_beside(database: Path) -> str:
    """Return the key in `secrets.key` beside the file of a database; without one it is made. Raises: OSError."""
    path = database.with_name("secrets.key")
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text(encoding="ascii").strip()
    with os.fdopen(file, "w", encoding="ascii") as written:
        key = new_key()
        written.write(key + "\n")
    return key


def _bound(tenant: TenantId, owner: str, name: str) -> bytes:
    """Return what a sealed text begins with; none of the names has a line break."""
    return f"{tenant}\n{owner}\n{name}\n".encode()
