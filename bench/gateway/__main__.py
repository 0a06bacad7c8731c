"""Restart and kill replicas behind each gateway: `python -m bench.gateway [NAME…]`, which is `make gateway-test`.

For each gateway three replicas on one PostgreSQL answer requests of all kinds. (1) Each replica is stopped and started
in turn: nothing fails, nothing is lost, nothing is asked twice. (2) A replica is killed with kill -9: requests with a
key are sent again and lose nothing, others fail visibly, and none of these is asked twice. (3) The gateway is killed
during a stream, which goes on by Last-Event-ID without gap or repetition. At last nginx repeats what was sent, and is
noticed. A gateway whose program is missing is skipped by name.
"""

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import orjson

from bench.gateway.load import STORED, Load, running, unfinished
from bench.gateway.processes import COMMANDS, DRAIN_S, LAME_DUCK_S, ROOT, Gateway, Replica, missing_program
from bench.gateway.provider import Provider, open_provider
from tests.support.postgres import own_database, postgres_server

REPEATING = ("proxy_next_upstream error timeout;", "proxy_next_upstream error timeout non_idempotent;")
CONFIGURATION = """\
[engines.provider]
model = "openai://m"
base_url = "{url}"
api_key_env = "GATEWAY_TEST_KEY"
[server]
lame_duck_seconds = {lame_duck}
drain_seconds = {drain}
[storage]
replica_timeout = 3
"""


async def restarted(gateway: Gateway, replicas: Sequence[Replica], provider: Provider) -> list[str]:
    """Stop and start each replica in turn under load, and return what went wrong."""
    load = Load(gateway.url)
    async with running(load):
        for replica in replicas:
            await asyncio.sleep(2)
            await replica.stop()
            await replica.start()
        await asyncio.sleep(2)
    lost = await unfinished(load)
    twice = [name for name in load.sent if provider.asked[name] > 1]
    failed = len(load.failed)
    _say(f"{gateway.name}: restarts: {len(load.sent)} requests, {failed} failed, {len(lost)} lost, {len(twice)} twice")
    return [*(f"{name}: {problem}" for name, problem in load.failed), *lost, *twice]


async def killed(gateway: Gateway, replica: Replica, provider: Provider) -> tuple[int, list[str], list[str]]:
    """Kill a replica under load; return how many plain requests failed, what was lost, and what was repeated."""
    load = Load(gateway.url, retries=True)
    async with running(load):
        await asyncio.sleep(2)
        await replica.stop(signal.SIGKILL)
        await asyncio.sleep(3)
    lost = await unfinished(load)
    plain = [name for name in load.sent if name.partition("-")[0] not in STORED]
    repeated = [name for name in plain if provider.asked[name] > 1]
    await replica.start()
    return len(load.failed), lost, repeated


async def cut(gateway: Gateway) -> list[str]:
    """Kill the gateway during a stream, read on after its start, and return what is wrong with the numbers."""
    name = f"slow-{gateway.port}"
    body = {"messages": [{"role": "user", "content": name}], "request_id": name}
    headers = {"Accept": "text/event-stream", "Idempotency-Key": name}
    numbers: list[int] = []
    async with aiohttp.ClientSession() as session:
        try:
            async with session.post(f"{gateway.url}/v1/execute", json=body, headers=headers) as answer:
                async for line in answer.content:
                    _take(line, numbers)
                    if b"piece 3" in line:
                        await gateway.stop(signal.SIGKILL)
        except (aiohttp.ClientError, OSError):
            await gateway.start()
        path = f"{gateway.url}/v1/executions/{name}/events"
        async with session.get(path, headers={"Last-Event-ID": str(numbers[-1])}) as answer:
            async for line in answer.content:
                _take(line, numbers)
    _say(f"{gateway.name}: a stream that was cut went on to event {numbers[-1]}")
    return [] if numbers == list(range(1, len(numbers) + 1)) else [f"stream: {numbers}"]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _take(line: bytes, numbers: list[int]) -> None:
    if line.startswith(b"id: "):
        numbers.append(orjson.loads(line[4:]))


async def check(name: str, folder: Path, replicas: Sequence[Replica], provider: Provider) -> list[str]:
    """Run everything behind one gateway, and return what went wrong."""
    own = folder / name
    own.mkdir()
    gateway = Gateway(name, own, [replica.port for replica in replicas])
    await gateway.start()
    try:
        wrong = await restarted(gateway, replicas, provider)
        failed, lost, repeated = await killed(gateway, replicas[0], provider)
        _say(f"{name}: kill -9: {failed} plain requests failed, {len(lost)} lost, {len(repeated)} repeated")
        return [*wrong, *lost, *repeated, *await cut(gateway)]
    finally:
        await gateway.stop(signal.SIGKILL)


async def is_noticed(folder: Path, replicas: Sequence[Replica], provider: Provider) -> bool:
    """Return whether an nginx that repeats requests which were sent is noticed, in three tries."""
    own = folder / "repeating"
    own.mkdir()
    gateway = Gateway("nginx", own, [replica.port for replica in replicas], REPEATING)
    await gateway.start()
    try:
        for _ in range(3):
            _, _, repeated = await killed(gateway, replicas[0], provider)
            if repeated:
                _say(f"nginx with non_idempotent: {len(repeated)} repeated, which was noticed")
                return True
        return False
    finally:
        await gateway.stop(signal.SIGKILL)


async def run(names: Sequence[str], url: str, folder: Path) -> list[str]:
    """Run the gateways of these names one after the other, and return what went wrong."""
    async with open_provider() as provider:
        (folder / "portico.toml").write_text(
            CONFIGURATION.format(url=provider.url, lame_duck=LAME_DUCK_S, drain=DRAIN_S), encoding="utf-8"
        )
        ours = {key: value for key, value in os.environ.items() if not key.startswith("PORTICO")}
        ours |= {"PORTICO__STORAGE__URL": url, "GATEWAY_TEST_KEY": "k", "PYTHONPATH": str(ROOT)}
        replicas = [Replica(folder, ours) for _ in range(3)]
        try:
            for replica in replicas:
                await replica.start()
            wrong = [f"{name}: {each}" for name in names for each in await check(name, folder, replicas, provider)]
            if "nginx" in names and not await is_noticed(folder, replicas, provider):
                wrong.append("nginx with non_idempotent: not noticed")
            return wrong
        finally:
            for replica in replicas:
                if replica.process is not None:
                    replica.process.kill()
                    replica.process.wait()


def main(arguments: Sequence[str]) -> int:
    """Run the gateways that are named, or all; return the exit code."""
    os.environ["PATH"] += f":{ROOT / '.venv-gateway/bin'}"
    names = []
    for name in arguments or COMMANDS:
        missing = missing_program(name)
        if missing is None:
            names.append(name)
        else:
            _say(f"{name}: skipped: {missing} is missing")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="portico-gateway-") as folder, postgres_server() as server:
        wrong = asyncio.run(run(names, own_database(server.url), Path(folder)))
    for each in wrong[:50]:
        _say(each)
    _say(f"gateway-test: {len(names)} gateways in {time.monotonic() - began:.0f} s: {'failed' if wrong else 'ok'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
