"""The yardstick: a bare FastAPI and aiohttp proxy, which forwards a body and returns the JSON it gets."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse


def create_proxy(upstream: str) -> FastAPI:
    """The proxy in front of that base URL."""

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


if __name__ == "__main__":
    proxy, port = create_proxy(sys.argv[1]), int(sys.argv[2])
    uvicorn.run(proxy, port=port, http="httptools", log_level="warning", access_log=False, timeout_keep_alive=75)
