"""MCP over standard input and output: the server of this process, or a bridge to one elsewhere."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Protocol

import anyio
import httpx2
from mcp import types
from mcp.client.streamable_http import streamable_http_client
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.message import ClientMessageMetadata, SessionMessage

from portico.domain.access.principal import Principal
from portico.entrypoints.mcp.calls import CallRules
from portico.entrypoints.mcp.server import PorticoServer, RequestCaller
from portico.entrypoints.person_waits import WaitingRequests
from portico.orchestration.facade import CallOptions, Facade
from portico.settings import Settings

_VERSION_HEADER: Final = "mcp-protocol-version"


class _Source(Protocol):
    async def receive(self) -> SessionMessage | Exception: ...


class _Sink(Protocol):
    async def send(self, item: SessionMessage, /) -> None: ...

    async def aclose(self) -> None: ...


async def serve_stdio(facade: Facade, settings: Settings, caller: Principal) -> None:
    """Serve the caller until the input ends. What runs then is cancelled, except in sessions.

    No call waits for an answer from elsewhere: the store of this process is in memory, so there is no elsewhere.
    """
    rules = CallRules(
        wait=0.0,
        max_depth=settings.limits.json_depth,
        self_approval=settings.policy.self_approval,
        cancels=True,
        waiting=WaitingRequests(settings.mcp.waiting),
        is_stopping=lambda: False,
    )
    server = PorticoServer(facade, settings.mcp.expose, rules, partial(_local_caller, caller)).build()
    async with stdio_server() as (messages, replies):
        await server.run(messages, replies, server.create_initialization_options())


async def bridge_stdio(url: str, headers: Mapping[str, str]) -> None:
    """Pass messages between this process's input and output and the MCP server at that URL, until the input ends."""
    async with (
        httpx2.AsyncClient(headers=dict(headers), timeout=httpx2.Timeout(30.0, read=None), trust_env=False) as http,
        streamable_http_client(url, http_client=http) as (answers, requests),
        stdio_server() as (messages, replies),
        anyio.create_task_group() as group,
    ):
        agreed = _AgreedVersion()

        async def pass_answers() -> None:
            await _pass(answers, replies, agreed)

        group.start_soon(pass_answers)
        await _pass(messages, requests, agreed)
        group.cancel_scope.cancel()


class _AgreedVersion:
    """The protocol that the two sides have agreed on, which each message over HTTP names."""

    def __init__(self) -> None:
        self._version: str | None = None

    def stamped(self, message: SessionMessage) -> SessionMessage:
        """Return the message with the version, once it is known from an answer to `initialize`."""
        content = message.message
        if isinstance(content, types.JSONRPCResponse) and "protocolVersion" in content.result:
            self._version = str(content.result["protocolVersion"])
        if self._version is None or isinstance(content, types.JSONRPCResponse | types.JSONRPCError):
            return SessionMessage(content)
        return SessionMessage(content, metadata=ClientMessageMetadata(headers={_VERSION_HEADER: self._version}))


async def _pass(source: _Source, sink: _Sink, agreed: _AgreedVersion) -> None:
    """Pass messages on until there are no more; what is not the protocol is left out."""
    try:
        while True:
            message = await source.receive()
            if isinstance(message, SessionMessage):
                await sink.send(agreed.stamped(message))
    except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
        await sink.aclose()


def _local_caller(caller: Principal, context: ServerRequestContext[Any, Any]) -> RequestCaller:
    wants_progress = context.meta is not None and context.meta.get("progress_token") is not None
    return RequestCaller(caller, CallOptions(subscribe=wants_progress))
