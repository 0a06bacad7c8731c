"""Pipes to an MCP server that runs as a program: one message a line, each of limited size.

The program runs in a session of its own. At the end its input is closed; if it does not end by itself, its group gets
SIGTERM and, after another pause, SIGKILL. All of that happens also when the connection is cancelled.
"""

import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from errno import ENOENT
from pathlib import Path
from typing import Final, TextIO

import anyio
import mcp_types as types
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from portico.adapters.tools.sandbox.box import SEARCH_PATH, find_program
from portico.adapters.tools.sandbox.levels import IsolatedProgram
from portico.adapters.tools.sandbox.process_table import MARK, RunRegistry, become_subreaper
from portico.adapters.tools.sandbox.run import end_leftovers
from portico.adapters.tools.sandbox.watch import DiskWatch

ENDINGS: Final = ((None, 1.0), (signal.SIGTERM, 0.5), (signal.SIGKILL, 0.5))
"""How a program is ended after its input was closed: the signals, and the seconds that it has after each."""
_FLUSH_SECONDS: Final = 0.5
_POLL_SECONDS: Final = 0.01
_WATCH_SECONDS: Final = 1.0
_BROKEN: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


@asynccontextmanager
async def open_pipes(
    command: Sequence[str],
    environment: Mapping[str, str],
    isolated: IsolatedProgram,
    *,
    base: Path,
    errors: TextIO,
    max_bytes: int,
) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """Start the program in its box and yield its messages, and where to send messages.

    A relative path of the program begins at `base`. `errors` takes its standard error. A message of more than
    `max_bytes` ends the messages, and so does a program that writes more to disk than it may. Raises: OSError if the
    program cannot be started.
    """
    received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, sent = anyio.create_memory_object_stream[SessionMessage](0)
    flushed = anyio.Event()
    try:
        async with _server(command, environment, isolated, base, errors) as server, anyio.create_task_group() as tasks:
            assert server.stdin is not None  # noqa: S101 - a program is started with pipes
            assert server.stdout is not None  # noqa: S101 - a program is started with pipes
            tasks.start_soon(_read, server.stdout, received, max_bytes)
            tasks.start_soon(_write, server.stdin, sent, received, flushed)
            try:
                yield incoming, outgoing
            finally:
                incoming.close()
                outgoing.close()
                with anyio.CancelScope(shield=True), anyio.move_on_after(_FLUSH_SECONDS):
                    await flushed.wait()
                tasks.cancel_scope.cancel()
    finally:
        for stream in (received, incoming, sent, outgoing):
            stream.close()


@asynccontextmanager
async def _server(
    command: Sequence[str], environment: Mapping[str, str], isolated: IsolatedProgram, base: Path, errors: TextIO
) -> AsyncIterator[Process]:
    """Start the program, and end it with everything that it started."""
    become_subreaper()
    runs = isolated.sandbox.runs
    run = runs.new_name()
    program = find_program(command[0], environment.get("PATH", SEARCH_PATH), base)
    if program is None:
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), command[0])
    with isolated.boxed((program, *command[1:]), {**environment, MARK: run}, None) as boxed:
        watch = isolated.disk_watch(boxed)
        process = await anyio.open_process(
            list(boxed.words),
            env=dict(boxed.environment),
            cwd=boxed.directory,
            stderr=errors,
            pass_fds=boxed.descriptors,
            start_new_session=True,
        )
        runs.add(process.pid, run)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_watch_disk, process, runs, watch)
                yield process
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)
                await end_leftovers(runs, run, process.pid)


async def _watch_disk(process: Process, runs: RunRegistry, watch: DiskWatch) -> None:
    """End the program once it has written more than it may."""
    while True:
        await anyio.sleep(_WATCH_SECONDS)
        found = runs.processes(process.pid, anyio.current_time())
        if watch.excess([each.pid for each in found]) is not None:
            process.kill()
            return


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
