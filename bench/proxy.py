"""Reference proxies: FastAPI with aiohttp for JSON, raw ASGI with aiohttp for streams."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send


def create_proxy(upstream: str) -> FastAPI:
    """Return the FastAPI proxy for an upstream's base URL."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with aiohttp.ClientSession() as session:
            app.state.session = session
            yield

    proxy = FastAPI(lifespan=lifespan)

    @proxy.get("/readyz")
    async def ready() -> dict[str, bool]:
        return {"ready": True}

    @proxy.post("/v1/execute", response_model=None)
    async def forward(request: Request) -> JSONResponse:
        session: aiohttp.ClientSession = request.app.state.session
        async with session.post(f"{upstream}/chat/completions", json=await request.json()) as reply:
            return JSONResponse(await reply.json())

    return proxy


def create_stream_proxy(upstream: str, json_proxy: FastAPI) -> ASGIApp:
    """Return a proxy that forwards event streams chunk by chunk and passes other requests to `json_proxy`."""

    async def proxy(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or (b"accept", b"text/event-stream") not in scope["headers"]:
            await json_proxy(scope, receive, send)
            return
        body = json.loads((await receive())["body"]) | {"stream": True}
        session: aiohttp.ClientSession = json_proxy.state.session
        async with session.post(f"{upstream}/chat/completions", json=body) as reply:
            headers = [(b"content-type", b"text/event-stream")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            while chunk := await reply.content.readany():
                data = b"event: inference.delta\n" + chunk
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b"event: execution.completed\n\n"})

    return proxy


if __name__ == "__main__":
    upstream, port = sys.argv[1], int(sys.argv[2])
    proxy = create_stream_proxy(upstream, create_proxy(upstream))
    uvicorn.run(proxy, port=port, http="httptools", log_level="warning", access_log=False, timeout_keep_alive=75)
