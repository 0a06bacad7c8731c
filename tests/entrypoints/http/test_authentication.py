"""Authentication over HTTP: challenges, keys, tokens, streams that end with a key, and secrets that go nowhere."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from portico.adapters.access.api_keys import REFRESH_INTERVAL_S, ApiKeys
from portico.adapters.access.authenticators import BearerAuthenticator
from portico.adapters.access.key_sets import FIRST_RETRY_S, KeySets
from portico.adapters.access.tokens import TokenRules, Tokens
from portico.adapters.runners.maintenance import run_maintenance
from portico.adapters.stores.access.api_keys import DatabaseKeys
from portico.adapters.stores.factory import open_beside
from portico.adapters.system import SystemClock, SystemEntropy
from portico.bootstrap.service import Service, open_service
from portico.capabilities.key_administration import KeyAdministration, KeyGrant
from portico.domain.access.api_key import ApiKey
from portico.domain.access.limits import NO_LIMITS
from portico.domain.access.principal import KEY_DEFAULT, Permission, Permissions
from portico.domain.ids import TenantId, UserId
from portico.entrypoints.http.app import create_app
from portico.ports.access import StoredKey
from portico.ports.runtime import Clock
from portico.settings import Settings
from tests.support.http_server import HttpAnswer, RunningServer, request_bytes, running_server
from tests.support.issuer import (
    AUDIENCE,
    ISSUER,
    IssuerServer,
    claims,
    ec_key,
    key_set,
    rsa_key,
    running_issuer,
    signed,
)
from tests.support.keys import MemoryKeys, api_key, stored
from tests.support.portico import EVENTS, RESPOND_ASYNC, chat, events, portico
from tests.support.server_state import wait_for_idle, wait_for_running

REVOKED_WITHIN_S = 5.0
ENGINES: dict[str, Any] = {"engines": {"rehearsal": {"model": "rehearsal://"}}}
SIGNER = rsa_key("r")


def bearer(credentials: ApiKey | str) -> dict[str, str]:
    return {"Authorization": f"Bearer {credentials.reveal() if isinstance(credentials, ApiKey) else credentials}"}


@dataclass
class Keyed:
    """A service with authentication by keys, and the administration of its keys from beside."""

    served: RunningServer
    service: Service
    keys: KeyAdministration
    folder: Path

    async def key(self, user: str = "ann", *permissions: str, days: float | None = None) -> ApiKey:
        names = Permissions.of(permissions) if permissions else KEY_DEFAULT
        return (await self.keys.create(KeyGrant(TenantId("acme"), UserId(user), names, NO_LIMITS, days)))[1]


@asynccontextmanager
async def keyed(clock: Clock, folder: Path, *, url: str | None = None, **tables: Any) -> AsyncIterator[Keyed]:
    storage = {"url": url or f"sqlite:///{folder}/portico.db"}
    entropy = SystemEntropy(clock)
    async with (
        portico(**{"auth": {"mode": "keys"}, "storage": storage} | tables) as (served, service),
        open_beside(storage["url"], clock, entropy) as database,
    ):
        yield Keyed(served, service, KeyAdministration(DatabaseKeys(database), clock, entropy), folder)


@asynccontextmanager
async def with_issuer(*keys: Any) -> AsyncIterator[tuple[IssuerServer, RunningServer]]:
    async with running_issuer(*keys) as issuer:
        auth = {"mode": "jwt", "issuer": ISSUER, "audience": AUDIENCE, "jwks_url": issuer.url}
        async with portico(auth=auth) as (served, _):
            yield issuer, served


@asynccontextmanager
async def on_virtual_time(
    clock: Clock, *stored: StoredKey, **tables: Any
) -> AsyncIterator[tuple[RunningServer, Service, MemoryKeys]]:
    """Run a service whose keys and tokens follow the virtual clock; `SIGNER` signs the tokens."""
    store = MemoryKeys(*stored)
    api_keys = ApiKeys(store, clock)

    async def fetch() -> bytes:
        return key_set(SIGNER)

    @asynccontextmanager
    async def opener(settings: Settings) -> AsyncIterator[Service]:
        key_sets = KeySets(fetch, ("RS256",), clock, lambda _: None)
        tokens = Tokens(TokenRules(ISSUER, AUDIENCE, ("RS256",)), key_sets, clock)
        async with open_service(settings) as service, anyio.create_task_group() as group:
            group.start_soon(key_sets.run)
            group.start_soon(run_maintenance, clock, (api_keys.refresh,), lambda _: None, REFRESH_INTERVAL_S)
            yield replace(service, authenticator=BearerAuthenticator(clock, api_keys, tokens))
            group.cancel_scope.cancel()

    app = create_app(Settings.model_validate({"storage": {"url": "sqlite://"}} | tables), opener)
    async with running_server(app) as served:
        yield served, app.state.service, store


def code(answer: HttpAnswer) -> tuple[int, object, str | None]:
    return answer.status, answer.json["code"], answer.headers.get("www-authenticate")


async def test_without_credentials_it_is_401_with_a_plain_challenge(clock: Clock, tmp_path: Path) -> None:
    async with keyed(clock, tmp_path) as here:
        for headers in ({}, {"Authorization": "Basic YTpi"}, {"Authorization": "ptk_x"}):
            found = await here.served.get("/v1/tools", headers)
            assert code(found) == (401, "ACCESS_UNAUTHENTICATED", 'Bearer realm="portico"')
            assert found.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("credentials", ["", "secret", "a.b.c", "ptk_abcd1234_" + "s" * 43, "é"])
async def test_with_bad_credentials_it_is_401_with_the_error(clock: Clock, tmp_path: Path, credentials: str) -> None:
    challenge = 'Bearer realm="portico", error="invalid_token"'
    async with keyed(clock, tmp_path) as here:
        found = await here.served.get("/v1/tools", bearer(credentials))
        assert code(found) == (401, "ACCESS_UNAUTHENTICATED", challenge)
        assert not credentials or credentials.encode() not in found.body


async def test_two_credentials_are_none(clock: Clock, tmp_path: Path) -> None:
    async with keyed(clock, tmp_path) as here:
        line = f"Authorization: Bearer {(await here.key()).reveal()}\r\n".encode()
        once = b"GET /v1/tools HTTP/1.1\r\nHost: localhost\r\n" + line
        assert (await here.served.ask(once + b"\r\n")).status == 200
        assert (await here.served.ask(once + line + b"\r\n")).status == 401


async def test_every_route_of_a_resource_asks_who_calls_before_anything_else(clock: Clock, tmp_path: Path) -> None:
    async with keyed(clock, tmp_path) as here:
        document = (await here.served.get("/openapi.json")).json
        secured = 0
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                found = await here.served.ask(
                    request_bytes(method.upper(), path.replace("{", "!").replace("}", ""), {}, b"garbage")
                )
                secured += "security" in operation
                assert (found.status == 401) == ("security" in operation), path
                assert (path in {"/livez", "/readyz", "/metrics"}) != ("security" in operation)
    assert secured > 20
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    assert document["servers"][0]["url"] == "/"


async def test_a_key_may_do_what_it_names_and_403_says_what_it_lacks(clock: Clock, tmp_path: Path) -> None:
    async with keyed(clock, tmp_path) as here:
        reader = await here.key("guest", Permission.VIEW_FULL_HISTORY)
        found = await here.served.post(chat("Hello"), bearer(reader))
        assert code(found) == (
            *(403, "ACCESS_DENIED"),
            'Bearer realm="portico", error="insufficient_scope", scope="can_send_messages"',
        )
        assert (await here.served.post(chat("Hello"), bearer(await here.key()))).status == 200


async def test_a_revoked_key_is_refused_and_its_streams_end_within_five_seconds(clock: Clock) -> None:
    key, other = api_key(1), api_key(2)
    async with on_virtual_time(clock, stored(key), stored(other)) as (served, service, store):
        async with served.connect() as connection:
            body = chat("[[slow:60]] Hello", request_id="slow", on_disconnect="continue")
            headers = {**bearer(key), **EVENTS, "Content-Type": "application/json"}
            await connection.send(request_bytes("POST", "/v1/execute", headers, body))
            assert (await connection.head())[0] == 200
            await clock.sleep(10)
            revoked_at = clock.monotonic()
            await store.revoke(key.key_id, clock.now())
            while await connection.chunk():
                pass
            assert clock.monotonic() - revoked_at <= REVOKED_WITHIN_S
        assert (await served.get("/v1/tools", bearer(key))).status == 401
        await wait_for_idle(service)
        shown = await served.get("/v1/executions/slow", bearer(other))
        assert shown.json["state"] == "COMPLETE"


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_revoked_key_ends_a_request_that_waits_for_a_person(clock: Clock, is_stream: bool) -> None:
    key, other = api_key(1), api_key(2)
    tables = {"policy": {"approve": [{"tool": "calculate"}]}, "ingress": {"approval_wait": 600}}
    async with on_virtual_time(clock, stored(key), stored(other), **tables) as (served, _, store):
        asked = {"model": "default", "messages": [{"role": "user", "content": "Please calculate 17*3"}]}
        body = orjson.dumps({**asked, "stream": is_stream, "portico": {"tools": ["calculate"]}})
        async with served.connect() as connection:
            headers = {**bearer(key), "Content-Type": "application/json"}
            await connection.send(request_bytes("POST", "/v1/chat/completions", headers, body))
            await clock.sleep(10)
            revoked_at = clock.monotonic()
            await store.revoke(key.key_id, clock.now())
            answer = await connection.answer()
            assert clock.monotonic() - revoked_at <= REVOKED_WITHIN_S
        await clock.sleep(1)
        [waited] = (await served.get("/v1/executions", bearer(other))).json["data"]
    error = orjson.loads(answer.body.split(b"data: ")[-1])["error"]
    assert (answer.status, error["code"]) == (200 if is_stream else 401, "invalid_api_key")
    assert waited["state"] == ("SUSPENDED" if is_stream else "CANCELLED")


async def test_a_revoked_key_ends_its_live_list_without_a_retry_line(clock: Clock) -> None:
    key = api_key(1)
    async with on_virtual_time(clock, stored(key)) as (served, _, store), served.connect() as connection:
        await connection.send(request_bytes("GET", "/v1/events", bearer(key)))
        assert (await connection.head())[0] == 200
        await clock.sleep(10)
        revoked_at = clock.monotonic()
        await store.revoke(key.key_id, clock.now())
        read = b""
        while chunk := await connection.chunk():
            read += chunk
        assert clock.monotonic() - revoked_at <= REVOKED_WITHIN_S
    assert read.startswith(b"event: ready\n")
    assert b"retry:" not in read


async def test_a_stream_goes_on_while_storage_is_down(clock: Clock) -> None:
    key = api_key(1)
    async with on_virtual_time(clock, stored(key)) as (served, _, store), served.connect() as connection:
        headers = {**bearer(key), **EVENTS, "Content-Type": "application/json"}
        await connection.send(request_bytes("POST", "/v1/execute", headers, chat("[[slow:60]] Hello")))
        assert (await connection.head())[0] == 200
        store.is_down = True
        received = b""
        while piece := await connection.chunk():
            received += piece
        assert b"event: execution.completed" in received
        assert (await served.get("/v1/tools", bearer(key))).status == 503


async def test_the_stream_of_a_token_ends_when_it_expires(clock: Clock) -> None:
    async with on_virtual_time(clock) as (served, _, _):
        token = signed(SIGNER, claims(clock.now(), exp=clock.now() - 40))
        began = clock.monotonic()
        received = events(await served.post(chat("[[slow:90]] Hello"), {**bearer(token), **EVENTS}))
        assert 19 <= clock.monotonic() - began <= 20 + REVOKED_WITHIN_S
        assert received[-1]["type"] != "execution.completed"
        assert (await served.get("/v1/tools", bearer(token))).status == 401


SLOW = {"model": "default", "messages": [{"role": "user", "content": "[[slow:90]] Hello"}]}
SLOW_INPUT = {"model": "default", "input": "[[slow:90]] Hello"}
SLOW_REQUESTS: dict[str, Any] = {
    "/v1/execute": SLOW,
    "/v1/chat/completions": SLOW,
    "/v1/messages": {**SLOW, "max_tokens": 99},
    "/v1/responses": SLOW_INPUT,
    "/v1/responses?reasoning": {**SLOW_INPUT, "store": False, "reasoning": {"summary": "auto"}},
}


async def test_requests_that_wait_for_json_are_refused_when_their_token_expires(clock: Clock) -> None:
    async with on_virtual_time(clock) as (served, service, _):
        answers: dict[str, tuple[HttpAnswer, float]] = {}
        token = signed(SIGNER, claims(clock.now(), exp=clock.now() - 40))
        began = clock.monotonic()

        async def ask(path: str) -> None:
            answer = await served.post(orjson.dumps(SLOW_REQUESTS[path]), bearer(token), path)
            answers[path] = answer, clock.monotonic() - began

        async with anyio.create_task_group() as group:
            for path in SLOW_REQUESTS:
                group.start_soon(ask, path)
        await wait_for_idle(service)
        fresh = bearer(signed(SIGNER, claims(clock.now())))
        states = [each["state"] for each in (await served.get("/v1/executions", fresh)).json["data"]]
    for path, (answer, seconds) in answers.items():
        assert (answer.status, answer.json["code"]) == (401, "ACCESS_UNAUTHENTICATED"), path
        assert 19 <= seconds <= 20 + REVOKED_WITHIN_S, path
    assert states == ["CANCELLED"] * (len(SLOW_REQUESTS) - 1)  # one is not stored


async def test_a_key_expires(clock: Clock) -> None:
    key = api_key(1)
    async with on_virtual_time(clock, stored(key, expires_at=clock.now() + 60)) as (served, _, store):
        assert (await served.get("/v1/tools", bearer(key))).status == 200
        await clock.sleep(61)
        assert (await served.get("/v1/tools", bearer(key))).status == 401
        assert [list(each) for each in store.uses] == [[key.key_id]]


async def test_revoking_a_key_with_cancel_stops_its_executions(clock: Clock, tmp_path: Path) -> None:
    async with keyed(clock, tmp_path) as here:
        key, other = await here.key(), await here.key()
        for name, owner in (("mine", key), ("other", other)):
            await here.served.post(chat("[[slow:90]] Hello", request_id=name), {**bearer(owner), **RESPOND_ASYNC})
        await clock.sleep(1)
        revoked = await here.keys.revoke(key.key_id, cancel=True)
        assert revoked is not None
        assert revoked[1] == 1
        await wait_for_idle(here.service)
        states = [
            (await here.served.get(f"/v1/executions/{name}", bearer(other))).json["state"] for name in ("mine", "other")
        ]
    assert states == ["CANCELLED", "COMPLETE"]


async def test_a_key_that_is_revoked_with_cancel_stops_what_runs_within_a_second(
    clock: Clock, tmp_path: Path, empty_database_url: str, real_time: None
) -> None:
    async with keyed(clock, tmp_path, url=empty_database_url) as here:
        key, waited = await here.key(), list[HttpAnswer]()

        async def wait() -> None:
            waited.append(await here.served.post(chat("[[slow:90]] Hello", session_id="s"), bearer(key)))

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await wait_for_running(here.service)
            await here.keys.revoke(key.key_id, cancel=True)
            with anyio.fail_after(1):
                while not waited:  # noqa: ASYNC110 - there is no event for it
                    await anyio.sleep(0.01)
    assert (waited[0].json["state"], waited[0].json["error"]["code"]) == ("CANCELLED", "CANCELLED_SIGNAL")


@pytest.mark.parametrize(("on_disconnect", "state"), [("cancel", "CANCELLED"), ("continue", "COMPLETE")])
async def test_a_request_that_waits_is_refused_when_its_key_is_revoked(
    clock: Clock, on_disconnect: str, state: str
) -> None:
    key, other = api_key(1), api_key(2)
    async with (
        on_virtual_time(clock, stored(key), stored(other)) as (served, service, store),
        served.connect() as client,
    ):
        body = chat("[[slow:60]] Hello", request_id="slow", on_disconnect=on_disconnect)
        headers = {**bearer(key), "Content-Type": "application/json"}
        await client.send(request_bytes("POST", "/v1/execute", headers, body))
        await clock.sleep(10)
        revoked_at = clock.monotonic()
        await store.revoke(key.key_id, clock.now())
        refused = await client.answer()
        assert clock.monotonic() - revoked_at <= REVOKED_WITHIN_S
        await wait_for_idle(service)
        shown = await served.get("/v1/executions/slow", bearer(other))
    assert (refused.status, refused.json["code"]) == (401, "ACCESS_UNAUTHENTICATED")
    assert shown.json["state"] == state


async def test_authentication_is_a_stage_with_its_time_for_queued_executions_too(clock: Clock, tmp_path: Path) -> None:
    async with keyed(clock, tmp_path) as here:
        headers = bearer(await here.key())
        await here.served.post(chat("Hello", request_id="now"), headers)
        await here.served.post(chat("Hello", request_id="later"), {**headers, **RESPOND_ASYNC})
        await wait_for_idle(here.service)
        for name in ("now", "later"):
            logged = events(await here.served.get(f"/v1/executions/{name}/events", headers))
            assert [(each["type"], each.get("stage")) for each in logged[:2]] == [
                ("lifecycle.transition", None),
                ("stage.end", "AuthResolve"),
            ]
            trace = (await here.served.get(f"/v1/executions/{name}/trace", headers)).json
            assert trace["stages"][0]["stage"] == "AuthResolve"
            assert trace["stages"][0]["duration_ms"] == logged[1]["duration_ms"] > 0


async def test_tokens_are_accepted_beside_keys_and_ask_their_issuer_once() -> None:
    async with with_issuer(SIGNER) as (issuer, served):
        token = signed(SIGNER, claims(SystemClock().now()))
        for _ in range(5):
            assert (await served.post(chat("Hello"), bearer(token))).status == 200
        assert len(issuer.requests) == 1
        no_scope = signed(SIGNER, claims(SystemClock().now(), scope="openid"))
        assert (await served.post(chat("Hello"), bearer(no_scope))).status == 403


async def test_keys_of_the_issuer_are_rotated_under_load_without_one_failed_request(clock: Clock) -> None:
    following = ec_key("following")
    async with with_issuer(SIGNER) as (issuer, served):
        statuses: list[int] = []

        async def ask(signer: Any) -> None:
            for _ in range(10):
                token = signed(signer, claims(SystemClock().now()))
                statuses.append((await served.get("/v1/tools", bearer(token))).status)
                await clock.sleep(0.5)

        async with anyio.create_task_group() as load:
            for _ in range(4):
                load.start_soon(ask, SIGNER)
            await clock.sleep(2)
            issuer.keys, issuer.delay = (SIGNER, following), 1.0
            for _ in range(4):
                load.start_soon(ask, following)
        assert statuses == [200] * 80
        assert len(issuer.requests) == 2


async def test_start_and_readiness_do_not_wait_for_an_issuer_that_is_down(clock: Clock) -> None:
    async with running_issuer(SIGNER) as issuer:
        issuer.status = 500
        auth = {"mode": "jwt", "issuer": ISSUER, "audience": AUDIENCE, "jwks_url": issuer.url}
        async with portico(auth=auth) as (served, _):
            assert (await served.get("/readyz")).status == 200
            token = bearer(signed(SIGNER, claims(SystemClock().now())))
            found = await served.get("/v1/tools", token)
            assert (found.status, found.json["code"]) == (503, "ACCESS_UNAVAILABLE")
            assert found.headers["x-should-retry"] == "true"
            assert int(found.headers["retry-after"]) >= 1
            assert "www-authenticate" not in found.headers
            issuer.status = 200
            await clock.sleep(FIRST_RETRY_S + 1)
            assert (await served.get("/v1/tools", token)).status == 200


async def test_metrics_are_free_on_loopback(clock: Clock, tmp_path: Path) -> None:
    async with keyed(clock, tmp_path) as here:
        assert (await here.served.get("/metrics")).status == 200


async def test_metrics_of_a_public_listener_need_a_permission(clock: Clock, tmp_path: Path) -> None:
    server = {"host": "0.0.0.0"}  # noqa: S104 - the settings say so; the test listens on loopback
    async with keyed(clock, tmp_path, server=server, **ENGINES) as here:
        assert (await here.served.get("/metrics")).status == 401
        plain, allowed = await here.key(), await here.key("prometheus", Permission.READ_METRICS)
        refused = await here.served.get("/metrics", bearer(plain))
        assert code(refused)[2] == 'Bearer realm="portico", error="insufficient_scope", scope="can_read_metrics"'
        assert (await here.served.get("/metrics", bearer(allowed))).status == 200
        assert (await here.served.get("/livez")).status == (await here.served.get("/readyz")).status == 200


async def test_with_a_port_of_their_own_metrics_are_nowhere_else(clock: Clock, tmp_path: Path) -> None:
    async with keyed(clock, tmp_path, server={"metrics_port": 9}) as here:
        assert (await here.served.get("/metrics", bearer(await here.key()))).status == 404
        assert (await here.served.get("/livez")).status == 200


async def test_a_refusal_is_one_log_line_with_the_public_id_of_the_key(
    clock: Clock, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with keyed(clock, tmp_path) as here:
        key, guest = await here.key(), await here.key("guest", Permission.VIEW_FULL_HISTORY)
        wrong = ApiKey(key.key_id, "x" * 43)
        capfd.readouterr()
        await here.served.get("/v1/tools", bearer(wrong))
        await here.served.post(chat("Hello"), bearer(guest))
        await here.served.get("/v1/tools")
    lines = [orjson.loads(line) for line in capfd.readouterr().err.splitlines() if "request.refused" in line]
    assert [(line["code"], line["principal"]) for line in lines] == [
        ("ACCESS_UNAUTHENTICATED", key.key_id),
        ("ACCESS_DENIED", guest.key_id),
        ("ACCESS_UNAUTHENTICATED", None),
    ]


async def test_no_secret_is_in_a_log_an_event_a_metric_a_file_or_an_error(
    clock: Clock, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tables = {"telemetry": {"log_level": "debug"}}
    async with keyed(clock, tmp_path, **tables) as here:
        key, revoked, guest = await here.key(), await here.key(), await here.key("guest", Permission.APPROVE)
        await here.keys.revoke(revoked.key_id, cancel=True)
        wrong = ApiKey(key.key_id, "Canary" * 7 + "c")
        token = signed(SIGNER, claims(clock.now(), note="Canary"))
        shown = bytearray()
        for credentials in (key, revoked, guest, wrong, token, key.reveal() + "x", key.secret):
            headers = bearer(credentials)
            body = chat("[[fail:500]] Hello", request_id=f"r-{len(shown)}")
            answers = [
                await here.served.post(body, headers),
                await here.served.post(chat("Hello"), {**headers, **EVENTS}),
                await here.served.get("/v1/executions", headers),
                await here.served.get("/v1/executions/none", headers),
                await here.served.post(b"{", headers),
            ]
            shown += b"".join(answer.body + repr(answer.headers).encode() for answer in answers)
        first = (await here.served.get("/v1/executions?order=asc", bearer(key))).json["data"][0]["request_id"]
        for part in ("events", "trace", "input", "steps"):
            shown += (await here.served.get(f"/v1/executions/{first}/{part}", bearer(key))).body
        shown += (await here.served.get("/metrics")).body + (await here.served.get("/docs")).body
        shown += repr((here.service.settings, await here.keys.all(None), key)).encode()
        await wait_for_idle(here.service)
    written = b"".join(map(Path.read_bytes, list(here.folder.glob("*"))))
    logged = "".join(capfd.readouterr()).encode()
    assert key.key_id.encode() in written
    assert key.key_id.encode() in logged
    secrets = [key.secret, revoked.secret, guest.secret, wrong.secret, token, token.split(".")[1], token.split(".")[2]]
    for place in (bytes(shown), written, logged):
        assert [secret for secret in secrets if secret.encode() in place] == []
