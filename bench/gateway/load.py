"""Load of all kinds of requests, and what became of each."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count, cycle
from typing import Any
from uuid import uuid4

import aiohttp
import orjson

INTERVAL_S = 0.03
KINDS = ("plain", "keyed", "background", "events")
STORED = frozenset({"keyed", "background"})
MINUTE_S = 60.0


@dataclass
class Load:
    """Requests that were sent, by name, and the failures: name, and status or error."""

    url: str
    retries: bool = False
    mark: str = field(default_factory=lambda: uuid4().hex[:8])
    sent: list[str] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    repeated: Counter[str] = field(default_factory=Counter)

    async def send(self, session: aiohttp.ClientSession, name: str) -> None:
        """Send one request; with `retries` one with a key is sent until it is answered."""
        self.sent.append(name)
        while (problem := await self._problem(session, name)) is not None:
            if not self.retries or name.partition("-")[0] not in STORED:
                self.failed.append((name, problem))
                return
            self.repeated[name] += 1
            await asyncio.sleep(0.2)

    async def _problem(self, session: aiohttp.ClientSession, name: str) -> str | None:
        kind = name.partition("-")[0]
        headers = {"Accept": "text/event-stream"} if kind == "events" else {}
        if kind in STORED:
            headers["Idempotency-Key"] = name
        if kind == "background":
            headers["Prefer"] = "respond-async"
        body: dict[str, Any] = {"messages": [{"role": "user", "content": name}]}
        if kind in STORED:
            body["request_id"] = name
        try:
            async with session.post(f"{self.url}/v1/execute", json=body, headers=headers) as answer:
                return _problem_of(kind, answer.status, await answer.read())
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return type(error).__name__


def _problem_of(kind: str, status: int, body: bytes) -> str | None:
    if kind == "events":
        return None if status == 200 and b"event: execution.completed" in body else f"{status} {body[-80:]!r}"
    if status in {200, 202}:
        return None
    return f"{status} {orjson.loads(body).get('code') if body.startswith(b'{') else body[:80]!r}"


@asynccontextmanager
async def running(load: Load) -> AsyncIterator[None]:
    """Send requests of all kinds in turn while the context is open, and wait for the answers at its end."""
    timeout = aiohttp.ClientTimeout(total=MINUTE_S)
    stop = asyncio.Event()

    async def send_all(session: aiohttp.ClientSession, group: asyncio.TaskGroup) -> None:
        for kind, number in zip(cycle(KINDS), count()):
            group.create_task(load.send(session, f"{kind}-{load.mark}-{number}"))
            with suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL_S):
                    await stop.wait()
            if stop.is_set():
                return

    async with aiohttp.ClientSession(timeout=timeout) as session, asyncio.TaskGroup() as group:
        group.create_task(send_all(session, group))
        yield
        stop.set()


async def unfinished(load: Load) -> list[str]:
    """Return the stored executions that are not COMPLETE, after at most a minute; those that failed are not asked."""
    failed = {name for name, _ in load.failed}
    waiting = [name for name in load.sent if name.partition("-")[0] in STORED and name not in failed]
    async with aiohttp.ClientSession() as session:
        for _ in range(120):
            waiting = [name for name in waiting if await _state(session, load.url, name) != "COMPLETE"]
            if not waiting:
                break
            await asyncio.sleep(0.5)
    return waiting


async def _state(session: aiohttp.ClientSession, url: str, name: str) -> Any:
    async with session.get(f"{url}/v1/executions/{name}") as answer:
        return (await answer.json()).get("state")
