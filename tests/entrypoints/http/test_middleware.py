"""Middleware: correlation, hosts and generic errors of every route."""

import re

import pytest

from portico.domain.failures import Code
from tests.support.fake_service import SPAN, TRACE, fake_app
from tests.support.http_server import request_bytes, running_server

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-00")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/livez"),
        ("GET", "/readyz"),
        ("GET", "/metrics"),
        ("GET", "/v1/tools"),
        ("GET", "/openapi.json"),
        ("GET", "/nowhere"),
        ("GET", "/v1/execute"),
        ("POST", "/v1/execute"),
        ("POST", "/v1/tools"),
    ],
)
async def test_every_response_has_its_request_id_and_its_trace(method: str, path: str) -> None:
    app, _ = fake_app()
    async with running_server(app) as served:
        answer = await served.ask(request_bytes(method, path, {}))
    assert UUID7.fullmatch(answer.headers["x-request-id"])
    assert TRACEPARENT.fullmatch(answer.headers["traceparent"])


async def test_a_response_without_an_execution_continues_the_caller_s_trace() -> None:
    app, _ = fake_app()
    async with running_server(app) as served:
        answer = await served.get("/nowhere", {"traceparent": f"00-{TRACE}-{SPAN}-01"})
    assert answer.headers["traceparent"].startswith(f"00-{TRACE}-")
    assert SPAN not in answer.headers["traceparent"]


async def test_the_request_id_of_a_gateway_is_returned_where_there_is_no_execution() -> None:
    app, service = fake_app()
    async with running_server(app) as served:
        listed = await served.get("/v1/tools", {"X-Request-Id": "gateway-1"})
        refused = await served.post(b"{", {"X-Request-Id": "gateway-2"})
    assert listed.headers["x-request-id"] == "gateway-1"
    assert refused.json["request_id"] == refused.headers["x-request-id"] == "gateway-2"
    assert service.links == []


async def test_the_request_id_of_a_gateway_is_logged_with_that_of_the_execution() -> None:
    app, service = fake_app()
    service.facade.started = lambda running: running.complete()
    async with running_server(app) as served:
        for name in ("q-1", "gateway-1"):
            body = b'{"request_id":"%b","messages":[{"role":"user","content":"x"}]}' % name.encode()
            answer = await served.post(body, {"X-Request-Id": "gateway-1"})
            assert (answer.status, answer.headers["x-request-id"]) == (200, name)
    assert service.links == [("q-1", "gateway-1")]


@pytest.mark.parametrize("given", ["a b", "x" * 129, "é", '"', "", "a, b"])
async def test_an_invalid_request_id_of_a_gateway_is_ignored(given: str) -> None:
    app, service = fake_app()
    async with running_server(app) as served:
        answer = await served.ask(request_bytes("POST", "/nowhere", {"X-Request-Id": given}))
    assert UUID7.fullmatch(answer.headers["x-request-id"])
    assert service.links == []


@pytest.mark.parametrize(
    "path", ["/nowhere", "/v1/tools/", "/", "/v1/execute/x", "//v1/tools", "/docs/oauth2-redirect"]
)
async def test_an_unknown_path_is_a_problem_document(path: str) -> None:
    app, _ = fake_app()
    async with running_server(app) as served:
        answer = await served.get(path)
    assert (answer.status, answer.headers["content-type"]) == (404, "application/problem+json")
    assert (answer.json["code"], answer.json["status"]) == ("REQUEST_NOT_FOUND", 404)
    assert answer.json["request_id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"), [("GET", "/v1/execute", {"POST"}), ("DELETE", "/v1/tools", {"GET", "HEAD"})]
)
async def test_an_unsupported_method_is_a_problem_document(method: str, path: str, allowed: set[str]) -> None:
    app, _ = fake_app()
    async with running_server(app) as served:
        answer = await served.ask(request_bytes(method, path, {}))
    assert (answer.status, answer.json["code"]) == (405, "REQUEST_NOT_FOUND")
    assert set(answer.headers["allow"].split(", ")) == allowed


