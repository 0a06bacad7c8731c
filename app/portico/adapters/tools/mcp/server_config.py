"""Configuration of one MCP server, for modules that do not load the protocol's library."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from portico.capabilities.tools.credentials import TokenKeeper
from portico.domain.credentials import Credential
from portico.domain.value import value

if TYPE_CHECKING:
    from portico.adapters.tools.sandbox.levels import IsolatedProgram


@value
class McpCredential:
    """A credential of the service that is sent to a server: a token that `keeper` fetches, or what `read` reads."""

    credential: Credential
    keeper: TokenKeeper | None
    read: Callable[[], str | None]

    @property
    def name(self) -> str:
        """Return its name."""
        return self.credential.name

    async def current(self) -> str | None:
        """Return the value; None without one. Raises: IssuerError."""
        return self.read() if self.keeper is None else await self.keeper.current()

    async def renewed(self, refused: str) -> str | None:
        """Return the value of now after one was refused. Raises: IssuerError."""
        return self.read() if self.keeper is None else await self.keeper.renewed(refused)

    def values(self) -> list[tuple[str, str]]:
        """Return what is masked, with the name."""
        known = [self.read()] if self.keeper is None else self.keeper.recent
        return [(self.name, each) for each in known if each is not None]


@value
class McpServerConfig:
    """Configuration of one MCP server: a `command` to start, or the `url` of one that runs.

    A relative path of the program begins at `base`. `environment` is what it gets beside an empty home, and `isolated`
    is its box; `headers` reads the current request headers. `secrets` are masked in what the server logs. Only the
    tools that `allow` names are taken, if it is there. The hints of a `trusted` server about its tools are believed.
    `timeout` is a call's, in seconds. With `pass_caller` each call says for whom it acts. The `credential` is sent with
    each request.
    """

    name: str
    command: tuple[str, ...]
    base: Path
    url: str | None
    environment: Mapping[str, str]
    isolated: "IsolatedProgram | None"
    headers: Callable[[], Mapping[str, str]]
    secrets: tuple[str, ...]
    trusted: bool
    allow: frozenset[str] | None
    timeout: float
    pass_caller: bool = False
    credential: McpCredential | None = None
