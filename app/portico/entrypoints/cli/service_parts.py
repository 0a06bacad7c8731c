"""Parts of the service that the commands use."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

from fastapi import FastAPI

from portico.bootstrap.keys import KeyAdministration
from portico.bootstrap.service import Service
from portico.domain.value import value
from portico.orchestration.facade import HistoryReader
from portico.settings import Settings

OpenService: TypeAlias = Callable[[Settings], AbstractAsyncContextManager[Service]]
OpenHistoryReader: TypeAlias = Callable[[Settings], AbstractAsyncContextManager[HistoryReader]]
OpenKeys: TypeAlias = Callable[[Settings], AbstractAsyncContextManager[KeyAdministration]]
Check: TypeAlias = Callable[[Settings], Awaitable[str]]
"""Check of something outside of the service; returns what it found. Raises: Failure."""


@value
class Checks:
    """Checks of a configuration: what lies outside of the service, and the service without its network."""

    storage: Check
    issuer: Check
    traces: Check
    audit: Check
    open_offline: OpenService


@value
class Wiring:
    """The parts that the commands use; passed in, because the command line and HTTP do not import each other."""

    create_app: Callable[[Settings], FastAPI]
    protocol: type[asyncio.Protocol]
    open_service: OpenService
    open_history_reader: OpenHistoryReader
    checks: Checks
    open_keys: OpenKeys
