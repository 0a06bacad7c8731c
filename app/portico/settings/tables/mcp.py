"""The table `[mcp]` of the configuration: the MCP server at `/mcp`."""

from typing import Annotated, Literal

from pydantic import Field

from portico.settings.tables.server import Origin
from portico.settings.tables.storage import StorageSettings
from portico.settings.values import Natural, Table

Exposed = Literal["execute", "agents", "flows", "executions"]


class McpSettings(Table):
    """MCP server."""

    enabled: bool = Field(False, description="Serve MCP at `/mcp`; without it the path does not exist")
    expose: Annotated[tuple[Exposed, ...], Field(strict=False)] = Field(
        ("execute", "agents", "flows"),
        description="Tools: `execute`, one for each of the `agents` and `flows`; `executions` are resources",
    )
    sessions: Literal["auto"] | bool = Field(
        "auto",
        description="Sessions of clients before protocol 2026-07-28, each on one replica; `auto`: with SQLite only",
    )
    wait: Annotated[float, Field(ge=0, le=600)] = Field(
        30, description="Seconds from its begin that a call waits for a person whom its client cannot ask"
    )
    waiting: Natural = Field(
        200, description="Calls that may wait for a person at the same time; of one user at most a tenth"
    )
    origins: Annotated[tuple[Origin, ...], Field(strict=False)] = Field(
        (), description="Origins of web pages that may call `/mcp`, besides those of `server.allowed_hosts`"
    )

    def has_sessions(self, storage: StorageSettings) -> bool:
        """Return True if clients before protocol 2026-07-28 have sessions; each is on one replica."""
        return storage.url.startswith("sqlite:") if self.sessions == "auto" else self.sessions
