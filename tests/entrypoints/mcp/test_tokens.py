"""Tokens at `/mcp`: the metadata by which clients find the issuer, and tokens that are for this resource."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from portico.adapters.system import SystemClock
from portico.entrypoints.http.routes.mcp import resource_of
from portico.settings import Settings
from tests.entrypoints.mcp.test_http import MCP, POST
from tests.support.http_server import RunningServer
from tests.support.issuer import AUDIENCE, ISSUER, claims, ec_key, running_issuer, signed
from tests.support.portico import portico

PUBLIC_URL = "https://portico.example.org/base"
RESOURCE = f"{PUBLIC_URL}/mcp"
METADATA = "/.well-known/oauth-protected-resource"
CHALLENGE = f'resource_metadata="{PUBLIC_URL}{METADATA}/mcp"'
PING = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":%s}' % orjson.dumps(
    {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
)
KEY = ec_key("m")


def auth(jwks_url: str) -> dict[str, Any]:
    return {"mode": "jwt", "issuer": ISSUER, "audience": AUDIENCE, "jwks_url": jwks_url}


@asynccontextmanager
async def with_tokens(**tables: Any) -> AsyncIterator[RunningServer]:
    async with (
        running_issuer(KEY) as issuer,
        portico(**{"auth": auth(issuer.url), "server": {"public_url": PUBLIC_URL}, "mcp": MCP} | tables) as (served, _),
    ):
        yield served


def bearer(**changes: Any) -> dict[str, str]:
    return {**POST, "Authorization": f"Bearer {signed(KEY, claims(SystemClock().now(), **changes))}"}


@pytest.mark.usefixtures("real_time")
async def test_a_token_for_the_resource_is_taken_there_and_nowhere_else() -> None:
    async with with_tokens() as served:
        for audience, at_mcp, elsewhere in (
            (AUDIENCE, 200, 200),
            (RESOURCE, 200, 401),
            (["other", RESOURCE], 200, 401),
            (PUBLIC_URL, 401, 401),
            (f"{RESOURCE}/", 401, 401),
            ([], 401, 401),
            (None, 401, 401),
        ):
            headers = bearer(aud=audience)
            answer = await served.post(PING, headers, path="/mcp")
            assert answer.status == at_mcp, (audience, answer.body)
            assert (await served.get("/v1/me", headers)).status == elsewhere
        for headers in (POST, {**POST, "Authorization": "Bearer none"}, bearer(aud="other")):
            refused = await served.post(PING, headers, path="/mcp")
            assert (refused.status, refused.json["code"]) == (401, "ACCESS_UNAUTHENTICATED")
            assert refused.headers["www-authenticate"].endswith(CHALLENGE)
        assert CHALLENGE not in (await served.get("/v1/me")).headers["www-authenticate"]


@pytest.mark.usefixtures("real_time")
async def test_clients_find_the_issuer_without_a_token() -> None:
    async with with_tokens() as served:
        for path in (METADATA, f"{METADATA}/mcp"):
            answer = await served.get(path)
            assert answer.status == 200
            assert answer.json == {
                "resource": RESOURCE,
                "authorization_servers": [ISSUER],
                "bearer_methods_supported": ["header"],
                "scopes_supported": sorted(answer.json["scopes_supported"]),
            }
            assert {"can_send_messages", "can_approve", "model:*"} <= {*answer.json["scopes_supported"]}
    for tables in ({"mcp": {"enabled": False}}, {"auth": {"mode": "keys"}}):
        async with with_tokens(**tables) as served:
            assert (await served.get(f"{METADATA}/mcp")).status == 404


def test_without_a_public_url_there_is_no_mcp_for_tokens() -> None:
    tables: dict[str, Any] = {"auth": auth("https://id.example.org/keys"), "mcp": {"enabled": True}}
    with pytest.raises(ValidationError, match=r"server\.public_url: must be set"):
        Settings.model_validate(tables)
    for url in (
        "http://portico.example.org",
        "https://portico.example.org/",
        "https://portico.example.org?a",
        "https://user@portico.example.org",
        "https://portico.example.org#a",
        'https://portico.example.org/"',
        "portico.example.org",
        "https://",
    ):
        with pytest.raises(ValidationError, match="must be an https URL"):
            Settings.model_validate({**tables, "server": {"public_url": url}})
    local = Settings.model_validate({**tables, "server": {"public_url": "http://127.0.0.1:8080"}})
    assert resource_of(local) == "http://127.0.0.1:8080/mcp"
