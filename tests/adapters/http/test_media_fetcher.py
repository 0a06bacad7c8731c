"""The fetcher of media against servers that answer badly, and URLs that lead where nothing may be asked."""

import asyncio
from typing import Any

import anyio
import pytest

from portico.adapters.http.exchange import http_client
from portico.adapters.http.hosts import MediaHosts
from portico.adapters.http.media_fetcher import AT_ONCE, HttpMediaFetcher
from portico.ports.media import MediaError, MediaLimits
from tests.support.upstream import ScriptedUpstream, UpstreamAction, closed_port, event_stream, reply
from tests.support.virtual_time import VirtualTimeLoop

LOOPBACK = MediaHosts(["*"], ["127.0.0.1"])
KIB = 1024
PDF = b"%PDF-1.7"


def fetcher(hosts: MediaHosts = LOOPBACK) -> HttpMediaFetcher:
    return HttpMediaFetcher(http_client(), hosts, MediaLimits(8, KIB, 5))


async def fetched(url: str, hosts: MediaHosts = LOOPBACK, seconds: float = 5) -> tuple[bytes, str | None]:
    found = await fetcher(hosts).fetch(url, max_bytes=KIB, seconds=seconds)
    return found.content, found.media_type


async def refusal(url: str, hosts: MediaHosts = LOOPBACK, seconds: float = 5) -> str:
    with pytest.raises(MediaError) as refused:
        await fetched(url, hosts, seconds)
    assert "127.0.0.1" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://example.org/a", "must begin with http:// or https://"),
        ("file:///etc/passwd", "must begin with http:// or https://"),
        ("/a.png", "must begin with http:// or https://"),
        ("https://user:secret@example.org/", "must not have a user or a password"),
        ("https://example.org:99999/", "must be a URL"),
        ("https://[::1/", "must be a URL"),
        ("http://example.org/", "must begin with https://"),
        ("https://example.com/", "must be of a host that this service may ask"),
        ("https://notexample.org/", "must be of a host that this service may ask"),
        ("https://example.org.evil.example/", "must be of a host that this service may ask"),
        ("https://example.org/", None),
        ("https://EXAMPLE.org./", None),
        ("https://a.example.net/", None),
        ("http://nas.local/", None),
    ],
)
def test_a_url_is_refused_before_anything_is_asked(url: str, reason: str | None) -> None:
    found = MediaHosts(["example.org", "*.example.net"], ["nas.local"]).refusal(url)
    assert found is None if reason is None else reason in (found or "")


def test_without_hosts_nothing_is_fetched() -> None:
    assert "send the bytes as data" in (MediaHosts([], ["nas.local"]).refusal("https://nas.local/") or "")


async def test_what_is_behind_a_url_is_asked_for_without_saying_who_asks() -> None:
    async with ScriptedUpstream(reply(PDF, content_type="Application/PDF; a=b")) as upstream:
        assert await fetched(f"{upstream.url}/a?b=c") == (PDF, "application/pdf")
        [request] = upstream.requests
    assert (request.method, request.path, request.headers["user-agent"]) == ("GET", "/a?b=c", "portico")
    assert not {"authorization", "cookie", "referer"} & {*request.headers}


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "127.0.0.1", "[::1]", "2130706433", "0x7f000001", "[::ffff:127.0.0.1]"),
        *("169.254.169.254", "[fd00:ec2::254]", "[::ffff:a9fe:a9fe]", "10.0.0.1", "192.168.1.1", "100.100.100.200"),
    ],
)
async def test_loopback_private_networks_and_metadata_services_are_not_reached(host: str) -> None:
    found = await refusal(f"https://{host}/latest/meta-data", MediaHosts(["*"], []))
    assert found in {"the host has an address that tools must not reach", "the host has no address"}


async def test_metadata_services_are_not_reached_even_where_private_hosts_are() -> None:
    found = await refusal("http://169.254.169.254/latest", MediaHosts(["*"], ["*"]))
    assert found == "the host has an address that tools must not reach"


