"""A receiver of webhooks on loopback: it keeps what it gets, and gives the answers of a test."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.support.http_server import running_server

SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLSwx"
"""A secret of 24 bytes."""


@dataclass(frozen=True)
class Received:
    """A delivery as it arrived; names of headers are lower case."""

    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


@dataclass
class Receiver:
    """Receiver with what arrived, and the answers still to give: a status and headers each. After them it gives 204."""

    url: str = ""
    received: list[Received] = field(default_factory=list)
    answers: list[tuple[int, Mapping[str, str]]] = field(default_factory=list)
    _arrived: anyio.Event = field(default_factory=anyio.Event)

    async def answer(self, request: Request) -> Response:
        self.received.append(Received(dict(request.headers), await request.body()))
        self._arrived.set()
        self._arrived = anyio.Event()
        status, headers = self.answers.pop(0) if self.answers else (204, {})
        return Response(status_code=status, headers=dict(headers))

    async def wait_for(self, count: int) -> Sequence[Received]:
        """Return what arrived once there is so much of it."""
        with anyio.fail_after(3_600):
            while len(self.received) < count:
                await self._arrived.wait()
        return self.received


@asynccontextmanager
async def webhook_receiver(*answers: int) -> AsyncIterator[Receiver]:
    """Run a receiver that gives these answers first."""
    receiver = Receiver(answers=[(status, {}) for status in answers])
    async with running_server(Starlette(routes=[Route("/hook", receiver.answer, methods=["POST"])])) as served:
        receiver.url = f"{served.url}/hook"
        yield receiver


def file_endpoint(folder: Path, url: str, **changes: Any) -> dict[str, Any]:
    """Return the table of an endpoint of the file that may be on loopback."""
    secret = folder / "webhook.secret"
    secret.write_text(SECRET)
    return {"url": url, "secret_file": str(secret), "allow_private": True, **changes}
