"""The tables `[server]` and `[console]` of the configuration: where the service listens, and for whom it has pages."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints

from portico.settings.tables.connection import is_loopback
from portico.settings.values import Positive, Table, Wait

HostPattern = Annotated[str, StringConstraints(pattern=r"^(\*|(\*\.)?[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])$")]


def _origin(origin: str) -> str:
    try:
        parts = urlsplit(origin)
        name = parts.netloc.rpartition(":")[0] if parts.port is not None else parts.netloc
        default_port = {"http": 80, "https": 443}.get(parts.scheme)
        is_exact = default_port is not None and parts.port != default_port and parts.geturl() == origin
        is_origin = is_exact and origin == f"{parts.scheme}://{parts.netloc}" and _HOST.fullmatch(name) is not None
    except ValueError:
        is_origin = False
    if origin != ANY_ORIGIN and not is_origin:
        raise ValueError("must be an origin as a browser sends it, https://app.example.org without a path, or *")
    return origin


def _public_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
        is_usable = bool(parts.hostname) and parts.port != 0 and parts.username is None
    except ValueError:
        is_safe = is_usable = False
    is_plain = all("!" <= character <= "~" and character not in '"\\?#' for character in url)
    if not (is_safe and is_usable and is_plain) or url.endswith("/"):
        raise ValueError("must be an https URL without a query and a final slash; http is allowed on loopback only")
    return url


PublicUrl = Annotated[str, AfterValidator(_public_url)]
ANY_ORIGIN: Final = "*"
_HOST: Final = re.compile(r"[a-z0-9_.-]+|\[[0-9a-f:.]+\]")
Origin = Annotated[str, AfterValidator(_origin)]


def _loopback_names(validated: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names under which a browser may reach a listener on loopback; any other may be an attacker's."""
    host: str = validated.get("host", "localhost")
    listener = f"[{host}]" if ":" in host else host
    return tuple(dict.fromkeys(("localhost", "127.0.0.1", "[::1]", listener)))


class ServerSettings(Table):
    """Listener of the service."""

    host: str = Field("127.0.0.1", description="Address to listen on; loopback only while `auth.mode` is `none`")
    port: Annotated[int, Field(ge=0, le=65535)] = Field(8080, description="Port to listen on; 0 lets the system choose")
    public_url: PublicUrl | None = Field(
        None, description="URL under which clients reach the service; needed by `[mcp]` while `auth.mode` is `jwt`"
    )
    metrics_host: str = Field("127.0.0.1", description="Address to listen on at `metrics_port`")
    metrics_port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        None, description="Port of `/metrics`, which is then nowhere else; without it, it is at `port`"
    )
    lame_duck_seconds: Annotated[float, Field(ge=0, le=300)] = Field(
        0,
        description="Time after SIGTERM in which new work is still accepted while `/readyz` says 503, so that gateways "
        "leave; then the port is closed",
    )
    drain_seconds: Wait = Field(30, description="Grace period for running executions after SIGTERM")
    max_in_flight: Positive = Field(1000, description="Executions that run at the same time; more are refused with 503")
    allowed_hosts: Annotated[tuple[HostPattern, ...], Field(min_length=1, strict=False)] = Field(
        default_factory=_loopback_names,
        description="Accepted Host headers: a host, `*.` and a domain, or `*`; by default the names of loopback, with "
        "authentication any",
    )
    cors_origins: Annotated[tuple[Origin, ...], Field(strict=False)] = Field(
        (), description='Origins whose pages may call the service from a browser; `["*"]` with authentication only'
    )


class ConsoleSettings(Table):
    """Pages of the service."""

    enabled: bool = Field(
        True, description="Serve the [console](console.md) at `/console`; with `false` it does not exist"
    )