async def test_a_name_is_resolved_once_and_the_connection_goes_to_the_checked_address() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    async with ScriptedUpstream(reply(PDF)) as upstream:
        loop.addresses["rebinding.example"] = ["127.0.0.1", "203.0.113.9"]
        url = upstream.url.replace("127.0.0.1", "rebinding.example")
        assert (await fetched(url, MediaHosts(["*"], ["rebinding.example"])))[0] == PDF
        assert upstream.requests[0].headers["host"].startswith("rebinding.example:")
        assert loop.addresses["rebinding.example"] == ["203.0.113.9"]


async def test_a_redirect_is_followed_at_most_three_times() -> None:
    def onward(number: int) -> Any:
        return reply(b"", status=302, headers={"Location": f"/{number}"})

    async with ScriptedUpstream(onward(1), onward(2), onward(3), reply(PDF)) as upstream:
        assert (await fetched(upstream.url))[0] == PDF
    async with ScriptedUpstream(onward(1)) as upstream:
        assert "more than 3 times" in await refusal(upstream.url)
        assert len(upstream.requests) == 4


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]:1/",
        "http://10.0.0.1/",
        "http://example.org/",
        "https://user:secret@example.org/",
        "file:///etc/passwd",
        "http://[::1/",
        "https://example.org:99999/",
    ],
)
async def test_a_redirect_leads_nowhere_that_could_not_be_asked(location: str) -> None:
    async with ScriptedUpstream(reply(b"", status=302, headers={"Location": location})) as upstream:
        found = await refusal(upstream.url)
        assert len(upstream.requests) == 1
    assert location not in found


async def test_a_reply_that_is_too_large_or_endless_is_given_up() -> None:
    large = reply(b"", headers={"Content-Length": str(10 * KIB**3)})[0]
    assert isinstance(large, bytes)
    endless = event_stream(*[b"x" * 600] * 50, end=False)
    for script in ([large + b"x" * 4 * KIB, UpstreamAction.HANG], endless):
        async with ScriptedUpstream(script) as upstream:
            assert await refusal(upstream.url) == f"the reply has more than {KIB} bytes"


@pytest.mark.parametrize("script", [[UpstreamAction.HANG], event_stream(b"x", UpstreamAction.HANG, end=False)])
async def test_a_server_that_says_nothing_more_is_given_up_in_time(script: Any) -> None:
    async with ScriptedUpstream(script) as upstream:
        assert await refusal(upstream.url, seconds=0.1) == "it took too long"


@pytest.mark.parametrize("first", [reply(b"", status=503), [UpstreamAction.CLOSE], [UpstreamAction.RESET]])
async def test_a_lost_connection_and_a_server_error_are_tried_once_more(first: Any) -> None:
    async with ScriptedUpstream(first, reply(PDF)) as upstream:
        assert (await fetched(upstream.url))[0] == PDF
    async with ScriptedUpstream(first) as upstream:
        await refusal(upstream.url)
        assert len(upstream.requests) == 2


async def test_another_status_is_final_and_so_is_a_port_without_a_server() -> None:
    async with ScriptedUpstream(reply(b"", status=404)) as upstream:
        assert await refusal(upstream.url) == "the service answered with status 404"
        assert len(upstream.requests) == 1
    async with closed_port() as url:
        assert await refusal(url) == "the service does not accept connections"


async def test_a_compressed_reply_is_refused() -> None:
    async with ScriptedUpstream(reply(b"x", headers={"Content-Encoding": "gzip"})) as upstream:
        assert "compressed" in await refusal(upstream.url)


async def test_sixteen_are_fetched_at_once_and_waiting_takes_nothing_from_their_time() -> None:
    async with ScriptedUpstream([UpstreamAction.HANG]) as upstream:
        one, ended = fetcher(), 0

        async def give_up() -> None:
            nonlocal ended
            with pytest.raises(MediaError):
                await one.fetch(upstream.url, max_bytes=KIB, seconds=0.2)
            ended += 1

        async with anyio.create_task_group() as group:
            for _ in range(AT_ONCE + 1):
                group.start_soon(give_up)
            await upstream.wait_for_requests(AT_ONCE)
            assert (len(upstream.requests), ended) == (AT_ONCE, 0)
        assert (len(upstream.requests), ended) == (AT_ONCE + 1, AT_ONCE + 1)
