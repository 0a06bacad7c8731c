"""`http_get`: which URLs a model may ask, and what it means for approvals."""

import asyncio

import httpx2
import pytest

from portico.adapters.http.exchange import http_client
from portico.adapters.tools.http_api.http_get import HttpGet
from portico.capabilities.tools.definition import ToolArgumentError
from portico.domain.failures import ConfigurationFailure
from portico.domain.ids import IdempotencyKey, ToolCallId
from portico.domain.tools import SideEffects
from portico.ports.tool import ToolContext, ToolError
from portico.settings import Settings
from tests.support.entropy import SeededEntropy
from tests.support.upstream import ScriptedUpstream, reply
from tests.support.virtual_time import VirtualClock, VirtualTimeLoop

METADATA = (
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "0xa9.0xfe.0xa9.0xfe",
    "0251.0376.0251.0376",
    "025177524776",
    "169.254.43518",
    "169.16689662",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[0:0:0:0:0:ffff:a9fe:a9fe]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:a9fe:a9fe::]",
    "[fd00:ec2::254]",
)
"""The address of metadata services, as a URL may spell it."""


def http_get(*hosts: str) -> HttpGet:
    return HttpGet(hosts, 1_024, 5, http_client())


async def call(tool: HttpGet, url: str) -> str:
    context = ToolContext(ToolCallId("c"), 5, VirtualClock(), SeededEntropy(1), IdempotencyKey("key"))
    return await tool.execute({"url": url}, context)


@pytest.mark.parametrize("host", METADATA)
async def test_the_address_of_metadata_services_is_refused_however_it_is_spelled(host: str) -> None:
    with pytest.raises(ToolError, match=r"must not reach|has no address|must be a URL"):
        await call(http_get("*"), f"http://{host}/latest/meta-data")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://docs.example.com/", "must begin with http"),
        ("file:///etc/passwd", "must begin with http"),
        ("docs.example.com", "must begin with http"),
        ("http://user:secret@docs.example.com/", "must not have a user"),
        ("http://docs.example.com@evil.example/", "must not have a user"),
        ("http://evil.example/", "must name one of these hosts"),
        ("http://docs.example.com.evil.example/", "must name one of these hosts"),
        ("http://example.org/", "must name one of these hosts"),
        ("http://notexample.org/", "must name one of these hosts"),
        ("http://docs.example.com:99999/", "must be a URL"),
        ("http://[::1/", "must be a URL"),
    ],
)
async def test_a_url_is_refused_before_anything_is_asked(url: str, reason: str) -> None:
    with pytest.raises(ToolArgumentError, match=reason) as refused:
        await call(http_get("docs.example.com", "*.example.org"), url)
    assert refused.value.violations[0][0] == "arguments.url"


async def test_a_server_on_loopback_is_never_reached_with_any_hosts() -> None:
    async with ScriptedUpstream(reply(b"secret", content_type="text/plain")) as upstream:
        for tool in (http_get("*"), http_get("127.0.0.1"), http_get()):
            with pytest.raises(ToolError, match="must not reach"):
                await call(tool, upstream.url)
        assert upstream.requests == []


async def test_a_name_is_resolved_once_and_a_redirect_leads_to_no_other_host() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.addresses["docs.example.com"] = ["127.0.0.1", "93.184.216.34"]
    with pytest.raises(ToolError, match="must not reach"):
        await call(http_get("docs.example.com"), "http://docs.example.com/")
    assert loop.addresses["docs.example.com"] == ["93.184.216.34"]
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(f"{request.url.host} {request.headers['host']}")
        return httpx2.Response(302, headers={"Location": "http://evil.example/"})

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
        with pytest.raises(ToolError, match="not among those that may be asked"):
            await call(HttpGet(["docs.example.com"], 1_024, 5, client), "http://docs.example.com/")
    assert asked == ["93.184.216.34 docs.example.com"]


def test_without_hosts_a_call_acts_outside_and_with_hosts_it_reads() -> None:
    facts = [(each.info().side_effects, each.info().idempotent) for each in (http_get(), http_get("*"))]
    assert facts == [(SideEffects.EXTERNAL, False), (SideEffects.READ, True)]
    assert len({each.info().identity for each in (http_get(), http_get("*"), http_get("a.example"))}) == 3


@pytest.mark.parametrize("host", ["", "http://a.example", "a.example/x", "*.", "a b"])
def test_a_host_that_is_none_is_refused(host: str) -> None:
    with pytest.raises((ConfigurationFailure, ValueError), match=r"tools.http_get.hosts"):
        Settings.model_validate({"tools": {"http_get": {"hosts": [host]}}})
