"""The table `[server]` of the configuration: where the service listens."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from portico.settings.values import Positive, Table, Wait

HostPattern = Annotated[str, StringConstraints(pattern=r"^(\*|(\*\.)?[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])$")]


def _loopback_names(validated: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names under which a browser may reach a listener on loopback; any other may be an attacker's."""
    host: str = validated.get("host", "localhost")
    listener = f"[{host}]" if ":" in host else host
    return tuple(dict.fromkeys(("localhost", "127.0.0.1", "[::1]", listener)))


class ServerSettings(Table):
    """Listener of the service."""

    host: str = Field("127.0.0.1", description="Address to listen on; loopback only while `auth.mode` is `none`")
    port: Annotated[int, Field(ge=0, le=65535)] = Field(8080, description="Port to listen on; 0 lets the system choose")
    metrics_host: str = Field("127.0.0.1", description="Address to listen on at `metrics_port`")
    metrics_port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        None, description="Port of `/metrics`, which is then nowhere else; without it, it is at `port`"
    )
    drain_seconds: Wait = Field(30, description="Grace period for running executions after SIGTERM")
    max_in_flight: Positive = Field(1000, description="Executions that run at the same time; more are refused with 503")
    allowed_hosts: Annotated[tuple[HostPattern, ...], Field(min_length=1, strict=False)] = Field(
        default_factory=_loopback_names,
        description="Accepted Host headers: a host, `*.` and a domain, or `*`; by default the names of loopback, with "
        "authentication any",
    )
