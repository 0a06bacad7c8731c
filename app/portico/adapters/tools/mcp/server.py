"""Connection to one MCP server: made, watched and made again by one task.

Theory of operation

1. One task owns the connection, from its start to its end. Calls run in the tasks of their executions.
2. A connection that is lost is made again, with a growing pause, and the tools are listed anew. Without one, the tools
   that were listed last are unavailable, with the reason.
3. A connection sends a call once; who calls may repeat one that is idempotent. If the connection dies while a call is
   in flight, its outcome is unknown.
4. A server announces that its list has changed; the new list replaces the old one, and an unchanged tool stays the same
   object.
"""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from math import isfinite
from typing import Any, Final, Protocol, cast

import anyio
import httpx2
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp import ClientSession, MCPError
from mcp.client.session import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost, listen
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.message import SessionMessage

from portico.adapters.tools.mcp.credential_auth import CredentialAuth, noted_refusal
from portico.adapters.tools.mcp.faults import CONNECTION_LOST, NOT_CONNECTED, McpFault, fault_of, plain
from portico.adapters.tools.mcp.limited_transport import LimitedTransport
from portico.adapters.tools.mcp.mcp_tool import McpTool
from portico.adapters.tools.mcp.pipes import open_pipes
from portico.adapters.tools.mcp.questions import NO_ANSWERS, Answers
from portico.adapters.tools.mcp.server_config import McpServerConfig
from portico.adapters.tools.plain_text import plain_text
from portico.capabilities.tools.mask import mask
from portico.domain.tools import ToolServerStatus
from portico.ports.tool import CredentialUnavailable, OnProgress, Tool, ToolError, ToolOutcomeUnknown

CONNECT_SECONDS: Final = 30.0
"""Time to start a server and to agree on the protocol."""
LIST_SECONDS: Final = 30.0
"""Time to list all tools."""
MAX_TOOLS: Final = 128
MAX_MESSAGE_BYTES: Final = 32 * 1024 * 1024
"""A larger message ends the connection; over HTTP, one in a reply of its own is an error of the call."""
PAUSES_S: Final = (1.0, 2.0, 5.0, 15.0, 60.0)
"""Pauses before the connection is made again, the last one for all further attempts."""
STEADY_SECONDS: Final = 60.0
"""A connection that lasted so long has not failed at its start: the pauses begin anew."""
_MAX_LOGGED_LINES: Final = 1_000
_LOGGED_CHARACTERS: Final = 500
_LOST_CODES: Final = frozenset({types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT})
_REFUSED: Final = "refused the credential with status 401"
_NOT_CONNECTED: Final = "its MCP server is not connected"

Messages = MemoryObjectReceiveStream[SessionMessage | Exception]


class McpLog(Protocol):
    """The log of MCP servers."""

    def log_server_line(self, server: str, line: str) -> None:
        """Log a line that a server wrote to its standard error."""
        ...

    def log_server_failure(self, server: str, reason: str) -> None:
        """Log that a server cannot be used, or not completely."""
        ...


