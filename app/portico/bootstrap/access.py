"""Composition of authentication: the authenticator of the configured mode, and its background work."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from anyio.abc import TaskGroup

from portico.adapters.access.api_keys import REFRESH_INTERVAL_S, ApiKeys
from portico.adapters.access.authenticators import BearerAuthenticator, NoAuthentication, TenantAuthenticator
from portico.adapters.access.bootstrap_key import BootstrapKey
from portico.adapters.runners.maintenance import run_maintenance
from portico.adapters.stores.access.api_keys import DatabaseKeys
from portico.adapters.stores.database import Database
from portico.adapters.telemetry.logs import LogSink
from portico.adapters.telemetry.metrics.sink import MetricsSink
from portico.bootstrap.audit import ServiceAudit, open_audit
from portico.capabilities.key_administration import KeyAdministration
from portico.domain.ids import TenantId, UserId
from portico.domain.value import value
from portico.orchestration.keys import KeyParts
from portico.ports.access import Authenticator
from portico.ports.runtime import Clock, Entropy
from portico.settings import AuthSettings, Settings


@value
class AccessReports:
    """Reports of what concerns callers: the log, and the metrics."""

    logs: LogSink
    metrics: MetricsSink


@asynccontextmanager
async def open_access(
    settings: Settings, database: Database, clock: Clock, reports: AccessReports, group: TaskGroup
) -> AsyncIterator[tuple[Authenticator, ServiceAudit]]:
    """Open the authentication of callers, and the audit of what they do. Raises: ConfigurationFailure."""
    async with (
        open_authenticator(settings, database, clock, reports.logs, group) as callers,
        open_audit(settings.audit, clock, reports.metrics.count_audit_failure, group) as audit,
    ):
        yield callers, audit


@asynccontextmanager
async def open_authenticator(
    settings: Settings, database: Database, clock: Clock, logs: LogSink, group: TaskGroup
) -> AsyncIterator[Authenticator]:
    """Yield the authenticator of the configured mode, with the rights of tenants. Raises: ConfigurationFailure."""
    tenants = {name: tenant.rights for name, tenant in settings.tenants.items()}
    async with _open_callers(settings, database, clock, logs, group) as callers:
        yield TenantAuthenticator(callers, tenants) if any(tenants.values()) else callers


@asynccontextmanager
async def _open_callers(
    settings: Settings, database: Database, clock: Clock, logs: LogSink, group: TaskGroup
) -> AsyncIterator[Authenticator]:
    """Yield the authenticator of the configured mode; its background work runs in the group, until that is cancelled.

    Neither start nor readiness waits for the issuer of tokens. Raises: ConfigurationFailure.
    """
    auth = settings.auth
    if auth.mode == "none":
        yield NoAuthentication()
        return
    api_keys = ApiKeys(DatabaseKeys(database), clock, _bootstrap_key(auth, clock))
    on_error = partial(logs.log_fault, place="storage")
    group.start_soon(run_maintenance, clock, (api_keys.refresh,), on_error, REFRESH_INTERVAL_S)
    if auth.mode == "keys":
        yield BearerAuthenticator(clock, api_keys)
        return
    # Importing the cryptography and the HTTP client takes 0.2 s, so only mode jwt does.
    from portico.bootstrap.tokens import open_tokens  # noqa: PLC0415 - see above

    async with open_tokens(settings, clock, logs.log_issuer_failure, group) as tokens:
        yield BearerAuthenticator(clock, api_keys, tokens)


def key_parts(
    settings: Settings, database: Database, callers: Authenticator, clock: Clock, entropy: Entropy
) -> KeyParts:
    """Return what the keys are listed, made and revoked with."""
    administration = KeyAdministration(DatabaseKeys(database), clock, entropy)
    return KeyParts(administration, callers, clock, settings.auth.mode)


def _bootstrap_key(auth: AuthSettings, clock: Clock) -> BootstrapKey | None:
    tenant, user = TenantId(auth.bootstrap_tenant), UserId(auth.bootstrap_user)
    if auth.bootstrap_key_env is not None:
        return BootstrapKey(auth.bootstrap_key_env, tenant, user, clock)
    if auth.bootstrap_key_file is None:
        return None
    return BootstrapKey(Path(auth.bootstrap_key_file), tenant, user, clock)
