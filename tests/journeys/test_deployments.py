"""Three keys of one engine in a whole service: one is revoked, one is rate-limited, and no request fails."""

import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.http_server import RunningServer
from tests.support.portico import JSON_BODY, chat, portico
from tests.support.scripted_provider import answered
from tests.support.upstream import ScriptedUpstream, reply

EXECUTIONS = 60
KEYS = {name: f"sk-secret-of-{name}" for name in ("revoked", "limited", "good")}


async def deployments_of(served: RunningServer, query: str = "") -> dict[str, Any]:
    answer = await served.get(f"/v1/engines{query}")
    assert "sk-secret" not in answer.body.decode()
    [engine] = answer.json["data"]
    return {each["name"]: each for each in engine["deployments"]}


async def answer_all(served: RunningServer, count: int) -> list[dict[str, Any]]:
    """Return the responses of concurrent requests, none of which may have failed."""
    responses: list[dict[str, Any]] = []

    async def run(number: int) -> None:
        answer = await served.post(chat(f"question {number}"), JSON_BODY)
        assert (answer.status, answer.json["state"]) == (200, "COMPLETE"), answer.body
        responses.append(answer.json)

    async with anyio.create_task_group() as group:
        for number in range(count):
            group.start_soon(run, number)
    return responses


async def test_a_revoked_and_a_limited_key_reach_no_user_and_a_new_key_is_used_at_once(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in KEYS}
    for name, file in files.items():
        file.write_text(KEYS[name])
    scripts = {
        "revoked": [reply({"error": {"code": "invalid_api_key"}}, status=401), answered("Hello")],
        "limited": [reply({"error": {"code": "rate_limit_exceeded"}}, status=429, headers={"Retry-After": "30"})],
        "good": [answered("Hello")],
    }
    async with AsyncExitStack() as stack:
        upstreams = {
            name: await stack.enter_async_context(ScriptedUpstream(*script)) for name, script in scripts.items()
        }
        tables = {name: {"base_url": upstreams[name].url, "api_key_file": str(file)} for name, file in files.items()}
        engine = {"model": "openai://scripted", "vendor": "generic", "deployments": tables}
        served, _ = await stack.enter_async_context(portico(engines={"main": engine}))
        for _ in range(20):
            await answer_all(served, 1)
        responses = await answer_all(served, EXECUTIONS)
        assert {each["metadata"]["deployment"] for each in responses} == {"good"}
        assert (len(upstreams["revoked"].requests), len(upstreams["limited"].requests)) == (1, 1)
        assert upstreams["revoked"].requests[0].headers["authorization"] == f"Bearer {KEYS['revoked']}"

        seen = await deployments_of(served, "?view=health")
        assert {name: (each["state"], each["reason"]) for name, each in seen.items()} == {
            "revoked": ("refused", "credentials"),
            "limited": ("resting", "rate_limited"),
            "good": ("available", None),
        }
        assert seen["good"]["health"]["attempts"] == 20 + EXECUTIONS
        assert seen["revoked"]["health"]["failures"] == 1
        metrics = (await served.get("/metrics")).body.decode()
        assert 'portico_deployment_state{deployment="revoked",provider="main",state="refused"} 1' in metrics
        assert "sk-secret" not in metrics

        files["revoked"].write_text("sk-secret-rotated")
        os.utime(files["revoked"], ns=(1, 1))
        assert (await deployments_of(served))["revoked"]["state"] == "available"
        await answer_all(served, 20)
        assert upstreams["revoked"].requests[-1].headers["authorization"] == "Bearer sk-secret-rotated"


@pytest.mark.parametrize("query", ["", "?view=health"])
async def test_an_engine_without_deployments_shows_none(query: str) -> None:
    async with portico() as (served, _):
        [engine] = (await served.get(f"/v1/engines{query}")).json["data"]
        assert "deployments" not in engine
