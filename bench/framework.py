"""Calls that FastAPI and Starlette make for one chat, in a warm application without a server."""

import fastapi
import starlette

from bench.scenarios import BenchEnvironment, Numbers
from bench.walk import chat_calls


async def framework(_bench: BenchEnvironment) -> Numbers:
    """Count the calls of one chat."""
    return {"framework_calls": len(await chat_calls(fastapi, starlette))}
