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
CheckStorage: TypeAlias = Callable[[Settings], Awaitable[str]]


@value
class Wiring:
    """The parts that the commands use; passed in, because the command line and HTTP do not import each other."""

    create_app: Callable[[Settings], FastAPI]
    protocol: type[asyncio.Protocol]
    open_service: OpenService
    open_history_reader: OpenHistoryReader
    check_storage: CheckStorage
    open_keys: OpenKeys
