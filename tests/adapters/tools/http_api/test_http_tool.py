"""HTTP APIs as tools, against a server on loopback."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from portico.adapters.http.exchange import http_client
from portico.adapters.tools.external_tool import ExternalToolFacts
from portico.adapters.tools.http_api.http_tool import HttpTool, HttpToolConfig
from portico.capabilities.tools.definition import ToolArgumentError
from portico.domain.ids import IdempotencyKey, RequestId, TenantId, ToolCallId, UserId
from portico.domain.json_path import parse
from portico.domain.tools import Caller, SideEffects
from portico.ports.tool import ToolContext, ToolError, ToolOutcomeUnknown
from tests.support.entropy import SeededEntropy
from tests.support.upstream import ScriptedUpstream, UpstreamAction, closed_port, reply
from tests.support.virtual_time import VirtualClock

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
WEATHER = {"city": "Berlin", "days": [{"high": 21}, {"high": 23}], "note": "dry \u001b[31mred"}


def http_tool(url: str, **changes: Any) -> HttpTool:
    config = HttpToolConfig(
        facts=ExternalToolFacts("weather", "Weather of a city.", PARAMETERS, SideEffects.READ, True, 5),
        method="GET",
        url=url,
        max_bytes=1024,
        headers=lambda: {"authorization": "Bearer canary"},
        allow_private=True,
    )
    return HttpTool(replace(config, **changes), http_client())


async def call(tool: HttpTool, **arguments: Any) -> str:
    context = ToolContext(ToolCallId("call_1"), 5, VirtualClock(), SeededEntropy(1), IdempotencyKey("key-1"))
    return await tool.execute(arguments, context)


def redirect(location: str, status: int = 302) -> Any:
    return reply(b"", status=status, headers={"Location": location})


async def test_arguments_that_are_not_in_the_url_are_the_query_of_a_get() -> None:
    async with ScriptedUpstream(reply(WEATHER)) as upstream:
        text = await call(http_tool(f"{upstream.url}/v1/{{city}}?units=c"), city="New York", days=2)
    [request] = upstream.requests
    assert (request.method, request.path) == ("GET", "/v1/New%20York?units=c&days=2")
    assert request.headers["authorization"] == "Bearer canary"
    assert request.headers["host"] == upstream.url.removeprefix("http://")
    assert '"city": "Berlin"' in text


async def test_the_caller_is_named_to_the_configured_host_and_not_behind_a_redirect_to_another() -> None:
    ann = Caller(TenantId("acme"), UserId("ann"), None, RequestId("r-1"))
    context = ToolContext(
        ToolCallId("call_1"), 5, VirtualClock(), SeededEntropy(1), IdempotencyKey("key-1"), caller=ann
    )
    async with ScriptedUpstream(reply(WEATHER)) as other:
        moved = redirect(other.url.replace("127.0.0.1", "localhost"))
        async with ScriptedUpstream(reply(WEATHER), moved) as upstream:
            tool = http_tool(f"{upstream.url}/{{caller.user}}", caller_headers={"X-User": "{caller.user}"})
            await tool.execute({"city": "Ulm"}, context)
            with suppress(ToolError):
                await tool.execute({"city": "Ulm"}, context)
    assert [(each.path, each.headers["x-user"]) for each in upstream.requests] == [("/ann?city=Ulm", "ann")] * 2
    assert all("x-user" not in each.headers for each in other.requests)
    assert tool.info().identity != http_tool(f"{upstream.url}/{{caller.user}}").info().identity


async def test_a_configured_pair_of_the_query_always_wins() -> None:
    opened = {**PARAMETERS, "additionalProperties": True}
    facts = ExternalToolFacts("weather", "Weather of a city.", opened, SideEffects.READ, True, 5)
    async with ScriptedUpstream(reply({})) as upstream:
        tool = http_tool(f"{upstream.url}/{{city}}?read%6fnly=true&limit=&city={{city}}", facts=facts)
        with pytest.raises(ToolArgumentError) as refused:
            await call(tool, city="Ulm", readonly="false", limit=5)
        assert await call(tool, city="Ulm", page=2) == "{}"
    message = "is set by the configuration"
    assert refused.value.violations == (("arguments.readonly", message), ("arguments.limit", message))
    assert [request.path for request in upstream.requests] == ["/Ulm?readonly=true&limit=&city=Ulm&page=2"]


async def test_arguments_that_are_not_in_the_url_are_the_body_of_a_post_with_the_key_of_the_call() -> None:
    async with ScriptedUpstream(reply({"id": 7})) as upstream:
        assert await call(http_tool(f"{upstream.url}/{{city}}", method="POST"), city="Bonn", days=2) == '{"id": 7}'
    [request] = upstream.requests
    assert (request.path, request.json()) == ("/Bonn", {"days": 2})
    assert request.headers["idempotency-key"] == "key-1"


@pytest.mark.parametrize(
    ("path", "result"),
    [("$.city", "Berlin"), ("$.days[1].high", "23"), ("$.days[*].high", "[21,23]"), ("$.days[0]", '{"high":21}')],
)
async def test_a_part_of_the_reply_is_selected(path: str, result: str) -> None:
    async with ScriptedUpstream(reply(WEATHER)) as upstream:
        assert await call(http_tool(upstream.url, select=parse(path)), city="x") == result


async def test_terminal_control_is_stripped_from_a_reply() -> None:
    async with ScriptedUpstream(reply(b"dry \x1b[31mred", content_type="text/plain")) as upstream:
        assert await call(http_tool(upstream.url), city="x") == "dry red"


@pytest.mark.parametrize(
    ("script", "changes", "message"),
    [
        (reply({"secret": "hunter2"}, status=404), {}, "the service answered with status 404"),
        (reply(b"x" * 1025), {}, "the reply has more than 1024 bytes"),
        (
            reply(b"x", headers={"Content-Encoding": "gzip"}),
            {},
            "the service compressed its reply although it was asked not to",
        ),
        (reply(b"{"), {"select": parse("$.a")}, "the reply is no JSON, of which a part is selected"),
        (reply({}), {"select": parse("$.a")}, "the reply does not have the part that is selected"),
        (redirect("/elsewhere"), {"method": "POST"}, "the service answered with status 302"),
    ],
)
async def test_a_reply_that_cannot_be_the_result_is_an_error(
    script: Any, changes: dict[str, Any], message: str
) -> None:
    async with ScriptedUpstream(script) as upstream:
        with pytest.raises(ToolError) as failed:
            await call(http_tool(upstream.url, **changes), city="x")
    assert str(failed.value) == message
    assert not isinstance(failed.value, ToolOutcomeUnknown)


@pytest.mark.parametrize(
    "script", [[UpstreamAction.RESET], [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab", UpstreamAction.CLOSE]]
)
async def test_a_connection_that_is_lost_after_the_request_leaves_its_outcome_unknown(script: Any) -> None:
    async with ScriptedUpstream(script) as upstream:
        with pytest.raises(ToolOutcomeUnknown, match=r"^the connection was lost: \w+$"):
            await call(http_tool(upstream.url, method="POST"), city="x")


async def test_a_connection_that_is_refused_has_sent_nothing() -> None:
    async with closed_port() as url:
        with pytest.raises(ToolError, match=r"^the service does not accept connections$") as failed:
            await call(http_tool(url, method="POST"), city="x")
    assert not isinstance(failed.value, ToolOutcomeUnknown)


async def test_a_redirect_is_followed_and_other_origins_get_no_configured_header() -> None:
    async with ScriptedUpstream(reply({"a": 1})) as other:
        second = redirect(f"{other.url}/there")
        async with ScriptedUpstream(redirect("/again"), second) as upstream:
            assert await call(http_tool(upstream.url), city="x") == '{"a": 1}'
    assert [request.headers.get("authorization") for request in upstream.requests] == ["Bearer canary"] * 2
    assert "authorization" not in other.requests[0].headers


async def test_redirects_end_after_five() -> None:
    async with ScriptedUpstream(redirect("/again")) as upstream:
        with pytest.raises(ToolError, match=r"^the service redirected more than 5 times$"):
            await call(http_tool(upstream.url), city="x")
    assert len(upstream.requests) == 6


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("http://169.254.169.254/latest/meta-data", "the host has an address that tools must not reach"),
        ("http://[::ffff:169.254.169.254]/", "the host has an address that tools must not reach"),
        ("http://localhost:1/", "the host has an address that tools must not reach"),
        ("http://user@127.0.0.1/", "the service redirected to an address that cannot be followed"),
        ("file:///etc/passwd", "the service redirected to an address that cannot be followed"),
        ("http://127.0.0.1:99999/", "the service redirected to an address that cannot be followed"),
    ],
)
async def test_a_redirect_to_an_address_that_tools_must_not_reach_is_refused(location: str, message: str) -> None:
    async with ScriptedUpstream(redirect(location)) as upstream:
        with pytest.raises(ToolError) as refused:
            await call(http_tool(upstream.url), city="x")
    assert str(refused.value) == message


async def test_a_private_host_is_reached_only_if_that_is_configured() -> None:
    async with ScriptedUpstream(reply({})) as upstream:
        with pytest.raises(ToolError, match=r"^the host has an address that tools must not reach$"):
            await call(http_tool(upstream.url, allow_private=False), city="x")
    assert upstream.connections == 0


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with ScriptedUpstream(reply({"a": 1})) as upstream:
        assert await call(http_tool(upstream.url), city="x") == '{"a": 1}'


async def test_no_cookie_is_carried_from_one_call_to_the_next() -> None:
    cookie = reply({"id": 1}, headers={"Set-Cookie": "session=canary; Path=/"})
    async with ScriptedUpstream(cookie, reply({"id": 2})) as upstream:
        tool = http_tool(f"{upstream.url}/{{city}}")
        assert [await call(tool, city="Bonn"), await call(tool, city="Ulm")] == ['{"id": 1}', '{"id": 2}']
    assert "cookie" not in upstream.requests[1].headers
