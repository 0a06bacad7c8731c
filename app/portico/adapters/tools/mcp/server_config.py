"""Configuration of one MCP server, for modules that do not load the protocol's library."""

from collections.abc import Callable, Mapping

from portico.adapters.tools.sandbox.levels import IsolatedProgram
from portico.domain.value import value


@value
class McpServerConfig:
    """Configuration of one MCP server: a `command` to start, or the `url` of one that runs.

    `environment` is what a started server gets beside an empty home, and `isolated` is its box; `headers` reads the
    current request headers. `secrets` are masked in what the server logs. Only the tools that `allow` names are taken,
    if it is there. The hints of a `trusted` server about its tools are believed. `timeout` is a call's, in seconds.
    With `pass_caller` each call says for whom it acts.
    """

    name: str
    command: tuple[str, ...]
    url: str | None
    environment: Mapping[str, str]
    isolated: IsolatedProgram | None
    headers: Callable[[], Mapping[str, str]]
    secrets: tuple[str, ...]
    trusted: bool
    allow: frozenset[str] | None
    timeout: float
    pass_caller: bool = False
