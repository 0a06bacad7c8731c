"""Values of every type of credential, which services and tools repeat: nothing that is kept or shown has one."""

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tests.entrypoints.http.test_credentials import GRANTS, MODULE, stored_bytes
from tests.support.callers import Caller, callers
from tests.support.http_server import running_server
from tests.support.portico import chat

pytestmark = pytest.mark.usefixtures("real_time")
VALUES = {
    "tracker": "of-a-user/Qx7+tok.en=~1",
    "team": "of-a-tenant/Zk9+tok.en=~2",
    "house": "of-the-service/Wv3+tok.en=~3",
    "passed": "of-a-request/Lm5+tok-en=~4",
    "fetched": "of-an-issuer/Rb8+tok-en=~5",
}
CLIENT_SECRET = "of-the-client/Hn2+secret=~6"
VIEWS = ("", "/steps", "/transcript", "/trace", "/input")


def app() -> Starlette:
    """A service that repeats what it is given, refuses some of it, and issues a token."""

    async def repeat(request: Request) -> Response:
        given = request.headers["authorization"].removeprefix("Bearer ")
        status = int(request.query_params["status"])
        texts = [given, b64encode(given.encode()).decode(), quote(given, safe=""), f"x{given}"]
        return JSONResponse(texts, status_code=status, headers={"x-given": quote(given)})

    async def token(request: Request) -> Response:
        body = (await request.body()).decode()
        if "wrong" in body:
            return PlainTextResponse(body, status_code=400)
        return JSONResponse({"access_token": VALUES["fetched"], "token_type": "Bearer", "expires_in": 3600})

    return Starlette(routes=[Route("/repeat", repeat), Route("/token", token, methods=["POST"])])


def tables(folder: Path, url: str) -> dict[str, Any]:
    folder.joinpath("house").write_text(VALUES["house"])
    folder.joinpath("client").write_text(CLIENT_SECRET)
    http = {
        f"{name}_{status}": {
            "description": "Repeat.",
            "url": f"{url}/repeat?status={status}",
            "side_effects": "read",
            "idempotent": True,
            "allow_private": True,
            "credential": name,
        }
        for name in VALUES
        for status in (200, 404, 500)
    }
    shell = {"description": "Print.", "command": ["sh", "-c", "echo $A $B; echo $A | base64 -w0; false"]}
    shell |= {"side_effects": "read", "idempotent": True, "credentials": {"A": "house", "B": "team"}}
    secret = {"type": "secret"}
    issuer = {"type": "client_credentials", "token_url": f"{url}/token", "client_id": "portico"}
    return {
        "tools": {"http": http, "cli": {"shell": shell}, "modules": ["leaking_tools"], "show_exceptions": True},
        "credentials": {
            "tracker": secret,
            "team": secret,
            "house": {**secret, "owners": ["service"], "value_file": str(folder / "house")},
            "passed": {"type": "request", "request_header": "X-Passed"},
            "fetched": {**issuer, "client_secret_file": str(folder / "client")},
        },
    }


def calls() -> list[tuple[str, dict[str, Any]]]:
    http = [(f"{name}_{status}", dict[str, Any]()) for name in VALUES for status in (200, 404, 500)]
    return [*http, ("shell", {}), *(("leak", {"how": how}) for how in ("", "error", "exception", "question"))]


def forms(value: str) -> Iterator[str]:
    """Yield the value in clear, percent-encoded, escaped in JSON and in base64, wherever it begins in a text."""
    yield from {value, quote(value, safe=""), quote(value), value.replace("/", "\\/")}
    for shift in range(3):
        yield b64encode(b"x" * shift + value.encode())[4 if shift else 0 : -4].decode()


async def seen_of(caller: Caller, body: bytes, request_id: str) -> str:
    """Return all that is shown of one execution."""
    answer = await caller.execute(body, Accept="text/event-stream", **{"X-Passed": VALUES["passed"]})
    shown = [answer.body.decode()]
    shown += [(await caller.get(f"/v1/executions/{request_id}{view}")).body.decode() for view in VIEWS]
    return "\n".join(shown)


@pytest.mark.parametrize(
    "runs", [pytest.param(20, marks=pytest.mark.seeded), pytest.param(200, marks=pytest.mark.torture)]
)
async def test_no_value_of_any_type_is_kept_or_shown_after_random_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], runs: int
) -> None:
    tmp_path.joinpath("leaking_tools.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    draw, shown, left = Random(7), list[str](), list[tuple[str, dict[str, Any]]]()
    async with running_server(app()) as upstream:
        url = f"http://127.0.0.1:{upstream.port}"
        async with callers(tmp_path, GRANTS, **tables(tmp_path, url)) as (by_name, _):
            for name, owner in (("tracker", "user"), ("team", "tenant")):
                caller = by_name["ada" if owner == "user" else "admin"]
                body = orjson.dumps({"value": VALUES[name]})
                assert (await caller.send("PUT", f"/v1/credentials/{name}?owner={owner}", body)).status == 204
            for number in range(runs):
                left = left or draw.sample(calls(), len(calls()))
                tool, arguments = left.pop()
                step = {"name": "s", "type": "tool", "input": {"name": tool, "arguments": arguments}}
                fields: dict[str, Any] = {"mode": "plan", "plan": {"steps": [step]}, "request_id": f"r{number}"}
                shown.append(await seen_of(by_name["ada"], chat("go", **fields), f"r{number}"))
            for path in ("/v1/credentials", "/v1/suspensions", "/v1/executions?view=summary"):
                shown.append((await by_name["ada"].get(path)).body.decode())
    captured = capfd.readouterr()
    whole = "\n".join([*shown, captured.out, captured.err]) + stored_bytes(tmp_path).decode("latin-1")
    assert whole.count("[credential tracker]") > runs // 10
    assert {name for name in VALUES if f"[credential {name}]" in whole} == set(VALUES)
    found = [form for value in (*VALUES.values(), CLIENT_SECRET) for form in forms(value) if form in whole]
    assert found == []
