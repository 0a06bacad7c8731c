"""API keys at the command line: they are created, listed and revoked in the database of the settings."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import orjson

from portico.bootstrap.keys import KeyGrant
from portico.domain.access.principal import KEY_DEFAULT
from portico.domain.ids import KeyId, TenantId
from portico.entrypoints.cli.display.table import write_table
from portico.entrypoints.cli.service_parts import OpenKeys
from portico.ports.access import StoredKey
from portico.settings import Settings

_COLUMNS: Final = ("id", "tenant", "user", "created", "expires", "revoked", "last used", "channel", "permissions")


async def create_key(open_keys: OpenKeys, settings: Settings, grant: KeyGrant) -> str:
    """Store a new key and return its text, which cannot be shown again."""
    async with open_keys(settings) as keys:
        return (await keys.create(grant))[1].reveal()


async def stored_keys(open_keys: OpenKeys, settings: Settings, tenant: str | None) -> list[StoredKey]:
    """Return the keys of the tenant, or all, oldest first."""
    async with open_keys(settings) as keys:
        return list(await keys.all(None if tenant is None else TenantId(tenant)))


def write_keys(found: Sequence[StoredKey], *, as_json: bool) -> None:
    """Write the keys to standard output, as a table or as one JSON object per line."""
    if as_json:
        sys.stdout.buffer.write(b"".join(orjson.dumps(_shown(key)) + b"\n" for key in found))
    else:
        write_table([_COLUMNS, *map(_row, found)])


async def revoke_key(
    open_keys: OpenKeys, settings: Settings, key_id: KeyId, *, cancel: bool
) -> tuple[StoredKey, int, Sequence[str]] | None:
    """Revoke a key; return it, how many executions are being stopped, and the webhooks that it made and that heard of
    events until now. None for an unknown key.
    """
    async with open_keys(settings) as keys:
        webhooks = await keys.webhooks_of(key_id)
        revoked = await keys.revoke(key_id, cancel=cancel)
        return None if revoked is None else (*revoked, webhooks)


def _shown(key: StoredKey) -> dict[str, object]:
    return {
        "key_id": key.key_id,
        "tenant": key.tenant,
        "user": key.user,
        "permissions": key.permissions.names,
        "channel": key.channel,
        "created_by": key.created_by,
        "created_at": _time(key.created_at),
        "expires_at": _time(key.expires_at),
        "revoked_at": _time(key.revoked_at),
        "last_used_at": _time(key.last_used_at),
    }


def _time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _row(key: StoredKey) -> tuple[str, ...]:
    times = (key.created_at, key.expires_at, key.revoked_at, key.last_used_at)
    names = "default" if key.permissions == KEY_DEFAULT else " ".join(key.permissions.names)
    shown = [_time(each) or "-" for each in times]
    return key.key_id, key.tenant, key.user, *shown, key.channel or "-", names
