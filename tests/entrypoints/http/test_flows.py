"""Mode flow over HTTP: what is refused, what is shown, suspensions across restarts, forks, and changed graphs."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.http_server import HttpAnswer, RunningServer
from tests.support.portico import chat, portico

FLOWS = {"modules": ["tests.support.example_flows"]}
BIG_ORDER = {"number": "7", "amount": 500}
VIEW = "/v1/executions/q"


@pytest.fixture
def kept(tmp_path: Path) -> dict[str, Any]:
    """Return the configuration of a service with the example flows and a database file."""
    return {"storage": {"url": f"sqlite:///{tmp_path}/portico.db"}, "flows": FLOWS}


def flow(name: str, value: Any, **fields: Any) -> bytes:
    """Return the body of a request that runs a flow."""
    return orjson.dumps({"mode": "flow", "request_id": "q", "flow": {"name": name, "input": value}, **fields})


async def answer(served: RunningServer, payload: Any, tool_id: str, **fields: Any) -> HttpAnswer:
    """Answer a suspension of the execution `q`."""
    body = {"tool_id": tool_id, "payload": payload, **fields}
    return await served.post(orjson.dumps(body), path=f"{VIEW}/resume")


async def test_a_flow_shows_its_waves_and_the_node_that_ended_last() -> None:
    async with portico(flows=FLOWS) as (served, _):
        done = await served.post(flow("split-and-merge", {"text": "some words"}))
        view = (await served.get(VIEW)).json
        steps = (await served.get(f"{VIEW}/steps")).json["data"]
        trace = await served.get(f"{VIEW}/trace")
    assert (done.status, done.json["structured_output"]) == (200, {"longest": "words", "letters": 9})
    assert (view["total_steps"], view["last_step"], view["fork_points"]) == (3, "Longest+Letters", 2)
    assert [(each["kind"], each["from_step"], each["step_name"]) for each in steps] == [
        ("prepare", None, None),
        ("node", 1, "Left"),
        ("node", 1, "Right"),
    ]
    assert steps[1]["request"]["node"] == "Left"
    assert steps[1]["outcome"] == {"output": {"word": "words"}}
    assert (trace.status, trace.json["outcome"]) == (200, "COMPLETE")


async def test_a_node_that_waits_is_no_ended_wave() -> None:
    async with portico(flows=FLOWS) as (served, _):
        await served.post(flow("approval", BIG_ORDER))
        view = (await served.get(VIEW)).json
        steps = (await served.get(f"{VIEW}/steps")).json["data"]
    assert (view["state"], view["total_steps"], view["fork_points"]) == ("SUSPENDED", 0, 0)
    assert (steps[-1]["kind"], steps[-1]["outcome"].keys()) == ("node", {"question"})


async def test_a_snapshot_shows_where_a_flow_stands() -> None:
    async with portico(flows=FLOWS) as (served, _):
        asked = await served.post(flow("approval", BIG_ORDER))
        snapshot = await served.get(f"{VIEW}/snapshot")
        assert (await answer(served, {"by": "ada"}, "Invoice")).status == 200
        done = await served.get(f"{VIEW}/snapshot")
        await served.post(chat("Hello", request_id="c"))
        other = await served.get("/v1/executions/c/snapshot")
        unknown = await served.get("/v1/executions/nothing/snapshot")
    assert snapshot.status == 200
    assert snapshot.json["state"] == [["Invoice", BIG_ORDER]]
    [open_suspension] = snapshot.json["suspensions"]
    assert open_suspension["suspension_id"] == asked.json["suspensions"][0]["suspension_id"]
    assert done.json["state"] == [["Payment", {"receipt": "paid, approved by ada"}]]
    assert [(each.status, each.json["code"]) for each in (other, unknown)] == [(404, "REQUEST_NOT_FOUND")] * 2
