"""Authenticators: without authentication, by API key, and by API key or token."""

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from portico.adapters.access.api_keys import ApiKeys
from portico.adapters.access.refusals import unauthenticated
from portico.domain.access.api_key import PREFIX, ApiKey
from portico.domain.access.limits import DEFAULT_TENANT
from portico.domain.access.principal import LOCAL, ObjectKind, Permissions, Principal
from portico.domain.ids import TenantId
from portico.domain.value import replace
from portico.ports.access import Authenticator
from portico.ports.runtime import Clock

if TYPE_CHECKING:
    from portico.adapters.access.tokens import Tokens


class NoAuthentication:
    """Implementation of `Authenticator` that takes every caller for the local one."""

    async def authenticate(self, credentials: str | None, *, audience: str | None = None) -> Principal:
        return LOCAL

    async def confirm(self, principal: Principal) -> Principal:
        return principal

    async def is_current(self, principal: Principal) -> bool:
        return True


class TenantAuthenticator:
    """Implementation of `Authenticator` that narrows the rights of callers to those of their tenant.

    `tenants` has the permitted names by tenant and kind; that of `default` holds for all others.
    """

    def __init__(
        self, authenticator: Authenticator, tenants: Mapping[str, Mapping[ObjectKind, Collection[str]]]
    ) -> None:
        self.is_current = authenticator.is_current
        self._authenticator = authenticator
        self._tenants = tenants
        self._narrowed = lru_cache(maxsize=10_000)(self._narrow)

    async def authenticate(self, credentials: str | None, *, audience: str | None = None) -> Principal:
        return self._within_tenant(await self._authenticator.authenticate(credentials, audience=audience))

    async def confirm(self, principal: Principal) -> Principal:
        return self._within_tenant(await self._authenticator.confirm(principal))

    def _within_tenant(self, principal: Principal) -> Principal:
        permissions = self._narrowed(principal.tenant, principal.permissions)
        return principal if permissions is principal.permissions else replace(principal, permissions=permissions)

    def _narrow(self, tenant: TenantId, permissions: Permissions) -> Permissions:
        for kind, names in self._tenants.get(tenant, self._tenants.get(DEFAULT_TENANT, {})).items():
            permissions = permissions.narrowed(kind, names)
        return permissions


class BearerAuthenticator:
    """Implementation of `Authenticator` by API keys, and by tokens if there is an issuer."""

    def __init__(self, clock: Clock, api_keys: ApiKeys, tokens: "Tokens | None" = None) -> None:
        self._clock = clock
        self._api_keys = api_keys
        self._tokens = tokens

    async def authenticate(self, credentials: str | None, *, audience: str | None = None) -> Principal:
        if credentials is None:
            raise unauthenticated("a key or a token is required")
        key = ApiKey.parse(credentials)
        if key is not None:
            return await self._api_keys.authenticate(key)
        if self._tokens is None or credentials.startswith(PREFIX):
            raise unauthenticated("the credentials are not a key")
        return await self._tokens.authenticate(credentials, audience=audience)

    async def confirm(self, principal: Principal) -> Principal:
        if principal.key_id is not None:
            return await self._api_keys.confirm(principal.key_id)
        if not await self.is_current(principal):
            raise unauthenticated("the token has expired")
        return principal

    async def is_current(self, principal: Principal) -> bool:
        if principal.key_id is not None:
            return await self._api_keys.is_current(principal.key_id)
        return principal.expires_at is None or self._clock.now() < principal.expires_at
