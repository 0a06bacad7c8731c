"""Mode flow over HTTP: what is refused, what is shown, suspensions across restarts, forks, and changed graphs."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import pytest
from anyio import sleep_forever
from pydantic import BaseModel

from portico.bootstrap.service import open_service
from portico.domain.failures import ConfigurationFailure
from portico.orchestration.flow import AgentConfig, Context, FlowDefinition, FlowGraph
from portico.settings import Settings
from tests.support.http_server import HttpAnswer, RunningServer
from tests.support.portico import EVENTS, RESPOND_ASYNC, chat, events, portico, send_command
from tests.support.server_state import wait_for_idle, wait_for_running

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


async def test_an_approval_is_given_after_a_restart_and_only_once(kept: dict[str, Any]) -> None:
    async with portico(**kept) as (served, _):
        asked = await served.post(flow("approval", BIG_ORDER))
        assert (asked.status, asked.json["suspensions"][0]["tool_id"]) == (202, "Invoice")
    async with portico(**kept) as (served, _):
        wrong = await answer(served, {"by": "ada"}, "Approved")
        misfit = await answer(served, {"by": 7}, "Invoice")
        unchanged = (await served.get(VIEW)).json
        done = await answer(served, {"by": "ada"}, "Invoice")
        twice = await answer(served, {"by": "bob"}, "Invoice")
        replayed = await send_command(served, "replay")
        resumed = events(await served.get(f"{VIEW}/events"))
    assert (wrong.status, wrong.json["code"]) == (409, "REQUEST_RESUME_MISMATCH")
    assert (misfit.status, misfit.json["code"]) == (422, "REQUEST_INVALID")
    assert [each["field"] for each in misfit.json["details"]["errors"]] == ["payload.by"]
    assert (unchanged["state"], len(unchanged["suspensions"])) == ("SUSPENDED", 1)
    assert (done.status, done.json["structured_output"]) == (200, {"receipt": "paid, approved by ada"})
    assert (done.json["content"], done.json["mode"]) == ('{"receipt":"paid, approved by ada"}', "flow")
    assert (twice.status, twice.json["code"]) == (409, "REQUEST_RESUME_UNEXPECTED")
    assert replayed.json["identical"] is True
    assert [(each["node"], each["outcome"]) for each in resumed if each["type"] == "flow.step"] == [
        ("Invoice", "suspend"),
        ("Invoice", "continue"),
        ("Approved", "continue"),
        ("Payment", "done"),
    ]


async def test_an_answer_before_the_question_is_refused(kept: dict[str, Any]) -> None:
    async with portico(**kept) as (served, _):
        await served.post(flow("linear", {"text": "a b"}))
        late = await answer(served, {"count": 1}, "Words")
    assert (late.status, late.json["code"]) == (409, "REQUEST_RESUME_UNEXPECTED")


async def test_what_no_flow_takes_is_refused_before_anything_runs() -> None:
    async with portico(flows=FLOWS) as (served, _):
        unknown = await served.post(flow("nothing", {}))
        missing = await served.post(flow("approval", {"number": 7}))
        without = await served.post(orjson.dumps({"mode": "flow", "request_id": "q"}))
        shown = await served.get(VIEW)
    assert (unknown.status, unknown.json["code"]) == (422, "CONFIG_FLOW_INVALID")
    assert "GET /v1/flows" in unknown.json["message"]
    assert [each["field"] for each in missing.json["details"]["errors"]] == ["flow.input.number", "flow.input.amount"]
    assert (without.status, [each["field"] for each in without.json["details"]["errors"]]) == (422, ["flow"])
    assert shown.status == 404


async def test_a_flow_in_the_background_streams_its_steps(kept: dict[str, Any]) -> None:
    async with portico(**kept) as (served, service):
        accepted = await served.post(flow("debate", {"claim": "c"}), RESPOND_ASYNC)
        streamed = events(await served.get(f"{VIEW}/events"))
        await wait_for_idle(service)
        metrics = await served.get("/metrics")
        live = events(await served.post(flow("linear", {"text": "a b"}, request_id="live"), EVENTS))
    assert accepted.status == 202
    assert [each["type"] for each in streamed][-1] == "execution.completed"
    assert [each["node"] for each in streamed if each["type"] == "flow.step"] == [
        "Claim",
        *["Argument", "Objection"] * 2,
        "Argument",
        "Verdict",
    ]
    assert [each["node"] for each in live if each["type"] == "node.start"] == ["Text", "Words"]
    assert metrics.status == 200


async def test_a_flow_is_forked_from_any_wave(kept: dict[str, Any]) -> None:
    async with portico(**kept) as (served, _):
        first = await served.post(flow("nested", {"text": "7", "amount": 5}))
        points = (await served.get(VIEW)).json["fork_points"]
        for step in range(points + 1):
            body = orjson.dumps({"from_step": step})
            forked = await served.post(body, path=f"{VIEW}/fork")
            assert (forked.status, forked.json["structured_output"]) == (200, first.json["structured_output"])
            again = await send_command(served, "replay", forked.json["request_id"])
            assert again.json["identical"] is True
        beyond = await served.post(orjson.dumps({"from_step": points + 1}), path=f"{VIEW}/fork")
        asked = {"from_step": 0, "overrides": {"messages": [{"role": "user", "content": "Hello"}]}}
        with_messages = await served.post(orjson.dumps(asked), path=f"{VIEW}/fork")
    assert (points, beyond.status) == (3, 422)
    assert (with_messages.status, with_messages.json["code"]) == (422, "REQUEST_INVALID")


async def test_a_suspended_flow_is_cancelled() -> None:
    async with portico(flows=FLOWS) as (served, _):
        await served.post(flow("approval", BIG_ORDER))
        assert (await send_command(served, "cancel")).status == 202
        assert events(await served.get(f"{VIEW}/events"))[-1]["type"] == "execution.cancelled"
        view = (await served.get(VIEW)).json
        late = await answer(served, {"by": "ada"}, "Invoice")
        snapshot = await served.get(f"{VIEW}/snapshot")
    assert (view["state"], view["suspensions"]) == ("CANCELLED", [])
    assert (late.status, late.json["code"]) == (409, "REQUEST_RESUME_UNEXPECTED")
    assert (snapshot.status, snapshot.json["state"]) == (200, [["Invoice", BIG_ORDER]])


class Invoice(BaseModel):
    """An invoice, which has changed since."""

    number: int


class Payment(BaseModel):
    receipt: str


async def pay(invoice: Invoice, context: Context) -> Payment:
    """Wait until the service stops."""
    await sleep_forever()
    return Payment(receipt="never")


async def pay_at_once(invoice: Invoice, context: Context) -> Payment:
    return Payment(receipt=str(invoice.number))


def invoices(*functions: Any) -> FlowDefinition[Any, Any]:
    """Return a flow `approval` of these functions, which is another one than that of the examples."""

    def build() -> FlowGraph[Any, Any]:
        builder = FlowGraph.builder(Invoice, Payment)
        for function in functions:
            builder = builder.work(function, idempotent=function is pay)
        return builder.build()

    return FlowDefinition("approval", build)


def writer(model: str, *tools: str) -> FlowDefinition[Any, Any]:
    """Return a flow with an agent that asks this model and holds these tools."""
    config = AgentConfig("Write.", model).with_tools(tools) if tools else AgentConfig("Write.", model)
    return FlowDefinition("approval", FlowGraph.builder(Invoice, Payment).agent(Invoice, Payment, config).build)


async def refusal_at_start(code: str, flows: dict[str, Any]) -> str:
    """Return the message with which the service refuses to start."""
    settings = Settings.model_validate({"storage": {"url": "sqlite://"}, "flows": flows})
    refusals: list[BaseException] = []
    try:
        async with open_service(settings):
            pass
    except* ConfigurationFailure as group:
        refusals.append(group)
    while isinstance(refusals[0], BaseExceptionGroup):
        refusals = list(refusals[0].exceptions)
    [refusal] = refusals
    assert isinstance(refusal, ConfigurationFailure)
    assert refusal.code == code
    return refusal.message


def install(name: str, *definitions: FlowDefinition[Any, Any]) -> dict[str, Any]:
    """Make an importable module of these flows, and return the table of the configuration that loads it."""
    module = ModuleType(name)
    for number, definition in enumerate(definitions):
        setattr(module, f"flow_{number}", definition)
    sys.modules[name] = module
    return {"modules": [name]}


async def test_a_suspended_flow_whose_graph_has_changed_stays_suspended_until_the_graph_is_back(
    kept: dict[str, Any],
) -> None:
    async with portico(**kept) as (served, _):
        await served.post(flow("approval", BIG_ORDER))
    changed = install("changed_flows", invoices(pay_at_once))
    for flows in (changed, {}):
        async with portico(**kept | {"flows": flows}) as (served, _):
            refused = await answer(served, {"by": "ada"}, "Invoice")
            snapshot = await served.get(f"{VIEW}/snapshot")
            assert [(each.status, each.json["code"]) for each in (refused, snapshot)] == [
                (409, "STORAGE_SNAPSHOT_INVALID")
            ] * 2
            assert (await served.get(VIEW)).json["state"] == "SUSPENDED"
            assert (await served.get(f"{VIEW}/steps")).status == 200
    async with portico(**kept) as (served, _):
        assert (await answer(served, {"by": "ada"}, "Invoice")).json["state"] == "COMPLETE"


async def test_a_running_flow_that_a_changed_graph_takes_over_ends_with_its_record_kept(kept: dict[str, Any]) -> None:
    kept["server"] = {"drain_seconds": 0.1}
    before = install("earlier_flows", invoices(pay))
    async with portico(**kept | {"flows": before}) as (served, service):
        await served.post(flow("approval", {"number": 7}), RESPOND_ASYNC)
        await wait_for_running(service)
    after = install("later_flows", invoices(pay_at_once))
    async with portico(**kept | {"flows": after}) as (served, service):
        await wait_for_idle(service)
        view = (await served.get(VIEW)).json
        logged = events(await served.get(f"{VIEW}/events"))
    assert (view["state"], view["last_error"]["code"]) == ("ERROR", "STORAGE_SNAPSHOT_INVALID")
    assert [each["type"] for each in logged][-1] == "execution.failed"


@pytest.mark.parametrize(
    ("definitions", "code", "message"),
    [
        ([], "CONFIG_INVALID", "broken_flows registers no flow"),
        ([invoices(pay), invoices(pay)], "CONFIG_FLOW_INVALID", "another flow has this name"),
        ([invoices()], "CONFIG_FLOW_INVALID", "the flow approval cannot be used: "),
        ([writer("unknown")], "CONFIG_FLOW_INVALID", "Invoice: its model unknown is no route and no engine"),
        ([writer("default", "unknown")], "CONFIG_FLOW_INVALID", "Invoice: its tool unknown is not registered"),
    ],
    ids=["no flow", "two of one name", "not valid", "unknown model", "unknown tool"],
)
async def test_flows_that_cannot_be_served_stop_the_start(definitions: Any, code: str, message: str) -> None:
    flows = install("broken_flows", *definitions)
    assert message in await refusal_at_start(code, flows)


async def test_a_module_that_cannot_be_imported_stops_the_start() -> None:
    assert "no_such_flows cannot be imported" in await refusal_at_start(
        "CONFIG_INVALID", {"modules": ["no_such_flows"]}
    )
