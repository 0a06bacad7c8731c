"""The one key that is valid without a database: it stands in a variable, or in a file as long as it stands there."""

from hmac import compare_digest
from pathlib import Path
from typing import Final

from portico.domain.access.api_key import ApiKey
from portico.domain.access.principal import KEY_DEFAULT, Permission, Permissions, Principal
from portico.domain.ids import KeyId, TenantId, UserId
from portico.ports.runtime import Clock

_RIGHTS: Final = Permissions.of(
    (
        *KEY_DEFAULT.names,
        *(Permission.MANAGE_KEYS, Permission.ACT_FOR, Permission.MANAGE_WEBHOOKS, Permission.MANAGE_CREDENTIALS),
    )
)
CHECK_INTERVAL_S: Final = 1.0
"""The file is looked at again after this time, and at once for a key that it did not hold."""
_MAX_BYTES: Final = 4_096


class BootstrapKey:
    """Given key, or one in a file, which is read again when it changes; the file holds none unless it has our form."""

    def __init__(self, source: Path | ApiKey, tenant: TenantId, user: UserId, clock: Clock) -> None:
        self._path = source if isinstance(source, Path) else None
        self._tenant = tenant
        self._user = user
        self._clock = clock
        self._seen: tuple[int, int, int] | None = None
        self._checked_at = -CHECK_INTERVAL_S
        self._secret_hash = ""
        self._principal: Principal | None = None
        if isinstance(source, ApiKey):
            self._take(source)

    def principal(self, key_id: KeyId, secret_hash: str) -> Principal | None:
        """Return the caller of the bootstrap key if this is it, else None."""
        now = self._clock.monotonic()
        if not self._matches(key_id, secret_hash) or now - self._checked_at >= CHECK_INTERVAL_S:
            self._checked_at = now
            self._read_if_changed()
        return self._principal if self._matches(key_id, secret_hash) else None

    def holder(self, key_id: KeyId) -> Principal | None:
        """Return the caller of the key with this public id if it stands in the file, else None."""
        self._read_if_changed()
        return self._principal if self._principal is not None and self._principal.key_id == key_id else None

    def _matches(self, key_id: KeyId, secret_hash: str) -> bool:
        principal = self._principal
        return principal is not None and principal.key_id == key_id and compare_digest(self._secret_hash, secret_hash)

    def _read_if_changed(self) -> None:
        if self._path is None:
            return
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
        self._take(key)

    def _take(self, key: ApiKey | None) -> None:
        self._secret_hash = "" if key is None else key.secret_hash
        self._principal = None if key is None else Principal(self._tenant, self._user, key.key_id, _RIGHTS)
