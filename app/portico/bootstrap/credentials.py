"""Credentials in the composition root: where their values come from. Without `[credentials]` there is nothing here."""

from collections.abc import Callable, Mapping
from typing import Final, Self

from portico.adapters.runners.maintenance import MAINTENANCE_INTERVAL_S, run_maintenance
from portico.adapters.stores.credentials import DatabaseCredentials
from portico.adapters.stores.database import Database
from portico.adapters.telemetry.logs import LogSink
from portico.bootstrap.webhooks import WebhookResources
from portico.capabilities.tools.credentials import CredentialParts, CredentialSource, TokenKeeper
from portico.domain.credentials import CredentialType
from portico.domain.lifecycle import Mode
from portico.domain.value import value
from portico.orchestration.execution.environment import Environment
from portico.orchestration.execution.pattern import Pattern
from portico.orchestration.facade import FacadeStores
from portico.orchestration.runtime.authorizations import Authorizations
from portico.orchestration.runtime.launcher import Launcher
from portico.ports.runtime import Clock, Runner
from portico.settings import Settings
from portico.settings.tables.credentials import CredentialSettings

_GRACE_SECONDS: Final = 60.0
"""Time between the storing of what a request brought and that of its execution, at most."""


@value
class ServiceCredentials:
    """Values of the service itself, by the name of the credential: fetched tokens, and what reads a secret."""

    tokens: Mapping[str, TokenKeeper]
    secrets: Mapping[str, Callable[[], str | None]]

    @classmethod
    def of(cls, settings: Settings, clock: Clock) -> Self:
        """Return those of the configuration."""
        tables = settings.credentials.items()
        fetched = {name: table for name, table in tables if table.type is CredentialType.CLIENT_CREDENTIALS}
        read = {name: table.service_value() for name, table in tables}
        return cls(
            {name: _keeper(table, clock) for name, table in fetched.items()},
            {name: each for name, each in read.items() if each is not None},
        )


NO_SERVICE_CREDENTIALS: Final = ServiceCredentials({}, {})


def open_credentials(
    settings: Settings,
    service: ServiceCredentials,
    database: Database,
    logs: LogSink,
    shared: WebhookResources,
) -> CredentialSource | None:
    """Return the credentials of the configuration; None without any.

    From time to time what requests have brought is deleted, if their execution has ended elsewhere.
    """
    clock = shared.clock
    if not settings.credentials:
        return None
    store = DatabaseCredentials(database)

    def on_unavailable(name: str, why: str) -> None:
        logs.log_warning(f"the credential {name} cannot be used: {why}")

    async def tidy() -> None:
        await store.forget_ended(clock.now() - _GRACE_SECONDS)

    if request_headers(settings):
        shared.group.start_soon(run_maintenance, clock, (tidy,), shared.on_error, MAINTENANCE_INTERVAL_S)
    named = {name: table.credential(name) for name, table in settings.credentials.items()}
    return CredentialSource(
        CredentialParts(named, store, shared.seal, service.secrets, service.tokens, clock, on_unavailable)
    )


def open_launcher(
    environment: Environment, runner: Runner, patterns: Mapping[Mode, Pattern], stores: FacadeStores
) -> Launcher:
    """Return the launcher; with credentials it lets calls go on whose credential has arrived."""
    arrivals = None
    if stores.credentials is not None:
        clock = environment.clock
        arrivals = Authorizations(stores.credentials, stores.executions, stores.records, runner, clock)
    return Launcher(environment, runner, patterns, arrivals)


def request_headers(settings: Settings) -> Mapping[bytes, tuple[str, ...]]:
    """Return the names of the credentials that each header of a request has, by its name in small letters."""
    found: dict[bytes, tuple[str, ...]] = {}
    for name, table in settings.credentials.items():
        if table.request_header is not None:
            header = table.request_header.lower().encode()
            found[header] = (*found.get(header, ()), name)
    return found


def _keeper(table: CredentialSettings, clock: Clock) -> TokenKeeper:
    from portico.adapters.credentials.client_credentials import (  # noqa: PLC0415 - loads Authlib and the HTTP client
        ClientConfig,
        ClientCredentialsIssuer,
    )

    config = ClientConfig(
        table.token_url or "", table.client_id or "", table.client_secret.read, table.scope, table.audience
    )
    return TokenKeeper(ClientCredentialsIssuer(config, clock), clock)
