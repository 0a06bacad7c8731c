"""Client of Portico: runs executions, streams them, and answers what they ask."""

from portico_client.aio import AsyncClient, AsyncExecution, AsyncStream
from portico_client.client import Client, Execution, Stream
from portico_client.core import TextPart
from portico_client.errors import ConnectionFailure, PorticoError, TimeoutFailure
from portico_client.tools import Tool

__all__ = [
    "AsyncClient",
    "AsyncExecution",
    "AsyncStream",
    "Client",
    "ConnectionFailure",
    "Execution",
    "PorticoError",
    "Stream",
    "TextPart",
    "TimeoutFailure",
    "Tool",
]
