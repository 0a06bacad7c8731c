"""The tables `[credentials.NAME]` of the configuration: what tools present elsewhere on behalf of a caller."""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from portico.domain.credentials import VALUE_PLACE, Credential, CredentialType, Owner, fault_of
from portico.settings.tables.connection import is_loopback
from portico.settings.tables.tool_sources import HeaderName, HttpToolSettings, McpServerSettings, ToolSettings
from portico.settings.values import BaseUrl, Secret, SecretFromFile, SecretFromVariable, Table

_OWN_HEADERS: Final = frozenset({"authorization", "cookie", "host", "idempotency-key", "x-api-key"})
_OWN_PREFIX: Final = "portico-"
_NOT_SENT: Final = frozenset({"host", "content-length", "transfer-encoding", "connection"})
_DEFAULT_OWNERS: Final[tuple[Owner, ...]] = ("user", "tenant", "service")
_SECRET_KEYS: Final = ("owners", "value_env", "value_file")
_REQUEST_KEYS: Final = ("request_header",)
_CLIENT_KEYS: Final = ("token_url", "client_id", "client_secret_env", "client_secret_file", "scope", "audience")
_KEYS: Final[Mapping[CredentialType, tuple[str, ...]]] = {
    CredentialType.SECRET: _SECRET_KEYS,
    CredentialType.REQUEST: _REQUEST_KEYS,
    CredentialType.CLIENT_CREDENTIALS: _CLIENT_KEYS,
}

CredentialName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Text = Annotated[str, StringConstraints(min_length=1, max_length=1_024)]


def _request_header(name: str) -> str:
    if name.lower() in _OWN_HEADERS or name.lower().startswith(_OWN_PREFIX):
        raise ValueError("must be none of Authorization, Cookie, Host, Idempotency-Key, X-Api-Key and portico-…")
    return name


def _header(name: str) -> str:
    if name.lower() in _NOT_SENT:
        raise ValueError("must be no header of the connection, such as Host or Content-Length")
    return name


def _format(text: str) -> str:
    if text.count(VALUE_PLACE) != 1:
        raise ValueError(f"must have the place {VALUE_PLACE} once")
    return text


def _token_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise ValueError("must be https, or http on loopback")
    return url


def _owners(owners: tuple[Owner, ...]) -> tuple[Owner, ...]:
    if len(set(owners)) != len(owners):
        raise ValueError("must name each owner once")
    return owners


class CredentialSettings(Table):
    """A credential that tools present elsewhere on behalf of a caller. What it may have depends on its type."""

    type: Annotated[CredentialType, Field(strict=False)] = Field(
        description="`secret`: a value that people or operators set; `request`: a header of the request; "
        "`client_credentials`: a token that the service fetches for itself"
    )
    description: Annotated[str, StringConstraints(max_length=1_024)] = Field(
        "", description="What it is for and where to get it, for the people who are asked for it"
    )
    header: Annotated[HeaderName, AfterValidator(_header)] = Field(
        "Authorization", description="Header in which HTTP tools and MCP servers get it"
    )
    format: Annotated[str, StringConstraints(pattern=r"^[ -~]{7,256}$"), AfterValidator(_format)] = Field(
        "Bearer {value}", description="Text of that header, with the place `{value}`"
    )
    owners: Annotated[tuple[Owner, ...], Field(min_length=1, strict=False), AfterValidator(_owners)] = Field(
        _DEFAULT_OWNERS,
        description="Of a secret: whose values count, `user`, `tenant` and `service`; the first that is set is used",
    )
    value_env: SecretFromVariable | None = Field(
        None, description="Of a secret: variable with the value of the service"
    )
    value_file: SecretFromFile | None = Field(
        None, description="Of a secret: file with the value of the service; it is read again when it changes"
    )
    request_header: Annotated[HeaderName, AfterValidator(_request_header)] | None = Field(
        None, description="Of type `request`: header of the request that has the value"
    )
    token_url: Annotated[BaseUrl, AfterValidator(_token_url)] | None = Field(
        None, description="Of client credentials: token endpoint of the issuer, with https, or http on loopback"
    )
    client_id: Text | None = Field(None, description="Of client credentials: id of the client")
    client_secret_env: SecretFromVariable | None = Field(
        None, description="Of client credentials: variable with the secret of the client"
    )
    client_secret_file: SecretFromFile | None = Field(
        None, description="Of client credentials: file with the secret of the client; it is read again when it changes"
    )
    scope: Text | None = Field(None, description="Of client credentials: scopes that are asked for")
    audience: Text | None = Field(None, description="Of client credentials: audience of the token")

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        others = [key for kind, keys in _KEYS.items() if kind is not self.type for key in keys]
        for key in others:
            if key in self.model_fields_set:
                raise ValueError(f"is of type {self.type}, so {key} has no meaning")
        match self.type:
            case CredentialType.SECRET:
                self._check_secret()
            case CredentialType.REQUEST:
                self._require("request_header")
            case CredentialType.CLIENT_CREDENTIALS:
                self._require("token_url", "client_id")
                self._require_one("client_secret_env", "client_secret_file")
        return self

    def _check_secret(self) -> None:
        secret = self.secret
        if self.value_env is not None and self.value_file is not None:
            raise ValueError("must have value_env or value_file, not both")
        if secret is not None and "service" not in self.owners:
            raise ValueError("has a value of the service, so owners must name service")
        if secret is None and self.owners == ("service",):
            raise ValueError("must have value_env or value_file: its only owner is service")
        fault = None if secret is None else fault_of(secret.read() or "")
        if fault is not None:
            raise ValueError(f"{'value_env' if self.value_env else 'value_file'}: the value {fault}")

    def _require(self, *keys: str) -> None:
        for key in keys:
            if getattr(self, key) is None:
                raise ValueError(f"is of type {self.type}, so it must have {key}")

    def _require_one(self, one: str, other: str) -> None:
        if (getattr(self, one) is None) == (getattr(self, other) is None):
            raise ValueError(f"is of type {self.type}, so it must have either {one} or {other}")

    @property
    def secret(self) -> Secret | None:
        """Return the value of the service, if it has one."""
        return self.value_env or self.value_file

    @property
    def client_secret(self) -> Secret:
        """Return the secret of the client, which client credentials have."""
        secret = self.client_secret_env or self.client_secret_file
        assert secret is not None  # noqa: S101 - checked above
        return secret

    def service_value(self) -> Callable[[], str | None] | None:
        """Return what reads the value of the service; None without one."""
        secret = self.secret
        return None if secret is None else lambda: _usable(secret.read())

    def credential(self, name: str) -> Credential:
        """Return the credential of that name."""
        return Credential(
            name,
            self.type,
            self.description,
            self.header,
            self.format,
            self._all_owners(),
            self.request_header,
        )

    def _all_owners(self) -> tuple[Owner, ...]:
        match self.type:
            case CredentialType.SECRET:
                return self.owners
            case CredentialType.REQUEST:
                return ()
            case CredentialType.CLIENT_CREDENTIALS:
                return ("service",)


