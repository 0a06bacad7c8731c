"""Credential of the service in the requests to an MCP server over HTTP."""

from collections.abc import AsyncGenerator
from typing import Final

import httpx2

from portico.adapters.tools.mcp.server_config import McpCredential

_UNAUTHORIZED: Final = 401


class CredentialAuth(httpx2.Auth):
    """Authentication that sends a credential; after a 401, which has not acted, once more with another value."""

    def __init__(self, credential: McpCredential) -> None:
        self._credential = credential
        self.is_refused = False
        """True if the last request was refused, also with another value."""

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send the request with the credential. Raises: IssuerError."""
        value = await self._credential.current()
        response = yield self._with(request, value)
        if response.status_code == _UNAUTHORIZED and value is not None:
            other = await self._credential.renewed(value)
            if other != value:
                response = yield self._with(request, other)
        self.is_refused = response.status_code == _UNAUTHORIZED

    def _with(self, request: httpx2.Request, value: str | None) -> httpx2.Request:
        if value is not None:
            name, text = self._credential.credential.header_with(value)
            request.headers[name] = text
        return request
