"""Limits and usage of several keys of one tenant over HTTP, and what a tenant may use."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from portico.adapters.stores.access.api_keys import DatabaseKeys
from portico.adapters.stores.factory import open_beside
from portico.adapters.system import SystemEntropy
from portico.capabilities.key_administration import KeyAdministration, KeyGrant
from portico.domain.access.limits import NO_LIMITS, AccessLimits, Rate
from portico.domain.access.principal import KEY_DEFAULT, Permission, Permissions
from portico.domain.ids import TenantId, UserId
from portico.ports.runtime import Clock
from tests.support.http_server import RunningServer
from tests.support.portico import RESPOND_ASYNC, chat, portico
from tests.support.server_state import wait_for_idle

YEAR = 366 * 86_400
AUDITOR = Permissions.of([*KEY_DEFAULT.names, Permission.VIEW_TENANT])


class Keys:
    """The keys of a service that runs."""

    def __init__(self, administration: KeyAdministration) -> None:
        self._administration = administration

    async def of(
        self,
        user: str,
        limits: AccessLimits = NO_LIMITS,
        permissions: Permissions = KEY_DEFAULT,
        tenant: str = "acme",
    ) -> Mapping[str, str]:
        """Return the header of a new key."""
        grant = KeyGrant(TenantId(tenant), UserId(user), permissions, limits, None)
        return {"Authorization": f"Bearer {(await self._administration.create(grant))[1].reveal()}"}


@asynccontextmanager
async def service(clock: Clock, folder: Path, **tables: Any) -> AsyncIterator[tuple[RunningServer, Any, Keys]]:
    storage, entropy = {"url": f"sqlite:///{folder}/portico.db"}, SystemEntropy(clock)
    engines = {"one": {"model": "rehearsal://"}, "two": {"model": "rehearsal://"}}
    tables = {"auth": {"mode": "keys"}, "storage": storage, "engines": engines} | tables
    async with portico(**tables) as (served, running), open_beside(storage["url"], clock, entropy) as database:
        yield served, running, Keys(KeyAdministration(DatabaseKeys(database), clock, entropy))


async def test_a_key_has_its_own_limits_beside_those_that_it_shares(clock: Clock, tmp_path: Path) -> None:
    tenants = {"acme": {"requests": f"3/{YEAR}"}, "default": {"requests": f"1/{YEAR}"}}
    async with service(clock, tmp_path, tenants=tenants) as (served, _, keys):
        narrow, wide = await keys.of("ann", AccessLimits(requests=Rate(2, YEAR))), await keys.of("bob")
        other = await keys.of("eve", tenant="other")
        first = [await served.post(chat("Hello"), narrow) for _ in range(3)]
        second = [await served.post(chat("Hello"), wide) for _ in range(2)]
        third = [await served.post(chat("Hello"), other) for _ in range(2)]
    assert [each.status for each in (*first, *second, *third)] == [200, 200, 429, 200, 429, 200, 429]
    assert first[0].headers["ratelimit-policy"] == f'"requests";q=2;w={YEAR}, "tenant-requests";q=3;w={YEAR}'
    assert first[2].json["violated-policies"] == ["requests"]
    assert second[1].json["violated-policies"] == ["tenant-requests"]
    assert second[0].headers["ratelimit-policy"] == f'"tenant-requests";q=3;w={YEAR}'


async def test_a_queued_execution_keeps_the_limits_of_its_key(clock: Clock, tmp_path: Path) -> None:
    async with service(clock, tmp_path) as (served, running, keys):
        key = await keys.of("ann", AccessLimits(concurrency=1))
        for number in range(3):
            await served.post(chat("[[slow:5]] Hello", request_id=f"b-{number}"), {**key, **RESPOND_ASYNC})
        await wait_for_idle(running)
        ran = [(await served.get(f"/v1/executions/b-{number}", key)).json for number in range(3)]
    assert [each["state"] for each in ran] == ["COMPLETE"] * 3
    in_order = sorted(ran, key=lambda each: each["started_at"])
    assert in_order[0]["entered_at"] <= in_order[1]["started_at"]
    assert in_order[1]["entered_at"] <= in_order[2]["started_at"]


async def test_usage_is_ones_own_unless_one_may_view_the_tenant(clock: Clock, tmp_path: Path) -> None:
    async with service(clock, tmp_path) as (served, _, keys):
        ann, bob, auditor = await keys.of("ann"), await keys.of("bob"), await keys.of("eve", permissions=AUDITOR)
        stranger = await keys.of("ann", permissions=AUDITOR, tenant="other")
        for key in (ann, ann, bob):
            await served.post(chat("Hello"), key)
        found = {
            name: [
                (each["user"], each["executions"]) for each in (await served.get("/v1/usage?by=user", key)).json["data"]
            ]
            for name, key in {"ann": ann, "bob": bob, "auditor": auditor, "stranger": stranger}.items()
        }
        by_key = (await served.get("/v1/usage?by=key", auditor)).json["data"]
        refused = await served.get("/v1/usage")
    assert found == {
        "ann": [("ann", 2)],
        "bob": [("bob", 1)],
        "auditor": [("ann", 2), ("bob", 1)],
        "stranger": [],
    }
    ids = [key["Authorization"].removeprefix("Bearer ptk_")[:8] for key in (ann, bob)]
    assert {each["key"]: each["executions"] for each in by_key} == dict(zip(ids, (2, 1), strict=True))
    assert refused.status == 401


@pytest.mark.parametrize("tenant", ["acme", "default"])
async def test_a_tenant_may_use_only_what_its_table_names(clock: Clock, tmp_path: Path, tenant: str) -> None:
    tenants = {tenant: {"tools": ["roll_*"], "models": ["one"]}}
    async with service(clock, tmp_path, tenants=tenants) as (served, _, keys):
        key = await keys.of("ann")
        narrow = await keys.of("ann", permissions=Permissions.of(["can_send_messages", "tool:calculate", "model:*"]))
        tools = [each["name"] for each in (await served.get("/v1/tools", key)).json["data"]]
        allowed = await served.post(chat("Hello", model="one", tools=["roll_dice"]), key)
        other_model = await served.post(chat("Hello", model="two"), key)
        other_tool = await served.post(chat("Hello", model="one", tools=["calculate"]), key)
        neither = await served.post(chat("Hello", model="one", tools=["roll_dice"]), narrow)
    assert tools == ["roll_dice"]
    assert [each.status for each in (allowed, other_model, other_tool, neither)] == [200, 403, 403, 403]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"model": "two", "tools": ["rol_dice"]},
            'the request names a tool that is not registered; did you mean "roll_dice"?',
        ),
        ({"model": "two", "tools": ["calculat"]}, "the request names a tool that is not registered"),
        ({"model": "tow"}, 'model: must be a name from GET /v1/engines; did you mean "two"?'),
        ({"model": "onn"}, "model: must be a name from GET /v1/engines"),
    ],
)
async def test_an_unknown_name_is_answered_with_the_nearest_one_that_the_caller_may_use(
    clock: Clock, tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    allowed = ("tool:ro*", "tool:calculat", "model:tow", "model:onn", "model:two")
    narrow = Permissions.of(["can_send_messages", *allowed])
    async with service(clock, tmp_path) as (served, _, keys):
        answer = await served.post(chat("Hello", **fields), await keys.of("ann", permissions=narrow))
    assert (answer.status, answer.json["message"]) == (422, message)


async def test_a_policy_hides_the_nearest_tool_too(clock: Clock, tmp_path: Path) -> None:
    async with service(clock, tmp_path, policy={"deny": [{"tool": "roll_dice"}]}) as (served, _, keys):
        answer = await served.post(chat("Hello", tools=["rol_dice"]), await keys.of("ann"))
    assert answer.json["message"] == "the request names a tool that is not registered"


async def test_a_field_stream_is_answered_with_the_header_to_send(clock: Clock, tmp_path: Path) -> None:
    async with service(clock, tmp_path) as (served, _, keys):
        answer = await served.post(chat("Hello", stream=True), await keys.of("ann"))
    assert (answer.status, answer.json["message"]) == (
        422,
        "stream: is not a known field; send the header Accept: text/event-stream",
    )
