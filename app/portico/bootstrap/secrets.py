"""Composition of the seal of stored secrets, whose library is loaded when something is sealed or opened."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.ids import TenantId
from portico.ports.secrets import SecretSeal
from portico.settings import Settings
from portico.settings.schema import can_seal
from portico.settings.tables.secrets import read_keys

if TYPE_CHECKING:
    from portico.adapters.credentials.seal import FernetSeal


class LazySeal:
    """Implementation of the `SecretSeal` port, whose keys are read, drawn or made when they are first needed."""

    def __init__(self, settings: Settings, on_unopened: Callable[[str], None]) -> None:
        self._key_file = settings.secrets.key_file
        self._database = settings.storage.file
        self._on_unopened = on_unopened
        self._opened: FernetSeal | None = None

    def seal(self, tenant: TenantId, owner: str, name: str, secret: str) -> bytes:
        return self._seal().seal(tenant, owner, name, secret)

    def open(self, tenant: TenantId, owner: str, name: str, sealed: bytes) -> str | None:
        return self._seal().open(tenant, owner, name, sealed)

    def _seal(self) -> "FernetSeal":
        if self._opened is None:
            from portico.adapters.credentials.seal import FernetSeal  # noqa: PLC0415 - see above

            self._opened = FernetSeal(self._keys(), self._on_unopened)
        return self._opened

    def _keys(self) -> tuple[str, ...]:
        from portico.adapters.credentials.seal import key_beside, new_key  # noqa: PLC0415 - see above

        if self._key_file is not None:
            return read_keys(Path(self._key_file))
        if self._database is None:
            return (new_key(),)
        try:
            return (key_beside(self._database),)
        except OSError as error:
            message = f"secrets.key_file: secrets.key cannot be made beside the database: {error.strerror}"
            raise ConfigurationFailure(Code.CONFIG_INVALID, message) from error


def seal_for(settings: Settings, on_unopened: Callable[[str], None]) -> SecretSeal | None:
    """Return the seal of stored secrets; None on PostgreSQL without a key file: replicas have to share the keys."""
    return LazySeal(settings, on_unopened) if can_seal(settings) else None


def new_secrets_key() -> str:
    """Return a new key for `secrets.key_file`."""
    from portico.adapters.credentials.seal import new_key  # noqa: PLC0415 - see above

    return new_key()
