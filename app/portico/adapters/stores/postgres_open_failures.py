"""Failures to open a PostgreSQL database at start, for the person who wrote `storage.url`.

Texts of the server are never repeated, and of the URL only its host, port, database and user.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from socket import gaierror
from ssl import SSLError
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

from portico.adapters.stores.open_failures import named
from portico.domain.failures import StorageFailure

_POSTGRES_REASONS: tuple[tuple[type[BaseException], str], ...] = (
    (asyncpg.InvalidCatalogNameError, "the database does not exist"),
    (asyncpg.UndefinedTableError, "the database has no tables of Portico"),
    (asyncpg.InvalidPasswordError, 'the password of the user "{user}" is missing or wrong'),
    (asyncpg.InvalidAuthorizationSpecificationError, 'the user "{user}" does not exist or may not log in'),
    (asyncpg.InsufficientPrivilegeError, 'the user "{user}" may not use the database or create tables in it'),
    (asyncpg.PostgresConnectionError, "the server closed the connection; it may not be PostgreSQL"),
    (asyncpg.ClientConfigurationError, "the URL has an option that is not valid"),
    (gaierror, "the name of the host cannot be resolved"),
    (ConnectionRefusedError, "nothing listens on the port"),
    (SSLError, "the TLS connection failed"),
    (TimeoutError, "the server did not answer in time"),
)
"""The first row that fits applies."""


@contextmanager
def named_postgres(url: str) -> Iterator[None]:
    """Name the server, the database and the reason in a storage failure."""
    try:
        yield
    except StorageFailure as failure:
        reason = _postgres_reason(failure.__cause__, unquote(urlsplit(url).username or ""))
        raise named(failure, f"cannot open {_postgres_name(url)}: {reason}") from failure


def _postgres_name(url: str) -> str:
    parts = urlsplit(url)
    given = parse_qs(parts.query)
    host = parts.hostname or given.get("host", ["the default host"])[0]
    port = parts.port or given.get("port", ["5432"])[0]
    return f'the database "{unquote(parts.path[1:])}" on {host}, port {port}'


def _postgres_reason(fault: BaseException | None, user: str) -> str:
    for kind, reason in _POSTGRES_REASONS:
        if isinstance(fault, kind):
            return reason.format(user=user)
    if isinstance(fault, asyncpg.PostgresError):
        return f"the server refused with SQLSTATE {fault.sqlstate}"
    if isinstance(fault, OSError) and fault.errno:
        return f"the server cannot be reached: {os.strerror(fault.errno)}"
    return "the server cannot be reached, or does not answer as PostgreSQL does"
