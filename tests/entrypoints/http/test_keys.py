"""Keys over HTTP: who lists, makes and revokes which, and that none gives more than the one that makes it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from portico.adapters.system import SystemClock
from portico.capabilities.key_administration import KeyGrant
from portico.domain.access.api_key import ApiKey
from portico.domain.access.limits import NO_LIMITS, AccessLimits, Rate
from portico.domain.access.principal import KEY_DEFAULT, Permission, Permissions
from portico.domain.ids import TenantId, UserId
from tests.entrypoints.http.test_authentication import SIGNER, Keyed, bearer, keyed, with_issuer
from tests.support.http_server import HttpAnswer, RunningServer, request_bytes
from tests.support.issuer import claims, signed
from tests.support.keys import api_key
from tests.support.portico import RESPOND_ASYNC, chat, portico
from tests.support.server_state import wait_for_idle, wait_for_running

KEYS = "/v1/keys"
MANAGER = [*KEY_DEFAULT.names, Permission.MANAGE_KEYS]
OVERSEER = [*MANAGER, Permission.VIEW_TENANT]
DAY_S = 86_400


async def make(served: RunningServer, by: ApiKey | str, **fields: Any) -> HttpAnswer:
    """Ask for a key of ann, unless another user is named."""
    return await served.post(orjson.dumps({"user": "ann", **fields}), bearer(by), path=KEYS)


async def revoke(served: RunningServer, by: ApiKey | str, public_id: str, query: str = "") -> HttpAnswer:
    return await served.ask(request_bytes("DELETE", f"{KEYS}/{public_id}{query}", bearer(by)))


async def users(served: RunningServer, by: ApiKey | str) -> list[str]:
    """Return the users of the listed keys."""
    return [each["user"] for each in (await served.get(KEYS, bearer(by))).json["data"]]


async def granted(
    here: Keyed,
    user: str = "ann",
    names: Sequence[str] = MANAGER,
    *,
    tenant: str = "acme",
    limits: AccessLimits = NO_LIMITS,
    days: float | None = None,
) -> ApiKey:
    grant = KeyGrant(TenantId(tenant), UserId(user), Permissions.of(names), limits, days)
    return (await here.keys.create(grant))[1]


def refusal(answer: HttpAnswer) -> tuple[int, str | None]:
    """Return the status, and the permission or the field that the refusal names."""
    details = answer.json["details"]
    named = [each["field"] for each in details.get("errors", ())] or [details.get("permission")]
    return answer.status, named[0]


async def test_a_key_that_was_made_works_and_is_listed_without_its_secret(tmp_path: Path) -> None:
    limits = {"requests": "600/60", "tokens": "200000/60", "cost": "1.25/3600", "concurrency": 4}
    async with keyed(SystemClock(), tmp_path) as here:
        manager = await granted(here)
        made = await make(here.served, manager, permissions=["can_send_messages", "model:*"], expires_days=30, **limits)
        shown = made.json
        secret = shown.pop("secret")
        listed = (await here.served.get(KEYS, bearer(manager))).json
        used = await here.served.get("/v1/executions", bearer(secret))
        key = ApiKey.parse(secret)
        assert key is not None
        stored = await here.keys.find(key.key_id)
    assert (made.status, made.headers["cache-control"], used.status) == (201, "no-store", 200)
    assert (listed["data"][0], listed["data"][1]["public_id"]) == (shown, manager.key_id)
    assert (listed["has_more"], listed["next"]) == (False, None)
    lasts = datetime.fromisoformat(shown.pop("expires_at")) - datetime.fromisoformat(shown.pop("created_at"))
    assert lasts.total_seconds() == pytest.approx(30 * DAY_S)
    assert shown == {
        "public_id": key.key_id,
        "tenant": "acme",
        "user": "ann",
        "permissions": ["can_send_messages", "model:*"],
        "channel": None,
        "limits": limits,
        "created_by": manager.key_id,
        "revoked_at": None,
        "last_used_at": None,
    }
    assert stored is not None
    assert stored.limits == AccessLimits(Rate(600, 60), Rate(200_000, 60), Rate(1_250_000, 3_600), 4)
    assert secret not in str(listed)


async def test_a_key_with_a_channel_is_always_in_it_and_makes_only_keys_of_it(tmp_path: Path) -> None:
    async with keyed(SystemClock(), tmp_path) as here:
        free = await granted(here)
        desk = (await make(here.served, free, channel="support-desk")).json
        shown = (await here.served.get("/v1/me", bearer(desk["secret"]))).json
        asked = await here.served.post(chat("hello"), bearer(desk["secret"]) | {"Idempotency-Key": "a"})
        listed = [
            (await here.served.get(f"/v1/executions?channel={name}", bearer(desk["secret"]))).json["data"]
            for name in ("support-desk", "api")
        ]
        bad = await make(here.served, free, channel="Support Desk")
    assert (desk["channel"], shown["channel"]) == ("support-desk", "support-desk")
    assert asked.json["metadata"]["channel"] == "support-desk"
    assert [[each["channel"] for each in page] for page in listed] == [["support-desk"], []]
    assert refusal(bad) == (422, "channel")


@pytest.mark.parametrize(
    ("own", "given"),
    [
        (MANAGER, [*KEY_DEFAULT.names]),
        (OVERSEER, [*KEY_DEFAULT.names]),
        (["can_manage_keys", "can_send_messages", "tool:get_*"], ["can_send_messages", "tool:get_*"]),
        (["can_manage_keys", "can_read_metrics"], []),
    ],
)
async def test_without_named_permissions_a_key_has_the_default_as_far_as_its_maker_has_it(
    tmp_path: Path, own: list[str], given: list[str]
) -> None:
    async with keyed(SystemClock(), tmp_path) as here:
        made = await make(here.served, await granted(here, names=own))
    assert (made.status, made.json["permissions"]) == (201, given)


@pytest.mark.parametrize("tenants", [{}, {"acme": {"tools": ["roll_*", "calculate"]}}])
async def test_a_permission_that_the_maker_lacks_is_refused_by_name(tmp_path: Path, tenants: Mapping[str, Any]) -> None:
    names = ["can_manage_keys", "can_send_messages", "tool:roll_*", "tool:calculate", "model:small"]
    async with keyed(SystemClock(), tmp_path, tenants=tenants) as here:
        manager = await granted(here, names=names)
        wide = await granted(here)
        answers = {
            name: await make(here.served, manager, permissions=["can_send_messages", name])
            for name in (
                "can_approve",
                "tool:*",
                "tool:ask",
                "tool:calculate*",
                "tool:roll*",
                "model:small*",
                "agent:x",
            )
        }
        beyond_tenant = await make(here.served, wide, permissions=["tool:ask"])
        allowed = await make(here.served, manager, permissions=["tool:roll_dice", "tool:roll_d*", "tool:calculate"])
        listed = await users(here.served, manager)
    assert {name: refusal(answer) for name, answer in answers.items()} == {name: (403, name) for name in answers}
    assert 'scope="can_approve"' in answers["can_approve"].headers["www-authenticate"]
    assert (allowed.status, beyond_tenant.status) == (201, 403 if tenants else 201)
    assert len(listed) == (3 if tenants else 4)


async def test_no_key_that_is_made_here_makes_others(tmp_path: Path) -> None:
    async with keyed(SystemClock(), tmp_path) as here:
        manager = await granted(here)
        named = await make(here.served, manager, permissions=["can_manage_keys"])
        made = await make(here.served, manager)
        again = await make(here.served, made.json["secret"])
    assert (refusal(named), made.status) == ((403, "can_manage_keys"), 201)
    assert refusal(again) == (403, "can_manage_keys")


async def test_a_key_with_limits_of_its_own_makes_none(tmp_path: Path) -> None:
    async with keyed(SystemClock(), tmp_path) as here:
        limited = await granted(here, limits=AccessLimits(concurrency=100))
        refused = await make(here.served, limited)
        assert (refused.status, refused.json["code"]) == (403, "ACCESS_DENIED")
        assert "limits of its own" in refused.json["detail"]
        assert (await revoke(here.served, limited, limited.key_id)).status == 204


@pytest.mark.parametrize(("days", "status"), [(None, 422), (10.1, 422), (9.99, 201), (0.5, 201)])
async def test_no_key_expires_later_than_the_one_that_makes_it(tmp_path: Path, days: float | None, status: int) -> None:
    async with keyed(SystemClock(), tmp_path) as here:
        made = await make(here.served, await granted(here, days=10), expires_days=days)
    assert made.status == status
    if status == 422:
        assert refusal(made) == (422, "expires_days")
        assert "must be at most 9.99" in made.json["detail"]


async def test_with_a_token_an_end_within_90_days_is_needed() -> None:
    async with with_issuer(SIGNER) as (_, served):
        token = signed(SIGNER, claims(SystemClock().now(), scope="can_manage_keys can_send_messages model:*"))
        user = (await served.get("/v1/me", bearer(token))).json["user"]
        answers = [await make(served, token, user=user, expires_days=days) for days in (None, 91, 90)]
        other = signed(SIGNER, claims(SystemClock().now(), scope="can_send_messages"))
        refused = await make(served, other, user=user, expires_days=1)
    assert [refusal(each) for each in answers[:2]] == [(422, "expires_days")] * 2
    assert (answers[2].status, answers[2].json["created_by"]) == (201, "jwt")
    assert answers[2].json["permissions"] == ["can_send_messages", "model:*"]
    assert refusal(refused) == (403, "can_manage_keys")


async def test_without_the_permission_all_three_are_refused(tmp_path: Path) -> None:
    async with keyed(SystemClock(), tmp_path) as here:
        plain, other = await granted(here, names=KEY_DEFAULT.names), await granted(here)
        answers = [
            await here.served.get(KEYS, bearer(plain)),
            await make(here.served, plain),
            *[await revoke(here.served, plain, key_id) for key_id in (plain.key_id, other.key_id, "unknown1")],
        ]
        assert (await here.served.get("/v1/tools", bearer(other))).status == 200
    assert [refusal(each) for each in answers] == [(403, "can_manage_keys")] * 5


async def test_keys_of_other_users_need_the_right_to_view_the_tenant_and_other_tenants_do_not_exist(
    tmp_path: Path,
) -> None:
    async with keyed(SystemClock(), tmp_path) as here:
        ann, bob, boss = await granted(here), await granted(here, "bob"), await granted(here, "boss", OVERSEER)
        stranger = await granted(here, "ann", OVERSEER, tenant="other")
        listed = [await users(here.served, key) for key in (ann, boss, stranger)]
        refused = await make(here.served, ann, user="bob")
        made = await make(here.served, boss, user="carl")
        foreign = [
            await revoke(here.served, by, key.key_id) for by, key in ((ann, bob), (ann, stranger), (stranger, ann))
        ]
        unknown = [await revoke(here.served, boss, name) for name in ("unknown1", "ptk_unknown1", "%00")]
        working = [(await here.served.get("/v1/tools", bearer(key))).status for key in (ann, bob, stranger)]
        done = await revoke(here.served, boss, bob.key_id)
        now = await here.keys.find(bob.key_id)
    assert listed == [["ann"], ["boss", "bob", "ann"], ["ann"]]
    assert (refusal(refused), made.status, made.json["user"]) == ((403, "can_view_tenant"), 201, "carl")
    assert {(each.status, each.json["detail"]) for each in (*foreign, *unknown)} == {(404, "no key has this id")}
    assert (working, done.status) == ([200] * 3, 204)
    assert now is not None
    assert now.revoked_at is not None


async def test_a_revoked_key_makes_and_revokes_nothing_while_it_is_still_remembered(tmp_path: Path) -> None:
    async with keyed(SystemClock(), tmp_path) as here:
        manager, other = await granted(here), await granted(here)
        assert (await here.served.get("/v1/tools", bearer(manager))).status == 200
        await here.keys.revoke(manager.key_id, cancel=False)
        remembered = await here.served.get("/v1/tools", bearer(manager))
        answers = [
            await make(here.served, manager),
            await revoke(here.served, manager, other.key_id),
            await here.served.get(KEYS, bearer(manager)),
        ]
        assert await users(here.served, other) == ["ann", "ann"]
    assert remembered.status == 200
    assert [(each.status, each.json["code"]) for each in answers] == [(401, "ACCESS_UNAUTHENTICATED")] * 3
    assert 'error="invalid_token"' in answers[0].headers["www-authenticate"]


@pytest.mark.parametrize("cancel", ["", "?cancel=true"])
async def test_a_revocation_stops_executions_if_asked(tmp_path: Path, cancel: str) -> None:
    async with keyed(SystemClock(), tmp_path) as here:
        manager, runs = await granted(here), await granted(here)
        body = chat("[[slow:5]] Hello", request_id="slow")
        assert (await here.served.post(body, {**bearer(runs), **RESPOND_ASYNC})).status == 202
        await wait_for_running(here.service)
        answers = [await revoke(here.served, manager, runs.key_id, cancel) for _ in range(2)]
        await wait_for_idle(here.service)
        shown = await here.served.get("/v1/executions/slow", bearer(manager))
    assert [each.status for each in answers] == [204, 204]
    assert shown.json["state"] == ("CANCELLED" if cancel else "COMPLETE")


async def test_the_key_of_the_file_makes_keys_as_long_as_it_stands_there(tmp_path: Path) -> None:
    key, file = api_key(), tmp_path / "bootstrap.key"
    file.write_text(key.reveal())
    auth = {"mode": "keys", "bootstrap_key_file": str(file), "bootstrap_tenant": "acme", "bootstrap_user": "ann"}
    async with keyed(SystemClock(), tmp_path, auth=auth) as here:
        made = await make(here.served, key)
        file.write_text(api_key(2).reveal())
        assert (await make(here.served, key)).status == 401
        assert (await revoke(here.served, api_key(2), made.json["public_id"])).status == 204
    assert (made.status, made.json["created_by"]) == (201, key.key_id)


async def test_without_authentication_there_are_no_keys() -> None:
    async with portico() as (served, _):
        answers = [
            await served.get(KEYS),
            await served.post(b'{"user": "ann"}', path=KEYS),
            await served.ask(request_bytes("DELETE", f"{KEYS}/unknown1", {})),
        ]
    assert [(each.status, each.json["code"]) for each in answers] == [(403, "ACCESS_DENIED")] * 3


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"user": None}, "user"),
        ({"user": "a b"}, "user"),
        ({"user": "a" * 129}, "user"),
        ({"tenant": "other"}, "tenant"),
        ({"created_by": "unknown1"}, "created_by"),
        ({"permissions": ["*"]}, "permissions.0"),
        ({"permissions": ["can_approve", "tool:"]}, "permissions.1"),
        ({"permissions": ["can_approve"] * 1_001}, "permissions"),
        ({"permissions": "can_approve"}, "permissions"),
        ({"requests": "10"}, "requests"),
        ({"requests": 10}, "requests"),
        ({"tokens": "0/60"}, "tokens"),
        ({"cost": "0.0000001/60"}, "cost"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"expires_days": 0}, "expires_days"),
        ({"expires_days": -1}, "expires_days"),
        ({"expires_days": 36_501}, "expires_days"),
        ({"expires_days": "30"}, "expires_days"),
    ],
)
async def test_a_bad_field_is_named_and_nothing_is_made(tmp_path: Path, fields: dict[str, Any], field: str) -> None:
    async with keyed(SystemClock(), tmp_path) as here:
        manager = await granted(here, names=OVERSEER)
        answer = await make(here.served, manager, **fields)
        assert refusal(answer) == (422, field)
        assert await users(here.served, manager) == ["ann"]


async def test_a_list_has_pages_from_the_newest_key_on(tmp_path: Path) -> None:
    async with keyed(SystemClock(), tmp_path) as here:
        manager = await granted(here)
        made = [(await make(here.served, manager)).json["public_id"] for _ in range(4)]
        seen, path = [], f"{KEYS}?limit=2"
        while path:
            page = (await here.served.get(path, bearer(manager))).json
            seen.append([each["public_id"] for each in page["data"]])
            path = f"{KEYS}?limit=2&after={page['next']}" if page["has_more"] else ""
        foreign = await here.served.get(f"{KEYS}?after=00000000.1.0/x", bearer(manager))
    assert seen == [made[:1:-1], made[1::-1], [manager.key_id]]
    assert refusal(foreign) == (422, "after")
