"""Credential of the service in the requests to an MCP server over HTTP."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import httpx2

from portico.adapters.tools.mcp.server_config import McpCredential

_UNAUTHORIZED: Final = 401


class CallRefusal:
    """Note of whether the request of a call was refused, also with another value."""

    __slots__ = ("is_refused",)

    def __init__(self) -> None:
        self.is_refused = False


_OF_CALL: Final[ContextVar[CallRefusal | None]] = ContextVar("refusal_of_call", default=None)
"""The note of the call of this context, in which the SDK sends its request, too."""


@contextmanager
def noted_refusal() -> Iterator[CallRefusal]:
    """Yield the note of the call that is made within the context."""
    note = CallRefusal()
    token = _OF_CALL.set(note)
    try:
        yield note
    finally:
        _OF_CALL.reset(token)


class CredentialAuth(httpx2.Auth):
    """Authentication that sends a credential; after a 401, which has not acted, once more with another value."""

    def __init__(self, credential: McpCredential) -> None:
        self._credential = credential

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send the request with the credential. Raises: IssuerError."""
        value = await self._credential.current()
        response = yield self._with(request, value)
        if response.status_code == _UNAUTHORIZED and value is not None:
            other = await self._credential.renewed(value)
            if other != value:
                response = yield self._with(request, other)
        note = _OF_CALL.get()
        if note is not None:
            note.is_refused = response.status_code == _UNAUTHORIZED

    def _with(self, request: httpx2.Request, value: str | None) -> httpx2.Request:
        if value is not None:
            name, text = self._credential.credential.header_with(value)
            request.headers[name] = text
        return request
