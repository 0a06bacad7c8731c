"""Endpoints of webhooks over the API: who may make them, which URLs they have, and their secrets."""

import base64
from pathlib import Path
from typing import Any

import orjson
import pytest

from portico.domain.access.principal import KEY_DEFAULT, Permission
from tests.support.callers import Caller, callers
from tests.support.http_server import HttpAnswer
from tests.support.portico import chat
from tests.support.webhook_receiver import file_endpoint, webhook_receiver

BOTH = [*KEY_DEFAULT.names, Permission.MANAGE_WEBHOOKS, Permission.VIEW_TENANT]
GRANTS = {
    "ada": ("red", "ada", BOTH),
    "bob": ("blue", "bob", BOTH),
    "blind": ("red", "blind", [*KEY_DEFAULT.names, Permission.MANAGE_WEBHOOKS]),
    "viewer": ("red", "viewer", [*KEY_DEFAULT.names, Permission.VIEW_TENANT]),
}
URL = "https://hooks.example/orders"
ALL_PATHS = (
    *(("GET", ""), ("GET", "/orders"), ("PUT", "/orders"), ("DELETE", "/orders"), ("POST", "/orders/rotate")),
    *(("POST", "/orders/test"), ("GET", "/deliveries"), ("POST", "/deliveries/msg_" + "0" * 32 + "/retry")),
)


async def put(caller: Caller, name: str = "orders", **body: Any) -> HttpAnswer:
    return await caller.send("PUT", f"/v1/webhooks/{name}", orjson.dumps({"url": URL, **body}))


def hold(folder: Path, secret: str) -> bool:
    """Return True if a file holds the secret, or if others may read the key that seals it."""
    assert (folder / "secrets.key").stat().st_mode & 0o777 == 0o600
    return any(secret.encode() in path.read_bytes() for path in folder.iterdir() if path.is_file())


async def test_an_endpoint_is_made_with_a_secret_that_is_shown_once(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        ada = by_name["ada"]
        made = await put(ada, events=["execution.failed"], always=False)
        changed = await put(ada, content=True)
        shown = (await ada.get("/v1/webhooks/orders")).json
        listed = (await ada.get("/v1/webhooks")).json["data"]
        rotated = await ada.send("POST", "/v1/webhooks/orders/rotate")
        gone = await ada.send("DELETE", "/v1/webhooks/orders")
        left = await ada.get("/v1/webhooks/orders")
    new = made.json["secret"]
    assert len(base64.b64decode(new.removeprefix("whsec_"))) == 32
    assert (made.status, changed.status, rotated.status, gone.status, left.status) == (201, 200, 200, 204, 404)
    assert made.headers["cache-control"] == rotated.headers["cache-control"] == "no-store"
    assert "secret" not in changed.json
    assert listed == [shown]
    assert (shown["events"][0], shown["always"], shown["content"], shown["source"]) == (
        "execution.completed",
        True,
        True,
        "api",
    )
    assert rotated.json["secret"] != new
    assert not hold(tmp_path, new)


async def test_webhooks_need_both_permissions_and_those_of_another_tenant_are_unknown(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        assert (await put(by_name["ada"])).status == 201
        for name, missing in (("blind", "can_view_tenant"), ("viewer", "can_manage_webhooks")):
            for method, path in ALL_PATHS:
                body = orjson.dumps({"url": URL}) if method == "PUT" else None
                refused = await by_name[name].send(method, f"/v1/webhooks{path}", body)
                assert (refused.status, refused.json["details"]["permission"]) == (403, missing)
        for method, path in ALL_PATHS:
            if path in {"", "/deliveries"}:
                assert (await by_name["bob"].get(f"/v1/webhooks{path}")).json["data"] == []
            elif method != "PUT":
                assert (await by_name["bob"].send(method, f"/v1/webhooks{path}")).status == 404
        named = chat("Hello", webhooks=["orders"])
        assert [(await by_name[name].execute(named)).status for name in ("viewer", "bob")] == [200, 422]


@pytest.mark.parametrize(
    "url",
    [
        *(
            "http://hooks.example/x",
            "ftp://hooks.example/x",
            "hooks.example",
            "https://",
            "https://u:p@hooks.example/x",
        ),
        *("https://127.0.0.1/x", "https://[::1]/x", "https://169.254.169.254/latest", "https://10.0.0.1/x"),
        *("https://localhost/x", "https://hooks.example:99999/x", "https://hooks.example/ü"),
    ],
)
async def test_a_url_that_nothing_is_sent_to_is_refused(tmp_path: Path, url: str) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        refused = await put(by_name["ada"], url=url)
    assert (refused.status, refused.json["details"]["errors"][0]["field"]) == (422, "url")


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("deliveries", {}, "name"),
        ("orders", {"events": []}, "events"),
        ("orders", {"events": ["tool.start"]}, "events.0"),
        ("orders", {"secret": "whsec_x"}, "secret"),
    ],
)
async def test_an_endpoint_with_something_else_is_refused(
    tmp_path: Path, name: str, body: dict[str, Any], field: str
) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        refused = await put(by_name["ada"], name.replace(" ", "%20"), **body)
    assert (refused.status, refused.json["details"]["errors"][0]["field"]) == (422, field)


async def test_a_tenant_has_twenty_endpoints_and_those_of_the_file_are_read_only(tmp_path: Path) -> None:
    endpoints = {"audit": file_endpoint(tmp_path, "https://hooks.example/audit", allow_private=False)}
    async with callers(tmp_path, GRANTS, webhooks={"endpoints": endpoints}) as (by_name, _):
        ada = by_name["ada"]
        made = [(await put(ada, f"e{number}")).status for number in range(21)]
        again = await put(ada, "e0")
        shown = (await ada.get("/v1/webhooks/audit")).json
        refused = [
            await put(ada, "audit"),
            await ada.send("DELETE", "/v1/webhooks/audit"),
            await ada.send("POST", "/v1/webhooks/audit/rotate"),
        ]
    assert made == [201] * 20 + [429]
    assert again.status == 200
    assert (shown["source"], shown["created_at"]) == ("file", None)
    assert [(each.status, each.json["code"]) for each in refused] == [(409, "REQUEST_ID_CONFLICT")] * 3


async def test_an_endpoint_of_one_tenant_hears_nothing_of_another(tmp_path: Path) -> None:
    async with (
        webhook_receiver() as receiver,
        callers(tmp_path, GRANTS, webhooks={"allow_private": True}) as (by_name, _),
    ):
        assert (await put(by_name["ada"], url=receiver.url)).status == 201
        assert (await by_name["bob"].execute(chat("Hello", request_id="foreign"))).status == 200
        assert (await by_name["viewer"].execute(chat("Hello", request_id="own"))).status == 200
        (message,) = await receiver.wait_for(1)
        assert len((await by_name["ada"].get("/v1/webhooks/deliveries")).json["data"]) == 1
        assert (await by_name["bob"].get("/v1/webhooks/deliveries")).json["data"] == []
    assert (message.json["data"]["request_id"], message.json["data"]["user"]) == ("own", "viewer")
