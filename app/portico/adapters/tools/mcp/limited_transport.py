"""HTTP transport whose replies are of limited size, apart from event streams, which limit each event."""

from collections.abc import AsyncIterator

import httpx2


class LimitedTransport(httpx2.AsyncHTTPTransport):
    """Transport for the requests to an MCP server; a reply of more than `max_bytes` raises StreamError."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(trust_env=False)
        self._max_bytes = max_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request and return the reply, which is not read yet."""
        reply = await super().handle_async_request(request)
        is_stream = reply.headers.get("content-type", "").lower().startswith("text/event-stream")
        if not is_stream and isinstance(reply.stream, httpx2.AsyncByteStream):
            reply.stream = _LimitedStream(reply.stream, self._max_bytes)
        return reply


class _LimitedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, max_bytes: int) -> None:
        self._stream = stream
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for data in self._stream:
            size += len(data)
            if size > self._max_bytes:
                raise httpx2.StreamError(f"the reply has more than {self._max_bytes} bytes")
            yield data

    async def aclose(self) -> None:
        await self._stream.aclose()
