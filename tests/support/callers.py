"""Callers with keys: a whole service behind HTTP in which each caller has a tenant, a user and permissions."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from portico.bootstrap.keys import KeyGrant, open_keys
from portico.bootstrap.service import Service
from portico.domain.access.limits import NO_LIMITS
from portico.domain.access.principal import KEY_DEFAULT, Permissions
from portico.domain.ids import TenantId, UserId
from portico.settings import Settings
from tests.support.http_server import HttpAnswer, RunningServer, request_bytes
from tests.support.portico import portico


@dataclass(frozen=True)
class Caller:
    """A caller of a served service, with the header of its key."""

    served: RunningServer
    headers: Mapping[str, str]

    async def get(self, path: str, **headers: str) -> HttpAnswer:
        return await self.served.get(path, {**self.headers, **headers})

    async def send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> HttpAnswer:
        named = {**self.headers, "Content-Type": "application/json", **headers}
        return await self.served.ask(request_bytes(method, path, named, body))

    async def execute(self, body: bytes, **headers: str) -> HttpAnswer:
        return await self.send("POST", "/v1/execute", body, **headers)


Grants = Mapping[str, tuple[str, str, Sequence[str] | None]]
"""Tenant, user and permissions of each caller by name; None are those of a key that names none."""


@asynccontextmanager
async def callers(folder: Path, grants: Grants, **tables: Any) -> AsyncIterator[tuple[dict[str, Caller], Service]]:
    """Run a service that authenticates by key, and yield its callers."""
    tables = {"storage": {"url": f"sqlite:///{folder}/portico.db"}, "auth": {"mode": "keys"}, **tables}
    async with portico(**tables) as (served, service), open_keys(Settings.model_validate(tables)) as keys:
        found = {}
        for name, (tenant, user, permissions) in grants.items():
            rights = KEY_DEFAULT if permissions is None else Permissions.of(permissions)
            _, key = await keys.create(KeyGrant(TenantId(tenant), UserId(user), rights, NO_LIMITS, days=None))
            found[name] = Caller(served, {"Authorization": f"Bearer {key.reveal()}"})
        yield found, service