class McpServer:
    """One MCP server of the configuration, and its tools of now."""

    def __init__(self, config: McpServerConfig, log: McpLog) -> None:
        self.tools: Sequence[Tool] = ()
        """Tools that the server listed last; another object when they change."""
        self.failure = _NOT_CONNECTED
        """Reason why the server cannot be called now; empty if it can."""
        self._fault = NOT_CONNECTED
        self.was_tried = anyio.Event()
        """Set when the first attempt to connect has ended."""
        self._config = config
        self._log = log
        self._session: ClientSession | None = None
        self._wake = anyio.Event()
        self._is_lost = False
        self._listed: Mapping[str, types.Tool] = {}
        self._auth = None if config.credential is None else CredentialAuth(config.credential)

    async def run(self) -> None:
        """Keep the server connected until the task is cancelled."""
        attempt = 0
        while True:
            began = anyio.current_time()
            self.failure = await self._connect_once()
            self._log.log_server_failure(self._config.name, self.failure)
            self.was_tried.set()
            attempt = 0 if anyio.current_time() - began > STEADY_SECONDS else attempt + 1
            await anyio.sleep(PAUSES_S[min(attempt, len(PAUSES_S)) - 1])

    def status(self) -> ToolServerStatus:
        """Return how many tools the server lists, and its fault if it cannot be used now."""
        config, fault = self._config, self._fault
        if not self.failure:
            return ToolServerStatus(config.name, len(self.tools))
        detail = f"{fault.fault}: {fault.text} ({config.url or config.command[0]})"
        return ToolServerStatus(config.name, len(self.tools), fault.fault, detail)

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        answers: Answers = NO_ANSWERS,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Call a tool once, or go on with a call after its questions were answered.

        The server may say how far it is; `meta` goes with the call. A number without a total counts as 0.

        Raises: ToolError; ToolOutcomeUnknown if the connection was lost meanwhile.
        """
        session = self._session
        if session is None:
            raise ToolError(self.failure)
        try:
            with noted_refusal() as refusal:
                result = await session.call_tool(
                    tool,
                    dict(arguments),
                    progress_callback=None if on_progress is None else _progress_callback(on_progress),
                    input_responses=answers.responses,
                    request_state=answers.state,
                    meta=None if meta is None else cast("types.RequestParamsMeta", meta),
                    allow_input_required=True,
                )
        except MCPError as error:
            if refusal.is_refused:
                self._log.log_server_failure(self._config.name, _REFUSED)
                raise CredentialUnavailable(f"its MCP server {_REFUSED}") from error
            if error.code not in _LOST_CODES:
                raise ToolError(f"the server refused the call: {plain(error.message)}") from error
            self._lose()
            raise ToolOutcomeUnknown("the connection to the MCP server was lost") from error
        except RuntimeError as error:
            raise ToolError("the server answered with a result that does not fit its own definition") from error
        assert isinstance(result, types.CallToolResult | types.InputRequiredResult)  # noqa: S101 - nothing else is asked
        return result

    async def _connect_once(self) -> str:
        """Return when the connection has ended, with the reason."""
        try:
            async with self._connection() as session:
                await self._serve(session)
        # A library runs the server's protocol: a broken server may make it raise anything, in groups too.
        except Exception as cause:  # noqa: BLE001 - the reason stands above
            fault = fault_of(cause)
            self._fault = McpFault(fault.fault, self._masked(fault.text))
            return f"its MCP server cannot be used: {self._fault.text}"
        finally:
            self._session = None
        self._fault = CONNECTION_LOST
        return "the connection to its MCP server was lost"

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[ClientSession]:
        """Yield a session on which both sides agreed about the protocol."""
        self._is_lost, self._wake = False, anyio.Event()
        transport = self._over_http if self._config.url is not None else self._over_pipes
        with anyio.fail_after(CONNECT_SECONDS) as limit:
            async with transport() as (incoming, outgoing), anyio.create_task_group() as tasks:
                forwarded, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
                tasks.start_soon(self._forward, incoming, forwarded)
                async with ClientSession(
                    messages, outgoing, message_handler=self._handle, elicitation_callback=_decline
                ) as session:
                    await _agree(session)
                    limit.deadline = float("inf")
                    yield session
                tasks.cancel_scope.cancel()

    async def _serve(self, session: ClientSession) -> None:
        """Keep the list of tools current until the connection is lost."""
        async with anyio.create_task_group() as tasks:
            await self._list(session)
            self._session, self.failure = session, ""
            self.was_tried.set()
            tasks.start_soon(self._subscribe, session)
            while not self._is_lost:
                await self._wake.wait()
                self._wake = anyio.Event()
                if not self._is_lost:
                    await self._list(session)
            tasks.cancel_scope.cancel()

    async def _list(self, session: ClientSession) -> None:
        """Take the server's list; tools that did not change stay the same objects."""
        listed: dict[str, types.Tool] = {}
        with anyio.fail_after(LIST_SECONDS):
            cursor: str | None = None
            while len(listed) <= MAX_TOOLS:
                page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
                allowed = (each for each in page.tools if self._is_allowed(each.name))
                listed |= {each.name: each for each in allowed}
                cursor = page.next_cursor
                if cursor is None:
                    break
        kept = dict(sorted(listed.items())[:MAX_TOOLS])
        if len(listed) > MAX_TOOLS:
            self._log.log_server_failure(self._config.name, f"it lists more than {MAX_TOOLS} tools")
        if kept != self._listed:
            current = dict(zip(self._listed, self.tools, strict=True))
            self.tools = [
                current[name] if self._listed.get(name) == each else McpTool(self._config, each, self)
                for name, each in kept.items()
            ]
            self._listed = kept

    def _is_allowed(self, name: str) -> bool:
        return self._config.allow is None or name in self._config.allow

    async def _subscribe(self, session: ClientSession) -> None:
        """List anew when the server says so; servers of the older protocol send notifications instead."""
        with suppress(ListenNotSupportedError, SubscriptionLost, MCPError, TimeoutError):
            async with listen(session, tools_list_changed=True) as changes:
                async for _ in changes:
                    self._wake.set()

    async def _handle(self, message: types.ServerNotification | Exception) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._wake.set()

    async def _forward(self, incoming: Any, forwarded: Any) -> None:
        """Pass the server's messages on, and note the end of the connection."""
        async with forwarded:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                async for message in incoming:
                    await forwarded.send(message)
        self._lose()

    def _lose(self) -> None:
        self._is_lost, self._session, self._fault = True, None, CONNECTION_LOST
        self.failure = "the connection to its MCP server was lost"
        self._wake.set()

    @asynccontextmanager
    async def _over_pipes(self) -> AsyncIterator[Any]:
        """Start the server and yield its messages; its standard error is logged."""
        config = self._config
        assert config.isolated is not None  # noqa: S101 - of a server that is started
        reading, writing = os.pipe()
        with os.fdopen(writing, "w") as errors:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._log_errors, reading)
                async with open_pipes(
                    config.command,
                    config.environment,
                    config.isolated,
                    base=config.base,
                    errors=errors,
                    max_bytes=MAX_MESSAGE_BYTES,
                ) as streams:
                    yield streams
                tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def _over_http(self) -> AsyncIterator[Any]:
        assert self._config.url is not None  # noqa: S101 - of a server that is reached over HTTP

        async def add_headers(request: httpx2.Request) -> None:
            request.headers.update(self._config.headers())

        timeout = httpx2.Timeout(CONNECT_SECONDS, read=None)
        hooks, transport = {"request": [add_headers]}, LimitedTransport(MAX_MESSAGE_BYTES)
        async with (
            httpx2.AsyncClient(
                trust_env=False, timeout=timeout, event_hooks=hooks, transport=transport, auth=self._auth
            ) as client,
            streamable_http_client(
                self._config.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
            ) as streams,
        ):
            yield streams

    async def _log_errors(self, reading: int) -> None:
        """Log what the server writes to its standard error, line by line, up to a number of lines."""
        os.set_blocking(reading, False)
        rest, count = b"", 0
        try:
            while True:
                await anyio.wait_readable(reading)
                data = os.read(reading, 16 * 1024)
                if not data:
                    return
                *lines, rest = (rest + data).split(b"\n")
                rest = rest[-_LOGGED_CHARACTERS:]
                for line in lines[: max(0, _MAX_LOGGED_LINES - count)]:
                    self._log.log_server_line(self._config.name, self._masked(plain_text(line))[:_LOGGED_CHARACTERS])
                count += len(lines)
        finally:
            os.close(reading)

    def _masked(self, line: str) -> str:
        for secret in self._config.secrets:
            line = line.replace(secret, "[secret]")
        credential = self._config.credential
        return line if credential is None else mask(line, credential.values())


async def _agree(session: ClientSession) -> None:
    """Agree on the protocol: the current one if the server has it, else the older handshake."""
    try:
        await session.discover()
    except (MCPError, RuntimeError, ValueError):
        await session.initialize()


async def _decline(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Decline a question that holds the connection, which a suspended execution does not have."""
    return types.ElicitResult(action="decline")


def _progress_callback(report: OnProgress) -> ProgressFnT:
    """Return a callback that reports the progress of a call as a fraction of the total that the server names."""

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        fraction = progress / total if total else 0.0
        if isfinite(fraction):
            report(fraction, plain_text((message or "").encode(errors="replace")))

    return on_progress
