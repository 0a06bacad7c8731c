"""Several replica processes on one PostgreSQL: killed, paused, disconnected, and asked the same at once."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import mcp
import orjson
import pytest
from anyio import to_thread
from mcp.types import ElicitResult, InputRequiredResult

from tests.support.browser import TOOLS
from tests.support.http_server import HttpAnswer, RunningServer, request_bytes
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.postgres_proxy import postgres_proxy
from tests.support.replica_processes import (
    TERMINAL,
    ReplicaProcess,
    ask_each,
    get_execution,
    read_event_log,
    run_replicas,
    wait_until,
)

EXECUTIONS = 100


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


def chat(text: str, request_id: str, **fields: Any) -> bytes:
    return orjson.dumps({"request_id": request_id, "messages": [{"role": "user", "content": text}]} | fields)


async def logs_of(served: RunningServer, names: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Read the logs of these executions concurrently."""
    logs: dict[str, list[dict[str, Any]]] = {}

    async def read(name: str) -> None:
        logs[name] = await read_event_log(served, name)

    async with anyio.create_task_group() as group:
        for name in names:
            group.start_soon(read, name)
    return logs


def faults_of(log: list[dict[str, Any]]) -> list[str]:
    """Return the faults of a finished log."""
    numbers = [event["sequence_number"] for event in log]
    types = Counter(event["type"] for event in log)
    faults = [] if numbers == list(range(1, len(log) + 1)) else [f"numbers {numbers}"]
    faults += [] if sum(types[each] for each in TERMINAL) == 1 else ["not one terminal event"]
    faults += [] if log[-1]["type"] == "execution.completed" else [log[-1]["type"]]
    return faults + ([] if types["tool.end"] == types["tool.start"] == 1 else [f"tools {types}"])


async def test_a_killed_replica_loses_none_of_a_hundred_executions(server: PostgresServer, tmp_path: Path) -> None:
    names = [f"kill-{number}" for number in range(EXECUTIONS)]
    async with run_replicas(server.url, tmp_path, 3) as fleet:
        await wait_until(lambda: _see_each_other(fleet.replicas))
        answers = await ask_each(
            fleet.proxy, [chat("[[slow:2]] Please calculate 17*3", name) for name in names], at_once=20
        )
        assert {answer.status for answer in answers} == {202}
        async with anyio.create_task_group() as group:
            group.start_soon(_kill_busy_replica, fleet.replicas)
            logs = await logs_of(fleet.proxy, names)
        counted = {(await get_execution(fleet.proxy, name))["state"] for name in names}
    assert {name: faults for name, log in logs.items() if (faults := faults_of(log))} == {}
    assert counted == {"COMPLETE"}


async def test_a_paused_replica_adds_nothing_to_an_execution_that_another_took_over(
    server: PostgresServer, tmp_path: Path
) -> None:
    async with run_replicas(server.url, tmp_path, 2) as fleet:
        paused, other = fleet.replicas
        answers: list[HttpAnswer] = []

        async def ask() -> None:
            body = chat("[[slow:3]] Please calculate 17*3", "paused")
            answers.append(await paused.served.post(body, {"Idempotency-Key": "paused"}))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await wait_until(lambda: _is(other.served, "paused", "EXECUTE"))
            paused.pause()
            await wait_until(lambda: _is(other.served, "paused", "COMPLETE"))
            paused.wake()
        log = await read_event_log(paused.served, "paused")
        seen = [await get_execution(each.served, "paused") for each in fleet.replicas]
    assert [(answer.status, answer.json["error"]["code"]) for answer in answers] == [(503, "STORAGE_UNAVAILABLE")]
    assert faults_of(log) == []
    assert seen[0] == seen[1]


async def test_executions_survive_a_restart_of_the_database(server: PostgresServer, tmp_path: Path) -> None:
    names = [f"restart-{number}" for number in range(20)]
    async with run_replicas(server.url, tmp_path, 2) as fleet:
        await ask_each(fleet.proxy, [chat("[[slow:2]] Please calculate 17*3", name) for name in names], at_once=10)
        await _busy_replica(fleet.replicas)
        await to_thread.run_sync(server.restart)
        logs = await logs_of(fleet.proxy, names)
        await wait_until(lambda: _is_ready(fleet.proxy))
    assert {name: faults for name, log in logs.items() if (faults := faults_of(log))} == {}


@pytest.mark.parametrize("outage", ["refusing", "silent"])
async def test_turns_that_wait_for_their_session_survive_an_outage_of_the_database(
    server: PostgresServer, tmp_path: Path, outage: str
) -> None:
    """During the outage, a request is answered within the statement timeout, plus two seconds for a busy machine."""
    names = [f"{outage}-{number}" for number in range(6)]
    waiting = {"session_id": outage, "if_session_busy": "enqueue", "background": True}
    async with (
        postgres_proxy(server.url, tmp_path) as proxy,
        run_replicas(proxy.url, tmp_path, 1, statement_timeout=3) as fleet,
    ):
        served = fleet.replicas[0].served
        for name in names:
            assert (await served.post(chat("[[slow:1]] Hello", name, **waiting))).status == 202
        await wait_until(lambda: _is(served, names[0], "EXECUTE"))
        setattr(proxy, outage, True)
        proxy.cut()
        with anyio.fail_after(5):
            refused = await served.post(chat("Hello", "refused", session_id="another"))
        ready = await served.get("/readyz")
        setattr(proxy, outage, False)
        await wait_until(lambda: _is_ready(served))
        logs = await logs_of(served, names)
    assert (refused.status, refused.json["code"]) == (503, "STORAGE_UNAVAILABLE")
    assert (ready.status, ready.json) == (503, {"ready": False, "reason": "storage"})
    assert {log[-1]["type"] for log in logs.values()} == {"execution.completed"}


