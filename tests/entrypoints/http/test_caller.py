"""The caller as it sees itself: who it is, what it may do, and what is left of its limits."""

from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest

from portico.adapters.system import SystemClock
from portico.domain.access.limits import AccessLimits, Rate
from portico.domain.access.principal import KEY_DEFAULT, Permission
from portico.ports.runtime import Clock
from tests.entrypoints.http.test_authentication import SIGNER, bearer, keyed, with_issuer
from tests.entrypoints.http.test_limits_of_keys import service
from tests.support.issuer import claims, signed
from tests.support.keys import api_key
from tests.support.portico import chat, portico

ME = "/v1/me"
RIGHTS = (
    *("send_messages", "view_full_history", "view_tenant", "approve"),
    *("read_metrics", "share_memory", "manage_keys"),
    *("act_for", "manage_webhooks", "manage_credentials"),
)
HOUR = 3_600


def only(*rights: str) -> dict[str, bool]:
    return {name: name in rights for name in RIGHTS}


async def test_without_authentication_the_caller_may_do_everything_but_manage_keys() -> None:
    async with portico() as (served, _):
        first, second = [(await served.get(ME)).json for _ in range(2)]
    assert 0 <= (datetime.now(UTC) - datetime.fromisoformat(first.pop("now"))).total_seconds() < HOUR
    assert first.pop("replica") == second["replica"] != ""
    assert first == {
        "tenant": "local",
        "user": "local",
        "key": None,
        "auth": "none",
        "channel": "api",
        "permissions": ["*"],
        "can": only(*RIGHTS) | {"manage_keys": False},
        "limits": [],
        "replicas": 1,
        "version": version("portico"),
    }


async def test_a_key_sees_its_owner_and_exactly_its_rights(clock: Clock, tmp_path: Path) -> None:
    async with keyed(clock, tmp_path) as here:
        plain, reader = await here.key(), await here.key("eve", Permission.VIEW_TENANT, "model:small-*")
        manager = await here.key("ann", Permission.MANAGE_KEYS)
        found = [(await here.served.get(ME, bearer(key))).json for key in (plain, reader, manager)]
        refused = [await here.served.get(ME, headers) for headers in ({}, bearer(api_key()))]
    assert [(each["tenant"], each["user"], each["key"], each["auth"]) for each in found] == [
        ("acme", "ann", plain.key_id, "keys"),
        ("acme", "eve", reader.key_id, "keys"),
        ("acme", "ann", manager.key_id, "keys"),
    ]
    assert [each["permissions"] for each in found] == [
        list(KEY_DEFAULT.names),
        ["can_view_tenant", "model:small-*"],
        ["can_manage_keys"],
    ]
    assert [each["can"] for each in found] == [
        only("send_messages", "view_full_history", "approve", "share_memory"),
        only("view_tenant"),
        only("manage_keys"),
    ]
    assert [each.status for each in refused] == [401, 401]


async def test_the_bootstrap_key_may_manage_keys_webhooks_and_credentials_and_act_for_others(
    clock: Clock, tmp_path: Path
) -> None:
    key, file = api_key(), tmp_path / "bootstrap.key"
    file.write_text(key.reveal())
    auth = {"mode": "keys", "bootstrap_key_file": str(file), "bootstrap_tenant": "acme"}
    async with keyed(clock, tmp_path, auth=auth) as here:
        found = (await here.served.get(ME, bearer(key))).json
    assert (found["tenant"], found["user"], found["key"]) == ("acme", "default", key.key_id)
    assert found["can"] == only(
        *("send_messages", "view_full_history", "approve", "share_memory"),
        *("manage_keys", "act_for", "manage_webhooks", "manage_credentials"),
    )


async def test_a_token_has_its_scopes_and_no_key() -> None:
    async with with_issuer(SIGNER) as (_, served):
        token = signed(SIGNER, claims(SystemClock().now(), scope="openid can_approve model:*"))
        found = (await served.get(ME, bearer(token))).json
    assert (found["key"], found["auth"]) == (None, "jwt")
    assert (found["permissions"], found["can"]) == (["can_approve", "model:*"], only("approve"))


@pytest.mark.parametrize("sent", [0, 1])
async def test_limits_are_those_of_the_key_and_of_its_tenant_with_what_is_left(
    clock: Clock, tmp_path: Path, sent: int
) -> None:
    tenants = {"acme": {"requests": f"3/{HOUR}", "cost": f"0.5/{HOUR}"}}
    priced = {"one": {"model": "rehearsal://", "price": {"input": 0.0, "output": 0.0}}}
    async with service(clock, tmp_path, tenants=tenants, engines=priced) as (served, _, keys):
        key = await keys.of("ann", AccessLimits(requests=Rate(2, HOUR), concurrency=5))
        for _ in range(sent):
            assert (await served.post(chat("Hello"), key)).status == 200
        found = (await served.get(ME, key)).json["limits"]
    empty = {"window_seconds": HOUR}
    assert found == [
        {"policy": "requests", "limit": 2, "remaining": 2 - sent, **empty, "reset_seconds": sent * HOUR // 2},
        {"policy": "tenant-requests", "limit": 3, "remaining": 3 - sent, **empty, "reset_seconds": sent * HOUR // 3},
        {"policy": "tenant-cost", "limit": 500_000, "remaining": 500_000, **empty, "reset_seconds": 0},
        {"policy": "concurrency", "limit": 5, "remaining": 5, "window_seconds": None, "reset_seconds": None},
    ]
