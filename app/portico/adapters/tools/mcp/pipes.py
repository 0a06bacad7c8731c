"""Pipes to an MCP server that runs as a program: one message a line, each of limited size.

The program runs in a session of its own. At the end its input is closed; if it does not end by itself, its group gets
SIGTERM and, after another pause, SIGKILL. All of that happens also when the connection is cancelled.
"""

import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, TextIO

import anyio
import mcp_types as types
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

ENDINGS: Final = ((None, 1.0), (signal.SIGTERM, 0.5), (signal.SIGKILL, 0.5))
"""How a program is ended after its input was closed: the signals, and the seconds that it has after each."""
_FLUSH_SECONDS: Final = 0.5
_POLL_SECONDS: Final = 0.01
_BROKEN: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


@asynccontextmanager
async def open_pipes(
    command: Sequence[str], environment: Mapping[str, str], directory: Path, *, errors: TextIO, max_bytes: int
) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """Start the program and yield its messages, and where to send messages; `errors` takes its standard error.

    A message of more than `max_bytes` ends the messages. Raises: OSError if the program cannot be started.
    """
    process = await anyio.open_process(
        list(command), env=dict(environment), cwd=directory, stderr=errors, start_new_session=True
    )
    assert process.stdin is not None  # noqa: S101 - a program is started with pipes
    assert process.stdout is not None  # noqa: S101 - a program is started with pipes
    received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, sent = anyio.create_memory_object_stream[SessionMessage](0)
    flushed = anyio.Event()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read, process.stdout, received, max_bytes)
            tasks.start_soon(_write, process.stdin, sent, received, flushed)
            try:
                yield incoming, outgoing
            finally:
                incoming.close()
                outgoing.close()
                with anyio.CancelScope(shield=True), anyio.move_on_after(_FLUSH_SECONDS):
                    await flushed.wait()
                tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
        for stream in (received, incoming, sent, outgoing):
            stream.close()


async def _read(
    stdout: ByteReceiveStream, received: MemoryObjectSendStream[SessionMessage | Exception], max_bytes: int
) -> None:
    """Pass on each line as a message, until the end of the output or a line that is too long."""
    line = bytearray()
    async with received:
        with suppress(*_BROKEN):
            async for data in stdout:
                *whole, rest = data.split(b"\n")
                for part in whole:
                    line += part
                    if len(line) > max_bytes:
                        return
                    await received.send(_parsed(bytes(line)))
                    line.clear()
                line += rest
                if len(line) > max_bytes:
                    return


async def _write(
    stdin: ByteSendStream,
    sent: MemoryObjectReceiveStream[SessionMessage],
    received: MemoryObjectSendStream[SessionMessage | Exception],
    flushed: anyio.Event,
) -> None:
    """Write each message as a line; a server that takes no more has ended."""
    try:
        async for each in sent:
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            await stdin.send(text.encode() + b"\n")
    except _BROKEN:
        received.close()
    finally:
        flushed.set()


def _parsed(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


async def _end(process: Process) -> None:
    """Return when the program has ended, by itself or by a signal to its group."""
    assert process.stdin is not None  # noqa: S101 - a program is started with pipes
    assert process.stdout is not None  # noqa: S101 - a program is started with pipes
    with suppress(*_BROKEN):
        await process.stdin.aclose()
    for number, seconds in ENDINGS:
        if number is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
        with anyio.move_on_after(seconds):
            await _drain(process)
        if process.returncode is not None:
            break
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(*_BROKEN):
        await process.stdout.aclose()


async def _drain(process: Process) -> None:
    """Read what is left, since a program that cannot write does not end, and return when it has ended."""
    assert process.stdout is not None  # noqa: S101 - a program is started with pipes
    while process.returncode is None:
        with anyio.move_on_after(_POLL_SECONDS), suppress(anyio.EndOfStream, *_BROKEN):
            await process.stdout.receive()
            continue
        await anyio.sleep(_POLL_SECONDS)
