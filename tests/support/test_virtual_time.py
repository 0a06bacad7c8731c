"""Virtual time jumps while nothing happens, and never ahead of pending I/O, threads or processes."""

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import anyio
import anyio.to_thread
import pytest

from tests.support.virtual_time import EPOCH, START, VirtualClock, VirtualTimeLoop


async def test_every_async_test_runs_on_the_virtual_loop() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    assert loop.time() == START


async def test_a_sleep_of_a_day_takes_no_real_time() -> None:
    began = time.monotonic()
    await anyio.sleep(86_400 * 3)
    assert anyio.current_time() - START == pytest.approx(86_400 * 3)
    assert time.monotonic() - began < 1


async def test_time_stands_still_while_callbacks_run() -> None:
    for _ in range(1000):
        await anyio.lowlevel.checkpoint()
    assert anyio.current_time() == START


async def test_timers_fire_in_the_order_they_are_due() -> None:
    fired: list[float] = []

    async def wait(seconds: float) -> None:
        await anyio.sleep(seconds)
        fired.append(seconds)

    async with anyio.create_task_group() as group:
        for seconds in (30, 0.5, 600, 2, 0.001):
            group.start_soon(wait, seconds)
    assert fired == [0.001, 0.5, 2, 30, 600]


async def test_a_timeout_of_ten_minutes_fires_at_ten_minutes() -> None:
    with anyio.move_on_after(600) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert anyio.current_time() == pytest.approx(START + 600)


async def test_wall_time_follows_the_loop() -> None:
    clock = VirtualClock()
    assert clock.now() == EPOCH
    await clock.sleep(90)
    assert clock.now() == pytest.approx(EPOCH + 90)


@asynccontextmanager
async def _echo_server(chunk: int = 65536) -> AsyncIterator[int]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(chunk):
            writer.write(data)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_no_jump_overtakes_bytes_between_sockets_of_this_process() -> None:
    async with _echo_server() as port:
        for _ in range(100):
            with anyio.fail_after(0.05):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"ping")
                assert await reader.readexactly(4) == b"ping"
            writer.close()
            await writer.wait_closed()


async def test_no_jump_overtakes_a_body_larger_than_the_socket_buffers() -> None:
    body = bytes(8 * 1024 * 1024)
    async with _echo_server() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                writer.write(body)
                group.start_soon(writer.drain)
                assert await reader.readexactly(len(body)) == body
        writer.close()
        await writer.wait_closed()


async def test_a_reader_without_data_times_out_in_virtual_time() -> None:
    async with _echo_server() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        began = time.monotonic()
        with pytest.raises(TimeoutError), anyio.fail_after(600):
            await reader.read(1)
        assert time.monotonic() - began < 1
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("run", [anyio.to_thread.run_sync, asyncio.to_thread])
async def test_no_jump_overtakes_a_worker_thread(run: Callable[..., Awaitable[object]]) -> None:
    release = threading.Event()
    with anyio.fail_after(600):
        async with anyio.create_task_group() as group:
            group.start_soon(run, release.wait)
            asyncio.get_running_loop().call_later(0.05, release.set)
    assert anyio.current_time() - START < 10


async def test_no_jump_overtakes_a_worker_thread_that_is_just_ending() -> None:
    with anyio.fail_after(600):
        for count in range(2000):
            await anyio.to_thread.run_sync(sum, range(count))
    assert anyio.current_time() - START < 60


async def test_an_idle_worker_thread_does_not_hold_time_back() -> None:
    await anyio.to_thread.run_sync(int)
    began = time.monotonic()
    await anyio.sleep(600)
    assert time.monotonic() - began < 1


async def test_an_abandoned_worker_thread_holds_time_back_only_while_it_works() -> None:
    release = threading.Event()
    with anyio.move_on_after(0.02):
        await anyio.to_thread.run_sync(release.wait, abandon_on_cancel=True)
    release.set()
    with anyio.fail_after(3600):
        await anyio.sleep(600)


async def test_no_jump_overtakes_a_child_process() -> None:
    with anyio.fail_after(600):
        done = await anyio.run_process([sys.executable, "-c", "print('here')"])
    assert done.stdout == b"here\n"


async def test_without_timers_the_loop_blocks_and_does_not_spin() -> None:
    loop = asyncio.get_running_loop()
    woken = anyio.Event()
    timer = threading.Timer(0.2, partial(loop.call_soon_threadsafe, woken.set))
    timer.start()
    began = time.thread_time()
    await woken.wait()
    assert time.thread_time() - began < 0.1
    timer.join()
