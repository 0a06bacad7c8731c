"""The one key that is valid without a database: it stands in a file, for as long as it stands there."""

from hmac import compare_digest
from pathlib import Path
from typing import Final

from portico.domain.access.api_key import ApiKey
from portico.domain.access.principal import KEY_DEFAULT, Principal
from portico.domain.ids import KeyId, TenantId, UserId
from portico.ports.runtime import Clock

CHECK_INTERVAL_S: Final = 1.0
"""The file is looked at again after this time, and at once for a key that it did not hold."""
_MAX_BYTES: Final = 4_096


class BootstrapKey:
    """Key in a file, which is read again when it changes. A file without one key of our form holds none."""

    def __init__(self, path: Path, tenant: TenantId, user: UserId, clock: Clock) -> None:
        self._path = path
        self._tenant = tenant
        self._user = user
        self._clock = clock
        self._seen: tuple[int, int, int] | None = None
        self._checked_at = -CHECK_INTERVAL_S
        self._secret_hash = ""
        self._principal: Principal | None = None

    def principal(self, key_id: KeyId, secret_hash: str) -> Principal | None:
        """Return the caller of the bootstrap key if this is it, else None."""
        now = self._clock.monotonic()
        if not self._matches(key_id, secret_hash) or now - self._checked_at >= CHECK_INTERVAL_S:
            self._checked_at = now
            self._read_if_changed()
        return self._principal if self._matches(key_id, secret_hash) else None

    def holds(self, key_id: KeyId) -> bool:
        """Return whether the key with this public id stands in the file."""
        self._read_if_changed()
        return self._principal is not None and self._principal.key_id == key_id

    def _matches(self, key_id: KeyId, secret_hash: str) -> bool:
        principal = self._principal
        return principal is not None and principal.key_id == key_id and compare_digest(self._secret_hash, secret_hash)

    def _read_if_changed(self) -> None:
        try:
            status = self._path.stat()
            seen = (status.st_ino, status.st_mtime_ns, status.st_size)
            if seen == self._seen:
                return
            with self._path.open("rb") as file:
                key = ApiKey.parse(file.read(_MAX_BYTES).decode("ascii").strip())
        except (OSError, ValueError):
            seen, key = None, None
        self._seen = seen
        self._secret_hash = "" if key is None else key.secret_hash
        self._principal = None if key is None else Principal(self._tenant, self._user, key.key_id, KEY_DEFAULT)
