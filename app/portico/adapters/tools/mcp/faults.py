"""Faults of MCP servers: the fixed words that clients see, and the error that operators see."""

from typing import Final

import httpx2
import mcp_types as types
from mcp import MCPError

from portico.adapters.tools.plain_text import plain_text
from portico.domain.tools import ServerFault
from portico.domain.value import value
from portico.ports.credentials import IssuerError

_TEXT_CHARACTERS: Final = 500
_NO_MCP: Final = frozenset({types.PARSE_ERROR, types.INVALID_REQUEST, types.METHOD_NOT_FOUND})
"""Codes of a program or a page that does not speak the protocol."""


@value
class McpFault:
    """Reason why a server cannot be used; `text` is for operators."""

    fault: ServerFault
    text: str


NOT_CONNECTED: Final = McpFault(ServerFault.NO_ANSWER, "it did not answer yet")
CONNECTION_LOST: Final = McpFault(ServerFault.NO_ANSWER, "the connection was lost")


def fault_of(cause: BaseException) -> McpFault:
    """Return the fault behind an error, which is the first one of nested groups."""
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    match cause:
        case TimeoutError():
            return McpFault(ServerFault.NO_ANSWER, "it did not answer in time")
        case OSError(strerror=str(text)):
            return McpFault(ServerFault.NOT_STARTED, text)
        case MCPError(code=code, message=message):
            return McpFault(_fault_of_code(code), plain(message))
        case IssuerError():
            return McpFault(ServerFault.REFUSED, f"there is no credential for it: {cause}")
        case httpx2.TransportError():
            return McpFault(ServerFault.NO_ANSWER, type(cause).__name__)
    return McpFault(ServerFault.WRONG_PROTOCOL, type(cause).__name__)


def plain(text: str) -> str:
    """Return the beginning of what a server wrote, without terminal control."""
    return plain_text(text.encode(errors="replace"))[:_TEXT_CHARACTERS]


def _fault_of_code(code: int) -> ServerFault:
    if code in {types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT}:
        return ServerFault.NO_ANSWER
    return ServerFault.WRONG_PROTOCOL if code in _NO_MCP else ServerFault.REFUSED
