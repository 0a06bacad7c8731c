"""Credentials of tools, as users and tenants see, set and delete them; their values are never shown."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from portico.capabilities.tools.credentials import CredentialSource
from portico.capabilities.tools.registry import ToolRegistry
from portico.domain.access.principal import Permission, Principal
from portico.domain.credentials import Credential, CredentialType, Owner, fault_of
from portico.domain.failures import AccessFailure, Code, RequestFailure, invalid_request
from portico.domain.ids import TenantId, UserId
from portico.orchestration.rights import require
from portico.orchestration.runtime.authorizations import Authorizations
from portico.ports.credentials import THE_TENANT, StoredValue

OwnerToSet = Literal["user", "tenant"]
NO_SUCH_CREDENTIAL = "there is no such credential of a tool that you may use"


class CredentialRequest(BaseModel):
    """A value to store."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    value: str = Field(
        description="The value, of 8 to 8,192 characters.", json_schema_extra={"minLength": 8, "maxLength": 8192}
    )


class CredentialView(BaseModel):
    """A credential without its value."""

    name: str = Field(description="Name of the credential.")
    type: CredentialType = Field(
        description="`secret`: a value that is set; `request`: a header of the request; `client_credentials`: a token "
        "that the service fetches."
    )
    description: str = Field(description="What it is for and where to get it.")
    owners: list[Owner] = Field(description="Whose values count, the first that is set; empty of type `request`.")
    owner: Owner | None = Field(description="Owner of the value that would be used for the caller; null without any.")
    set_at: datetime | None = Field(description="Time at which that value was set; null of the service.")
    expires_at: datetime | None = Field(description="Time at which a fetched token expires; null without one.")
    rejected: bool = Field(description="True if the value was refused elsewhere: calls wait for another one.")


class Credentials:
    """Credentials of the tools that a principal may use. None exists without a source.

    Raises: StorageFailure, in every method; RequestFailure (REQUEST_NOT_FOUND) in those that name one.
    """

    def __init__(
        self,
        source: CredentialSource | None,
        registry: ToolRegistry,
        authorizations: Authorizations | None,
        request_headers: Mapping[bytes, Sequence[str]],
    ) -> None:
        self.request_headers = request_headers
        """The names of the credentials that a header of a request has, by its name in small letters."""
        self._source = source
        self._registry = registry
        self._authorizations = authorizations

    async def list(self, principal: Principal) -> list[CredentialView]:
        """Return the credentials, by name."""
        source, names = self._source, self._names(principal)
        if source is None or not names:
            return []
        found = await source.parts.store.all_of(principal.tenant, principal.user)
        rows = {(each.user, each.name): each for each in found}
        return [self._view(source, source.credentials[name], principal, rows) for name in sorted(names)]

    def require_known(self, principal: Principal, name: str) -> None:
        """Raise RequestFailure (REQUEST_NOT_FOUND) unless it is the credential of a tool that the principal may use."""
        if self._source is None or name not in self._names(principal):
            raise RequestFailure(Code.REQUEST_NOT_FOUND, NO_SUCH_CREDENTIAL, condition="path")

    async def put(self, principal: Principal, name: str, asked: CredentialRequest, owner: OwnerToSet) -> None:
        """Store a value, and let the calls that wait for it go on.

        Raises: RequestFailure (REQUEST_INVALID); AccessFailure (ACCESS_DENIED).
        """
        source, user = self._changeable(principal, name, owner)
        if (fault := fault_of(asked.value)) is not None:
            raise invalid_request(("value", fault))
        seal, now = source.parts.seal, source.parts.clock.now()
        if seal is None:
            message = "secrets cannot be stored; set secrets.key_file"
            raise AccessFailure(Code.ACCESS_DENIED, message, {"setting": "secrets.key_file"})
        sealed = seal.seal(principal.tenant, user, name, asked.value)
        await source.parts.store.put(StoredValue(principal.tenant, user, name, sealed, now))
        await self._answer(principal.tenant, user, name)

    async def delete(self, principal: Principal, name: str, owner: OwnerToSet) -> None:
        """Delete a value; one that is not there is deleted. Raises: as `put`."""
        source, user = self._changeable(principal, name, owner)
        await source.parts.store.delete(principal.tenant, user, name)

    async def _answer(self, tenant: TenantId, user: UserId, name: str) -> None:
        assert self._authorizations is not None  # noqa: S101 - there is a source
        await self._authorizations.answer(tenant, None if user == THE_TENANT else user, name)

    def _changeable(self, principal: Principal, name: str, owner: OwnerToSet) -> tuple[CredentialSource, UserId]:
        """Return the source, and the user that a stored value names. Raises: RequestFailure, AccessFailure."""
        self.require_known(principal, name)
        source = self._source
        assert source is not None  # noqa: S101 - it is known
        if owner == "tenant":
            require(principal.permissions, Permission.MANAGE_CREDENTIALS, "manage credentials of the tenant")
        else:
            require(principal.permissions, Permission.SEND_MESSAGES, "set credentials")
        credential = source.credentials[name]
        if credential.type is not CredentialType.SECRET:
            raise invalid_request(("name", f"must be of type secret; this one is of type {credential.type}"))
        if owner not in credential.owners:
            raise invalid_request(("owner", f"must be one of {', '.join(credential.owners)}, the owners of {name}"))
        return source, THE_TENANT if owner == "tenant" else principal.user

    def _names(self, principal: Principal) -> set[str]:
        """Return the names of the credentials of tools that the principal may use."""
        tools = principal.permissions.permitted_tools(self._registry.names())
        found = (self._registry.get(name) for name in tools)
        return {name for tool in found if tool is not None for name in tool.info().credentials}

    def _view(
        self,
        source: CredentialSource,
        credential: Credential,
        principal: Principal,
        rows: dict[tuple[UserId, str], StoredValue],
    ) -> CredentialView:
        owner: Owner | None = None
        stored: StoredValue | None = None
        for each in credential.owners:
            if each == "service":
                read = source.parts.service_values.get(credential.name)
                keeper = source.parts.tokens.get(credential.name)
                is_set = keeper is not None or (read is not None and read() is not None)
            else:
                stored = rows.get((principal.user if each == "user" else THE_TENANT, credential.name))
                is_set = stored is not None and source.opened(stored) is not None
            if is_set:
                owner = each
                break
        keeper = source.parts.tokens.get(credential.name)
        is_stored = stored is not None and owner in {"user", "tenant"}
        return CredentialView(
            name=credential.name,
            type=credential.type,
            description=credential.description,
            owners=list(credential.owners),
            owner=owner,
            set_at=_time(stored.set_at) if is_stored and stored is not None else None,
            expires_at=None if keeper is None else _time(keeper.expires_at),
            rejected=is_stored and stored is not None and stored.rejected,
        )


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
