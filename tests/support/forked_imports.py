"""Modules that a service imports before it listens, for the process that `ForkedPortico` forks from."""

import threading
from importlib import import_module

LOADED = (
    "anyio._backends._asyncio",
    "portico.bootstrap.checks",
    "portico.bootstrap.engine_builders.openai",
    "portico.bootstrap.engine_builders.rehearsal",
    "portico.bootstrap.engine_builders.scripted",
    "portico.bootstrap.keys",
    "portico.bootstrap.service",
    "portico.entrypoints.cli.command_line",
    "portico.entrypoints.cli.commands",
    "portico.entrypoints.cli.server",
    "portico.entrypoints.http.app",
    "portico.entrypoints.http.protocol",
)
for name in LOADED:
    import_module(name)

assert threading.active_count() == 1, "a thread is not there in what is forked"
