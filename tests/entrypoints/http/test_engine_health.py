"""`GET /v1/engines?view=health`: the last hour of each engine, and who may read it."""

from datetime import UTC, datetime
from pathlib import Path

from portico.adapters.stores.access.api_keys import DatabaseKeys
from portico.adapters.stores.factory import open_beside
from portico.adapters.system import SystemEntropy
from portico.capabilities.key_administration import KeyAdministration, KeyGrant
from portico.domain.access.limits import NO_LIMITS
from portico.domain.access.principal import KEY_DEFAULT, Permission, Permissions
from portico.domain.ids import TenantId, UserId
from portico.ports.runtime import Clock
from tests.support.portico import chat, portico

HEALTH = "/v1/engines?view=health"
ENGINES = {
    "absent": {"model": "openai://some-model", "base_url": "http://127.0.0.1:9/v1"},
    "good": {"model": "rehearsal://"},
}


async def test_attempts_and_failures_of_each_engine_are_added_up() -> None:
    tables = {"engines": ENGINES, "routes": {"default": ["absent", "good"]}, "failover": {"breaker_failures": 1}}
    async with portico(**tables) as (served, _):
        fresh = (await served.get(HEALTH)).json["data"]
        assert (await served.post(chat("Hello"))).status == 200
        shown = (await served.get(HEALTH)).json["data"]
        replica = (await served.get("/v1/me")).json["replica"]
        plain = (await served.get("/v1/engines")).json["data"]
    for engine in fresh:
        health = engine["health"]
        assert (health["attempts"], health["codes"], health["p50_ms"], health["buckets"]) == (0, {}, None, [])
    absent, good = (engine["health"] for engine in shown)
    assert (absent["attempts"], absent["failures"], absent["codes"]) == (1, 1, {"INFERENCE_MODEL_UNAVAILABLE": 1})
    assert absent["p50_ms"] is None
    assert (good["attempts"], good["failures"], good["codes"]) == (1, 0, {})
    assert good["p50_ms"] == good["p95_ms"] > 0
    (bucket,) = good["buckets"]
    assert (bucket["attempts"], bucket["failures"]) == (1, 0)
    assert bucket["start"].endswith(":00Z")
    assert absent["replica"] == good["replica"] == replica
    assert (shown[0]["breaker"], good["breaker_since"]) == ("open", None)
    times = [datetime.fromisoformat(absent[name]) for name in ("since", "breaker_since")]
    assert times == sorted(times)
    assert times[1] <= datetime.now(UTC)
    assert [{key: each for key, each in engine.items() if key != "health"} for engine in shown] == plain


async def test_an_unknown_view_or_parameter_is_refused_by_name() -> None:
    async with portico() as (served, _):
        refused = [await served.get(f"/v1/engines?{query}") for query in ("view=full", "views=health")]
    assert [answer.status for answer in refused] == [422, 422]
    fields = [[each["field"] for each in answer.json["details"]["errors"]] for answer in refused]
    assert fields == [["view"], ["views"]]


async def test_health_needs_the_permission_for_metrics_and_the_plain_list_does_not(
    clock: Clock, tmp_path: Path
) -> None:
    storage, entropy = {"url": f"sqlite:///{tmp_path}/portico.db"}, SystemEntropy(clock)
    reader = Permissions.of([*KEY_DEFAULT.narrowed("model", ["good"]).names, Permission.READ_METRICS])
    async with (
        portico(auth={"mode": "keys"}, storage=storage, engines=ENGINES) as (served, _),
        open_beside(storage["url"], clock, entropy) as database,
    ):
        administration = KeyAdministration(DatabaseKeys(database), clock, entropy)
        headers = []
        for permissions in (KEY_DEFAULT, reader):
            grant = KeyGrant(TenantId("acme"), UserId("ada"), permissions, NO_LIMITS, None)
            key = (await administration.create(grant))[1].reveal()
            headers.append({"Authorization": f"Bearer {key}"})
        refused, allowed = [await served.get(HEALTH, each) for each in headers]
        plain, anonymous = await served.get("/v1/engines", headers[0]), await served.get(HEALTH)
    assert (refused.status, refused.json["code"]) == (403, "ACCESS_DENIED")
    assert refused.json["details"] == {"permission": "can_read_metrics"}
    assert (plain.status, anonymous.status) == (200, 401)
    assert all("health" not in engine for engine in plain.json["data"])
    assert [engine["name"] for engine in allowed.json["data"]] == ["good"]