async def test_concurrent_answers_and_cancels_on_two_replicas_take_effect_once(
    server: PostgresServer, tmp_path: Path
) -> None:
    async with run_replicas(server.url, tmp_path, 2) as fleet:
        one, other = (each.served for each in fleet.replicas)
        asked = await one.post(chat('Use ask_person: "May I?"', "asked"))
        answers = await _both(one, other, "resume", {"tool_id": "ask_person", "payload": "yes"}, "asked")
        log = await read_event_log(other, "asked")
        await one.post(chat("[[slow:300]] Hello", "endless"), {"Prefer": "respond-async"})
        await wait_until(lambda: _is(other, "endless", "EXECUTE"))
        cancels = await _both(one, other, "cancel", None, "endless")
        ended = await read_event_log(other, "endless")
    assert asked.status == 202
    assert sorted(answer.status for answer in answers) == [200, 409]
    assert [event["type"] for event in log].count("execution.resumed") == 1
    assert faults_of(log) == []
    assert {answer.status for answer in cancels} <= {200, 202}
    assert ended[-1]["type"] == "execution.cancelled"


async def test_an_approval_asked_over_mcp_is_answered_at_the_other_replica_behind_a_kill(
    server: PostgresServer, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(TOOLS)
    (tmp_path / "portico.toml").write_text('[tools]\nmodules = ["shop"]\n[mcp]\nenabled = true\n')
    call: Any = "execute", {"message": "Refund with refund, order 7."}

    async def never(*_: Any) -> ElicitResult:
        raise AssertionError("the client is not asked form by form")

    async with run_replicas(server.url, tmp_path, 2) as fleet:
        first, other = fleet.replicas
        async with mcp.Client(f"{first.served.url}/mcp", mode="auto", elicitation_callback=never) as client:
            asked = await client.session.call_tool(*call, allow_input_required=True)
        first.kill()
        assert isinstance(asked, InputRequiredResult)
        [name] = asked.input_requests or {}
        answers: Any = {name: ElicitResult(action="accept", content={"decision": "approve"})}
        async with mcp.Client(f"{other.served.url}/mcp", mode="auto", elicitation_callback=never) as client:
            done = await client.session.call_tool(*call, input_responses=answers, request_state=asked.request_state)
            again = await client.session.call_tool(*call, input_responses=answers, request_state=asked.request_state)
        replayed = await other.served.post(b"", path=f"/v1/executions/{asked.request_state}/replay")
    assert done.structured_content is not None
    assert (done.structured_content["state"], again.structured_content) == ("COMPLETE", done.structured_content)
    assert (tmp_path / "refunds.txt").read_text() == "7\n"
    assert replayed.json["identical"]


async def _kill_busy_replica(fleet: list[ReplicaProcess]) -> None:
    (await _busy_replica(fleet)).kill()


async def _busy_replica(fleet: list[ReplicaProcess]) -> ReplicaProcess:
    """Wait until some replica runs an execution and return it; any of them may take queued work."""
    working: list[ReplicaProcess] = []

    async def found() -> bool:
        working.extend([each for each in fleet if await _runs(each.served)])
        return bool(working)

    await wait_until(found)
    return working[0]


async def _runs(served: RunningServer) -> bool:
    exposed = (await served.get("/metrics")).body.decode()
    return "portico_executions_in_flight 0" not in exposed


async def _is(served: RunningServer, request_id: str, state: str) -> bool:
    return (await get_execution(served, request_id)).get("state") == state


async def _is_ready(served: RunningServer) -> bool:
    return (await served.get("/readyz")).status == 200


async def _see_each_other(replicas: list[ReplicaProcess]) -> bool:
    """Return True once each replica counts all of them, each under a name of its own."""
    callers = [(await each.served.get("/v1/me")).json for each in replicas]
    names = {each["replica"] for each in callers}
    return len(names) == len(replicas) and all(each["replicas"] == len(replicas) for each in callers)


async def _both(
    one: RunningServer, other: RunningServer, command: str, body: object, request_id: str
) -> list[HttpAnswer]:
    """Send the same request to two replicas concurrently and return their answers."""
    answers: list[HttpAnswer] = []
    path = f"/v1/executions/{request_id}/{command}"

    async def ask(served: RunningServer) -> None:
        if body is None:
            answers.append(await served.ask(request_bytes("POST", path, {})))
        else:
            answers.append(await served.post(orjson.dumps(body), path=path))

    async with anyio.create_task_group() as group:
        group.start_soon(ask, one)
        group.start_soon(ask, other)
    return answers
