"""Replies of MCP servers over HTTP that are too large."""

import httpx2
import pytest

from portico.adapters.tools.mcp.limited_transport import LimitedTransport
from tests.support.upstream import ScriptedUpstream, event_stream, reply


async def test_a_reply_that_is_too_large_is_an_error_as_it_is_read() -> None:
    async with (
        ScriptedUpstream(reply(b"x" * 1_000), reply(b"x" * 1_001)) as upstream,
        httpx2.AsyncClient(transport=LimitedTransport(1_000)) as client,
    ):
        assert len((await client.get(upstream.url)).content) == 1_000
        with pytest.raises(httpx2.StreamError, match="more than 1000 bytes"):
            await client.get(upstream.url)


async def test_a_stream_of_events_may_be_longer_as_a_whole() -> None:
    async with (
        ScriptedUpstream(event_stream(*[b"data: x\n\n"] * 200)) as upstream,
        httpx2.AsyncClient(transport=LimitedTransport(1_000)) as client,
    ):
        assert len((await client.get(upstream.url)).content) == 1_800
