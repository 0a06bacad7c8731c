"""An emulated provider that counts how often it is asked each question."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import orjson
from aiohttp import ClientConnectionResetError, web

DELAY_S = 0.3
PIECES, PIECE_S = 20, 0.2


@dataclass
class Provider:
    """A server that speaks the protocol of chat completions: its URL, and the times that it was asked, by question."""

    asked: Counter[str] = field(default_factory=Counter)
    url: str = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer after a moment; a question that begins with `slow` in many pieces."""
        body = await request.json()
        question = body["messages"][-1]["content"]
        self.asked[question] += 1
        if not body.get("stream"):
            await asyncio.sleep(DELAY_S)
            message = {"role": "assistant", "content": f"answer to {question}"}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return web.json_response({"id": "a", "object": "chat.completion", "model": "m", "choices": [choice]})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        pieces, seconds = (PIECES, PIECE_S) if question.startswith("slow") else (2, DELAY_S / 2)
        with suppress(ClientConnectionResetError):  # the replica that asked was killed
            for number in range(pieces):
                await asyncio.sleep(seconds)
                await response.write(_chunk({"role": "assistant", "content": f"piece {number} "}, None))
            await response.write(_chunk({}, "stop") + b"data: [DONE]\n\n")
        return response


def _chunk(delta: dict[str, str], finish_reason: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    chunk = {"id": "a", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


@asynccontextmanager
async def open_provider() -> AsyncIterator[Provider]:
    """Run a provider on loopback until the context ends."""
    provider = Provider()
    application = web.Application()
    application.router.add_post("/v1/chat/completions", provider.answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        provider.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        yield provider
    finally:
        await runner.cleanup()