def _usable(value: str | None) -> str | None:
    return value if value is not None and fault_of(value) is None else None


def credential_errors(
    credentials: Mapping[str, CredentialSettings], tools: ToolSettings, *, seals: bool
) -> Iterator[tuple[str, str]]:
    """Yield the errors of credentials and of the tools that name them; without `seals` nothing can be stored."""
    for name, table in credentials.items():
        if not seals and table.credential(name).is_askable:
            hint = ' or owners must be ["service"]' if table.type is CredentialType.SECRET else ""
            yield (
                "secrets.key_file",
                f"must be set: PostgreSQL stores values of credentials.{name} sealed;{hint}".rstrip(";"),
            )
    for key, name in _named(tools):
        if name not in credentials:
            known = ", ".join(sorted(credentials)) or "none"
            yield key, f"must name a table of [credentials]; there is {known}"
    for tool, http in tools.http.items():
        yield from _http_errors(f"tools.http.{tool}", http, credentials)
    for server, mcp in tools.mcp.items():
        yield from _mcp_errors(f"tools.mcp.{server}", mcp, credentials)


def _named(tools: ToolSettings) -> Iterator[tuple[str, str]]:
    """Yield the key and the name of each credential that a tool of the configuration names."""
    for tool, program in tools.cli.items():
        yield from (
            (f"tools.cli.{tool}.credentials.{variable}", name) for variable, name in program.credentials.items()
        )
    for kind, tables in (("http", tools.http), ("mcp", tools.mcp)):
        for tool, table in tables.items():
            if table.credential is not None:
                yield f"tools.{kind}.{tool}.credential", table.credential


def _http_errors(
    key: str, table: HttpToolSettings, credentials: Mapping[str, CredentialSettings]
) -> Iterator[tuple[str, str]]:
    credential = credentials.get(table.credential or "")
    if credential is None:
        return
    if urlsplit(table.url).scheme != "https" and not table.allow_private:
        yield f"{key}.url", "must be https, since a credential is sent there; http needs allow_private = true"
    if credential.header.lower() in {name.lower() for name in table.headers}:
        yield f"{key}.headers", f"must not have {credential.header}, which is the header of the credential"


def _mcp_errors(
    key: str, table: McpServerSettings, credentials: Mapping[str, CredentialSettings]
) -> Iterator[tuple[str, str]]:
    credential = credentials.get(table.credential or "")
    if credential is None or table.url is None:
        return
    parts = urlsplit(table.url)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        yield f"{key}.url", "must be https, or http on loopback, since a credential is sent there"
    if credential.credential(table.credential or "").is_askable:
        yield (
            f"{key}.credential",
            'must be of type client_credentials, or a secret with owners = ["service"]: a server has one connection',
        )