async def test_a_bug_is_a_problem_document_without_details() -> None:
    app, service = fake_app()

    def broken() -> tuple[bytes, str]:
        raise RuntimeError("hunter2-canary")

    service.metrics = broken
    async with running_server(app) as served:
        answer = await served.get("/metrics")
    assert (answer.status, answer.headers["content-type"]) == (500, "application/problem+json")
    assert b"hunter2-canary" not in answer.body
    assert UUID7.fullmatch(answer.headers["x-request-id"])


@pytest.mark.parametrize(
    "host", ["evil.example", "api.example.com.evil.example", "", "xexample.org", "api.example.com@evil.example"]
)
async def test_a_foreign_host_is_refused(host: str) -> None:
    app, service = fake_app(server={"allowed_hosts": ["api.example.com", "*.example.org"]})
    async with running_server(app) as served:
        answer = await served.get("/livez", {"Host": host})
    assert (answer.status, answer.json["code"]) == (400, "REQUEST_INVALID")
    assert b"evil" not in answer.body
    assert service.facade.calls == []


@pytest.mark.parametrize("host", ["api.example.com", "API.example.com:8080", "a.b.example.org", "[::1]:8080", "[::1]"])
async def test_allowed_hosts_are_served(host: str) -> None:
    app, _ = fake_app(server={"allowed_hosts": ["api.example.com", "*.example.org", "[::1]"]})
    async with running_server(app) as served:
        assert (await served.get("/livez", {"Host": host})).status == 200


async def test_a_forwarded_address_or_host_changes_nothing() -> None:
    app, _ = fake_app(server={"allowed_hosts": ["api.example.com"]})
    spoofed = {"Host": "evil.example", "X-Forwarded-Host": "api.example.com", "X-Forwarded-For": "127.0.0.1"}
    async with running_server(app) as served:
        assert (await served.get("/livez", spoofed)).status == 400


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080"])
async def test_without_a_setting_the_names_of_loopback_are_served(host: str) -> None:
    app, _ = fake_app()
    async with running_server(app) as served:
        assert (await served.get("/livez", {"Host": host})).status == 200


@pytest.mark.parametrize("host", ["rebound.example", "127.0.0.1.rebound.example", "192.0.2.1:8080", "0.0.0.1"])
async def test_without_a_setting_a_page_of_a_rebound_name_reaches_nothing(host: str) -> None:
    app, service = fake_app()
    async with running_server(app) as served:
        answer = await served.post(b'{"messages":[{"role":"user","content":"x"}]}', {"Host": host})
    assert (answer.status, answer.json["detail"]) == (400, "the Host header is none of server.allowed_hosts")
    assert service.facade.calls == []


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (("GET", "/v1/executions?limit=0", {}), (Code.REQUEST_INVALID, "/v1/executions")),
        (("GET", "/v1/secret-canary", {}), (Code.REQUEST_NOT_FOUND, None)),
        (("DELETE", "/livez", {}), (Code.REQUEST_NOT_FOUND, "/livez")),
        (("GET", "/livez", {"Host": "evil.example"}), (Code.REQUEST_INVALID, None)),
        (("POST", "/v1/execute", {"Content-Type": "text/plain"}), (Code.REQUEST_UNSUPPORTED_MEDIA, "/v1/execute")),
    ],
)
async def test_every_refusal_is_recorded_with_its_route_and_ids(
    request_: tuple[str, str, dict[str, str]], expected: tuple[Code, str | None]
) -> None:
    app, service = fake_app()
    async with running_server(app) as served:
        answer = await served.ask(request_bytes(*request_))
    assert answer.status >= 400
    [refused] = service.refused_requests
    assert (service.refusals, refused["route"], refused["method"]) == ([expected[0]], expected[1], request_[0])
    assert refused["request_id"] == answer.headers["x-request-id"]
    assert [refused["trace_id"], refused["span_id"]] == answer.headers["traceparent"].split("-")[1:3]
