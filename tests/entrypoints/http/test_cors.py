"""Calls of pages of other origins: preflight requests and the headers of answers."""

from typing import Any

import pytest

from portico.domain.failures import ConfigurationFailure
from portico.settings import load_settings
from tests.support.fake_service import fake_app
from tests.support.http_server import HttpAnswer, RunningServer, request_bytes, running_server
from tests.support.portico import chat, portico

PAGE, OTHER = "https://app.example.org", "https://other.example.org"
ALLOW, EXPOSE = "access-control-allow-origin", "access-control-expose-headers"
ORIGINS = {"cors_origins": [PAGE]}


def preflight(served: RunningServer, origin: str, method: str = "POST") -> Any:
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": "authorization,idempotency-key",
    }
    return served.ask(request_bytes("OPTIONS", "/v1/execute", headers))


def allowed(answer: HttpAnswer) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control-")}


async def test_a_page_of_a_configured_origin_may_call_and_read_the_headers_of_the_contract() -> None:
    async with portico(server=ORIGINS) as (served, _):
        before = await preflight(served, PAGE)
        answer = await served.post(chat("Hello"), {"Origin": PAGE})
        refused = await served.post(b"{", {"Origin": PAGE})
    assert (before.status, before.headers[ALLOW], before.headers["access-control-max-age"]) == (200, PAGE, "600")
    assert before.headers["access-control-allow-headers"] == "authorization,idempotency-key"
    assert before.headers["access-control-allow-methods"] == "GET, POST, PATCH, PUT, DELETE"
    for each in (answer, refused):
        assert each.headers[ALLOW] == PAGE
        assert {"location", "retry-after", "x-request-id", "ratelimit"} <= {*each.headers[EXPOSE].split(", ")}
        assert "Origin" in each.headers["vary"]
        assert "access-control-allow-credentials" not in each.headers
    assert (answer.status, refused.status) == (200, 400)


async def test_a_page_of_another_origin_is_not_allowed() -> None:
    async with portico(server=ORIGINS) as (served, _):
        before = await preflight(served, OTHER)
        answer = await served.post(chat("Hello"), {"Origin": OTHER})
    assert (before.status, ALLOW in before.headers) == (400, False)
    assert ALLOW not in answer.headers


async def test_without_origins_no_answer_has_a_header_for_pages() -> None:
    app, _ = fake_app()
    async with running_server(app) as served:
        before = await preflight(served, PAGE)
        answer = await served.ask(request_bytes("GET", "/livez", {"Origin": PAGE}))
    assert before.status == 405
    assert allowed(before) == allowed(answer) == {}


@pytest.mark.parametrize(
    "origin",
    [
        *(
            "https://app.example.org/",
            "app.example.org",
            "https://*.example.org",
            "https://App.example.org",
            "null",
            "",
        ),
        *(
            "https://app.example.org:443",
            "https://u@app.example.org",
            "https://app.example.org/x",
            "https://",
            "ftp://a",
        ),
    ],
)
def test_an_entry_that_no_browser_sends_is_refused_by_name(origin: str) -> None:
    with pytest.raises(ConfigurationFailure, match=r"server\.cors_origins\.1: must be an origin as a browser sends it"):
        load_settings({}, overrides={"server.cors_origins": [PAGE, origin]}, local_model=lambda: None)


@pytest.mark.parametrize("origin", ["http://localhost:3000", "https://app.example.org", "http://[::1]:3000"])
def test_an_origin_with_a_port_or_an_address_is_accepted(origin: str) -> None:
    settings = load_settings({}, overrides={"server.cors_origins": [origin]}, local_model=lambda: None)
    assert settings.server.cors_origins == (origin,)


def test_any_origin_needs_authentication_and_stands_alone() -> None:
    with pytest.raises(ConfigurationFailure, match="any web page could use the service"):
        load_settings({}, overrides={"server.cors_origins": ["*"]}, local_model=lambda: None)
    keys = {"auth.mode": "keys"}
    with pytest.raises(ConfigurationFailure, match="or name origins"):
        load_settings({}, overrides={**keys, "server.cors_origins": ["*", PAGE]}, local_model=lambda: None)
    settings = load_settings({}, overrides={**keys, "server.cors_origins": ["*"]}, local_model=lambda: None)
    assert settings.server.cors_origins == ("*",)
