"""Forks: executions that start with the steps of another one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from portico.domain.access.principal import Principal
from portico.orchestration.runtime.fork import ForkRequest
from tests.support.http_server import HttpAnswer, RunningServer
from tests.support.portico import (
    ASK_PERSON,
    EVENTS,
    RESPOND_ASYNC,
    chat,
    events,
    portico,
    resume,
    send_command,
    sequence_numbers,
)
from tests.support.server_state import wait_for_idle, wait_for_running

CALL = {"tool_calls": [{"name": "calculate", "arguments": {"expression": "17*3"}}]}
QUOTE = "/v1/executions/q/fork/quote"


async def fork(
    served: RunningServer,
    from_step: Any,
    headers: dict[str, str] | None = None,
    origin: str = "q",
    session_id: object = None,
    **overrides: Any,
) -> HttpAnswer:
    """Fork the execution `q`, unless another is named."""
    asked = {"from_step": from_step} | ({} if session_id is None else {"session_id": session_id})
    body = orjson.dumps(asked | ({"overrides": overrides} if overrides else {}))
    return await served.post(body, headers, path=f"/v1/executions/{origin}/fork")


@asynccontextmanager
async def scripted(tmp_path: Path, **scripts: list[dict[str, Any]]) -> AsyncIterator[RunningServer]:
    """Run a service whose named engines answer from these scripts; the first one has answered `q`."""
    engines = {}
    for name, replies in scripts.items():
        (tmp_path / f"{name}.json").write_bytes(orjson.dumps(replies))
        engines[name] = {"model": f"scripted:///{tmp_path}/{name}.json"}
    async with portico(engines=engines, routes={"default": [next(iter(scripts))]}) as (served, _):
        await served.post(chat("What is 17*3?", request_id="q"))
        yield served


async def log(served: RunningServer, request_id: str) -> list[dict[str, Any]]:
    return events(await served.get(f"/v1/executions/{request_id}/events"))


def comparable(log: list[dict[str, Any]], *kinds: str) -> list[tuple[Any, ...]]:
    """Return the fields of events of these types, without those that differ between executions."""
    own = {
        "request_id",
        "trace_id",
        "span_id",
        "parent_span_id",
        "caused_by",
        "timestamp",
        "sequence_number",
        "response",
    }
    return [tuple((name, each[name]) for name in each if name not in own) for each in log if each["type"] in kinds]


async def test_a_fork_inherits_the_steps_before_it_and_runs_the_next_one_again(tmp_path: Path) -> None:
    async with scripted(tmp_path, a=[CALL, {"text": "first"}, {"text": "second"}]) as served:
        forked = await fork(served, 2)
        name = forked.json["request_id"]
        shown, origin = [(await served.get(f"/v1/executions/{each}")).json for each in (name, "q")]
        logs = [await log(served, each) for each in (name, "q")]
        replayed = (await send_command(served, "replay", name)).json
    assert (forked.status, forked.json["state"], forked.json["content"]) == (200, "COMPLETE", "second")
    assert (origin["response"]["content"], shown["response"]) == ("first", forked.json)
    assert forked.json["tool_calls_made"] == origin["response"]["tool_calls_made"]
    assert forked.json["metadata"]["durability"] == "journaled"
    assert name != "q"
    for kinds in (("tool.start", "tool.end"), ("inference.start",)):
        assert comparable(logs[0], *kinds)[:2] == comparable(logs[1], *kinds)[:2]
    own_authentication = 1
    stages = [comparable(each, "stage.end")[own_authentication:4] for each in logs]
    assert stages[0] == stages[1]
    assert sequence_numbers(logs[0]) == list(range(1, len(logs[0]) + 1))
    assert {each["request_id"] for each in logs[0]} == {name}
    assert {each["caused_by"] for each in logs[0] if each["type"] == "lifecycle.transition"} == {"q"}
    assert {each["trace_id"] for each in logs[0]}.isdisjoint(each["trace_id"] for each in logs[1])
    assert replayed["identical"] is True
    for each in (shown, origin):
        assert (each["total_steps"], each["last_step"], each["fork_points"]) == (2, "round 2", 2)


COUNTED = ("inferences", "tokens", "tool_calls", "fallback_transitions", "inference_duration_seconds_count")


async def counted(served: RunningServer) -> dict[str, float]:
    """Return the metrics of executions by series."""
    lines = (await served.get("/metrics")).body.decode().splitlines()
    ours = [line.rsplit(" ", 1) for line in lines if line.startswith(tuple(f"portico_{name}" for name in COUNTED))]
    return {series: float(value) for series, value in ours if "_created" not in series}


async def test_inherited_events_are_in_the_log_but_not_in_the_metrics(tmp_path: Path) -> None:
    usage = [{"usage": {"input_tokens": each, "output_tokens": 1, "total_tokens": each + 1}} for each in (100, 20, 3)]
    replies = [CALL, {"text": "first"}, {"text": "second"}]
    async with scripted(tmp_path, a=[reply | used for reply, used in zip(replies, usage, strict=True)]) as served:
        once = await counted(served)
        name = (await fork(served, 2)).json["request_id"]
        twice = await counted(served)
        types = {each["type"] for each in await log(served, str(name))}
    fresh = {series: twice[series] - value for series, value in once.items()}
    assert twice.keys() == once.keys()
    assert {"inference.end", "tool.end", "fallback.transition"} <= types
    assert [value for series, value in fresh.items() if "tool_calls_total" in series] == [0.0]
    inferences = [(once[series], value) for series, value in fresh.items() if "inferences_total" in series]
    assert sorted(inferences) == [(1.0, 0.0), (1.0, 1.0)]
    assert sorted(value for series, value in fresh.items() if "tokens_total" in series) == [1.0, 3.0]


async def test_overrides_apply_from_the_step_on(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Say it in French."}]
    async with scripted(tmp_path, a=[CALL, {"text": "fifty-one"}], b=[{"text": "cinquante et un"}]) as served:
        forked = await fork(served, 2, model="b", hints={"temperature": 0.5}, tools=[], messages=messages)
        name = forked.json["request_id"]
        starts = [each for each in await log(served, name) if each["type"] == "inference.start"]
        origin = [each for each in await log(served, "q") if each["type"] == "inference.start"]
        assert (await send_command(served, "replay", name)).json["identical"] is True
    assert forked.json["content"] == "cinquante et un"
    assert [(each["provider"], each["temperature"]) for each in starts] == [("a", None), ("b", 0.5)]
    assert [each["message_count"] for each in origin] == [1, 3]
    assert [each["message_count"] for each in starts] == [1, 4]
    assert starts[1]["tool_defs_count"] == 0


async def test_a_fork_at_the_first_step_runs_the_request_again_with_its_overrides(tmp_path: Path) -> None:
    async with scripted(tmp_path, a=[CALL, {"text": "51"}, {"text": "no tools"}]) as served:
        forked = await fork(served, 0, tools=[])
        starts = [each for each in await log(served, forked.json["request_id"]) if each["type"] == "inference.start"]
    assert (forked.json["content"], forked.json["tool_calls_made"]) == ("no tools", [])
    assert [each["tool_defs_count"] for each in starts] == [0]


async def test_a_message_at_a_tool_step_follows_its_results(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Go on."}]
    async with scripted(tmp_path, a=[CALL, {"text": "51"}, {"text": "on"}]) as served:
        forked = await fork(served, 1, messages=messages)
        starts = [each for each in await log(served, forked.json["request_id"]) if each["type"] == "inference.start"]
    assert forked.json["content"] == "on"
    assert [each["message_count"] for each in starts] == [1, 4]


@pytest.mark.parametrize("form", [EVENTS, RESPOND_ASYNC], ids=["events", "async"])
async def test_a_fork_is_answered_in_the_other_forms_too(tmp_path: Path, form: dict[str, str]) -> None:
    async with scripted(tmp_path, a=[CALL, {"text": "first"}, {"text": "second"}]) as served:
        answer = await fork(served, 2, form)
        name = answer.headers["x-request-id"]
        received = events(await served.get(f"/v1/executions/{name}/events"))
    assert received[-1]["response"]["content"] == "second"
    if form is EVENTS:
        assert [each for each in events(answer) if "sequence_number" in each] == received
    else:
        assert (answer.status, answer.headers["location"]) == (202, f"/v1/executions/{name}")


async def test_a_failed_execution_is_forked_at_the_step_that_failed(tmp_path: Path) -> None:
    async with scripted(tmp_path, a=[CALL, {"fault": "refused"}, {"text": "at last"}]) as served:
        assert (await served.get("/v1/executions/q")).json["state"] == "ERROR"
        forked = await fork(served, 2)
    assert (forked.json["state"], forked.json["content"]) == ("COMPLETE", "at last")
    assert [call["result"] for call in forked.json["tool_calls_made"]] == ["51"]


async def test_a_forked_suspended_execution_stays_suspended() -> None:
    async with portico() as (served, _):
        await served.post(chat(ASK_PERSON, request_id="q"))
        forked = await fork(served, 1)
        assert (forked.status, forked.json["state"]) == (202, "SUSPENDED")
        assert len((await served.get("/v1/suspensions")).json["data"]) == 2
        assert (await resume(served)).json["state"] == "COMPLETE"
        assert (await served.get(f"/v1/executions/{forked.json['request_id']}")).json["state"] == "SUSPENDED"


@pytest.mark.parametrize(
    ("from_step", "overrides", "field"),
    [
        (3, {}, "from_step"),
        (10**9, {}, "from_step"),
        (-1, {}, "from_step"),
        ("1", {}, "from_step"),
        (1.5, {}, "from_step"),
        (None, {}, "from_step"),
        (1, {"zork": 1}, "overrides.zork"),
        (1, {"model": "unknown"}, "model"),
        (1, {"hints": {"timeout": 10**9}}, "hints.timeout"),
        (1, {"messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]}, "overrides.messages"),
    ],
)
async def test_an_impossible_fork_is_refused_by_field(
    tmp_path: Path, from_step: Any, overrides: dict[str, Any], field: str
) -> None:
    async with scripted(tmp_path, a=[CALL, {"text": "51"}]) as served:
        refused = await fork(served, from_step, **overrides)
        listed = (await served.get("/v1/executions")).json["data"]
    assert (refused.status, refused.json["code"], refused.json["request_id"]) == (422, "REQUEST_INVALID", "q")
    assert field in str(refused.json["details"]) + refused.json["message"]
    assert [each["request_id"] for each in listed] == ["q"]


async def test_an_unknown_tool_is_refused_as_in_a_request(tmp_path: Path) -> None:
    async with scripted(tmp_path, a=[CALL, {"text": "51"}]) as served:
        refused = await fork(served, 1, tools=["unknown"])
    assert (refused.status, refused.json["code"]) == (422, "TOOL_NOT_FOUND")


async def test_a_running_execution_is_not_forked() -> None:
    async with portico() as (served, service):
        await served.post(chat("[[slow:5]] Hello", request_id="q"), RESPOND_ASYNC)
        await wait_for_running(service)
        refused = await fork(served, 0)
        await wait_for_idle(service)
    assert (refused.status, refused.json["code"]) == (409, "REQUEST_IN_PROGRESS")


async def test_another_tenant_s_execution_cannot_be_forked() -> None:
    async with portico() as (served, service):
        await served.post(chat("Hello", request_id="q"))
        other = Principal(tenant="other", user="local")
        with pytest.raises(Exception, match="no execution has this id") as refused:
            await service.facade.fork("q", ForkRequest(from_step=0), other)
    assert refused.value.status == 404


async def test_a_fork_survives_its_process_with_its_inherited_steps(tmp_path: Path) -> None:
    kept = {"storage": {"url": f"sqlite:///{tmp_path}/portico.db"}, "server": {"drain_seconds": 1}}
    async with portico(**kept) as (served, service):
        await served.post(chat("Please calculate 17*3", request_id="q"))
        messages = [{"role": "user", "content": "[[slow:60]] Please calculate 2+2"}]
        name = (await fork(served, 2, RESPOND_ASYNC, messages=messages)).json["request_id"]
        await wait_for_running(service)
    async with portico(**kept) as (served, service):
        await wait_for_idle(service)
        shown = (await served.get(f"/v1/executions/{name}")).json
        logs = [await log(served, each) for each in (name, "q")]
        assert (await send_command(served, "replay", name)).json["identical"] is True
    assert shown["state"] == "COMPLETE"
    assert shown["response"]["tool_calls_made"][0]["result"] == "51"
    assert comparable(logs[0], "tool.end")[0] == comparable(logs[1], "tool.end")[0]
    assert sequence_numbers(logs[0]) == list(range(1, len(logs[0]) + 1))


async def test_a_fork_of_a_turn_inherits_its_history_and_leaves_the_session_unchanged(tmp_path: Path) -> None:
    async with portico() as (served, _):
        await served.post(chat("Hello", session_id="s"))
        turn = chat("Please calculate 17*3", session_id="s", request_id="q", if_session_busy="enqueue")
        assert (await served.post(turn)).status == 200
        before = (await served.get("/v1/sessions/s/messages")).json
        forked = await fork(served, 2, messages=[{"role": "user", "content": "Please calculate 2+2"}])
        assert (await served.get("/v1/sessions/s/messages")).json == before
        starts, origin = [
            [each["message_count"] for each in await log(served, name) if each["type"] == "inference.start"]
            for name in (forked.json["request_id"], "q")
        ]
    assert (forked.json["state"], forked.json["session_id"]) == ("COMPLETE", None)
    assert starts[0] == origin[0] == 3
    assert starts[1] == origin[1] + 1


FRENCH = {"role": "user", "content": "In French."}


async def messages_of(served: RunningServer, session_id: str = "s") -> list[tuple[Any, Any]]:
    """Return role and content of the messages of a session."""
    received: Any = (await served.get(f"/v1/sessions/{session_id}/messages")).json["data"]
    return [(each["role"], each.get("content")) for each in received]


async def starts(served: RunningServer, answer: HttpAnswer) -> list[tuple[Any, ...]]:
    """Return message count, engine and temperature of the inferences of an execution."""
    names = ("message_count", "provider", "temperature")
    received = await log(served, str(answer.json["request_id"]))
    return [tuple(each[name] for name in names) for each in received if each["type"] == "inference.start"]


async def test_a_fork_of_a_fork_inherits_and_repeats_steps_with_the_first_one_s_overrides(tmp_path: Path) -> None:
    scripts = {"a": [CALL, {"text": "first"}, {"text": "plain"}], "b": [CALL, {"text": "second"}, *[{"text": "b"}] * 3]}
    async with scripted(tmp_path, **scripts) as served:
        first = await fork(served, 2, model="b", hints={"temperature": 1}, messages=[FRENCH])
        name = str(first.json["request_id"])
        behind = await fork(served, 4, origin=name, hints={"temperature": 0}, messages=[FRENCH], session_id="s")
        beside = await fork(served, 2, origin=name, hints={"top_p": 0.5})
        before = await fork(served, 0, origin=name)
        third = await fork(served, 4, origin=str(behind.json["request_id"]), session_id="t")
        begun = [await starts(served, each) for each in (first, behind, beside, before, third)]
        talks = [await messages_of(served, session_id) for session_id in "st"]
        replays = [
            await send_command(served, "replay", str(each.json["request_id"])) for each in (behind, beside, third)
        ]
    kept, again = (1, "a", None), (4, "b", 1.0)
    assert begun[0] == [kept, again, (6, "b", 1.0)]
    assert begun[1] == begun[4] == [kept, again, (7, "b", 0.0)]
    assert begun[2] == [kept, again]
    assert begun[3] == [(1, "a", None)]
    assert talks[0] == talks[1]
    assert [who for who, _ in talks[0]] == ["user", "user", "user", *["assistant", "tool"] * 2, "assistant"]
    assert [each.json["identical"] for each in replays] == [True] * 3


async def test_a_fork_with_a_session_adds_the_messages_of_a_whole_request_to_it(tmp_path: Path) -> None:
    async with scripted(tmp_path, a=[CALL, {"text": "first"}, {"text": "second"}, {"text": "third"}]) as served:
        forked = await fork(served, 2, session_id="s", messages=[FRENCH])
        once = await messages_of(served)
        session = (await served.get("/v1/sessions/s")).json
        assert (await served.post(chat("And?", session_id="s", request_id="next"))).json["content"] == "third"
        logs = [await log(served, str(name)) for name in (forked.json["request_id"], "next")]
        assert (await send_command(served, "replay", str(forked.json["request_id"]))).json["identical"] is True
    assert (forked.json["session_id"], forked.json["content"]) == ("s", "second")
    assert once == [
        ("user", "What is 17*3?"),
        ("user", "In French."),
        ("assistant", ""),
        ("tool", "51"),
        ("assistant", "second"),
    ]
    assert (session["messages"], session["busy"]) == (5, False)
    assert {each["session_id"] for each in logs[0]} == {"s"}
    counts = [[each["message_count"] for each in log if each["type"] == "inference.start"] for log in logs]
    assert counts == [[1, 4], [6]]


async def test_a_fork_does_not_see_its_session_s_history_and_repeats_no_system_message(tmp_path: Path) -> None:
    system = {"role": "system", "content": "Be brief."}
    asked = orjson.dumps({"request_id": "q", "messages": [system, {"role": "user", "content": "Who?"}]})
    async with portico() as (served, _):
        assert (await served.post(asked)).status == 200
        await served.post(chat("Something else entirely", session_id="old"))
        for session_id in ("new", "old"):
            forked = await fork(served, 0, session_id=session_id)
            begun = [each for each in await log(served, forked.json["request_id"]) if each["type"] == "inference.start"]
            assert [each["message_count"] for each in begun] == [2]
        new, old = [[each[0] for each in await messages_of(served, name)] for name in ("new", "old")]
    assert new == ["system", "user", "assistant"]
    assert old == ["user", "assistant", "user", "assistant"]


async def test_a_fork_of_a_planned_execution_plans_again_without_its_session_s_history() -> None:
    async with portico() as (served, _):
        await served.post(chat("Please calculate 17*3", request_id="q", mode="plan"))
        await served.post(chat("Please calculate 2+2", session_id="s"))
        alone, within = [await fork(served, 0, session_id=session_id) for session_id in (None, "s")]
        logs = [await log(served, answer.json["request_id"]) for answer in (alone, within)]
        assert [each for each, _ in await messages_of(served)][-2:] == ["user", "assistant"]
    assert alone.json["content"] == within.json["content"]
    assert comparable(logs[0], "plan.created") != []
    assert len(logs[0]) == len(logs[1])


@pytest.mark.parametrize(
    ("text", "code"), [("[[slow:5]] Hello", "REQUEST_SESSION_BUSY"), (ASK_PERSON, "REQUEST_RESUME_REQUIRED")]
)
async def test_a_fork_is_refused_while_its_session_is_busy_and_leaves_nothing(text: str, code: str) -> None:
    async with portico() as (served, service):
        await served.post(chat("Please calculate 17*3", request_id="q"))
        await served.post(chat(text, session_id="s", request_id="other"), RESPOND_ASYNC)
        if code == "REQUEST_SESSION_BUSY":
            await wait_for_running(service)
        else:
            await wait_for_idle(service)
        before = (await served.get("/v1/executions")).json["data"]
        refused = await fork(served, 2, session_id="s")
        after = (await served.get("/v1/executions")).json["data"]
        assert [each["request_id"] for each in after] == [each["request_id"] for each in before]
        other = await fork(served, 2, session_id="another")
        await send_command(served, "cancel", "other")
        await wait_for_idle(service)
        assert (await fork(served, 2, session_id="s")).status == 200
    assert (refused.status, refused.json["code"], other.status) == (409, code, 200)


async def test_a_fork_holds_its_session_s_turn_until_it_ends(tmp_path: Path) -> None:
    kept = {"storage": {"url": f"sqlite:///{tmp_path}/portico.db"}, "server": {"drain_seconds": 0.1}}
    slow = {"role": "user", "content": "[[slow:60]] Please calculate 2+2"}
    async with portico(**kept) as (served, service):
        await served.post(chat("Please calculate 17*3", request_id="q"))
        name = (await fork(served, 2, RESPOND_ASYNC, session_id="s", messages=[slow])).json["request_id"]
        await wait_for_running(service)
        assert (await served.post(chat("Hello", session_id="s"))).json["code"] == "REQUEST_SESSION_BUSY"
    async with portico(**kept) as (served, service):
        waits = chat("Hello", session_id="s", request_id="w", if_session_busy="enqueue")
        assert (await served.post(waits)).status == 200
        assert (await served.get(f"/v1/executions/{name}")).json["state"] == "COMPLETE"
        roles = [each for each, _ in await messages_of(served)]
    assert roles[:2] == ["user", "user"]
    assert roles[-2:] == ["user", "assistant"]
    assert roles.count("user") == 3


@pytest.mark.parametrize("session_id", ["", "a b", "x" * 129, 7, ["s"]])
async def test_the_session_id_of_a_fork_is_validated(session_id: object) -> None:
    async with portico() as (served, _):
        await served.post(chat("Hello", request_id="q"))
        refused = await fork(served, 0, session_id=session_id)
    details: Any = refused.json["details"]
    assert (refused.status, refused.json["code"]) == (422, "REQUEST_INVALID")
    assert [each["field"] for each in details["errors"]] == ["session_id"]


SIZE = {"type": "object", "properties": {"size": {"enum": ["small", "large"]}}, "required": ["size"]}


def sized(size: str) -> dict[str, str]:
    return {"text": orjson.dumps({"size": size}).decode()}


async def test_a_structured_execution_is_forked_at_its_second_attempt(tmp_path: Path) -> None:
    async with scripted(tmp_path, a=[{"text": "?"}, {"text": "huge"}, sized("small"), sized("large")]) as served:
        await served.post(chat("How large?", request_id="s", mode="structured", output={"schema": SIZE}))
        forked = await fork(served, 1, origin="s")
        origin = (await served.get("/v1/executions/s")).json["response"]
        assert (await send_command(served, "replay", forked.json["request_id"])).json["identical"] is True
    assert (origin["structured_output"], forked.json["structured_output"]) == ({"size": "small"}, {"size": "large"})
    assert forked.json["validation_result"]["attempts"] == origin["validation_result"]["attempts"] == 2


async def test_a_vote_is_forked_with_other_hints_for_every_replica(tmp_path: Path) -> None:
    async with scripted(tmp_path, a=[{"text": "?"}, *[sized("small")] * 3, *[sized("large")] * 3]) as served:
        vote = {"mode": "redundant", "output": {"schema": SIZE}, "redundancy": {"early_stop": False}}
        await served.post(chat("How large?", request_id="v", **vote))
        forked = await fork(served, 0, origin="v", hints={"temperature": 1})
        starts = [each for each in await log(served, forked.json["request_id"]) if each["type"] == "inference.start"]
        assert (await send_command(served, "replay", forked.json["request_id"])).json["identical"] is True
    assert forked.json["structured_output"] == {"size": "large"}
    assert [each["temperature"] for each in starts] == [1.0] * 3


async def test_a_fork_runs_the_inherited_plan_again() -> None:
    async with portico() as (served, _):
        first = await served.post(chat("Please calculate 17*3", request_id="p", mode="plan"))
        forked = await fork(served, 1, origin="p")
        refused = await fork(served, 1, origin="p", tools=[])
        logs = [await log(served, name) for name in (forked.json["request_id"], "p")]
        assert (await send_command(served, "replay", forked.json["request_id"])).json["identical"] is True
    assert first.json["state"] == "COMPLETE"
    assert comparable(logs[0], "plan.created") == comparable(logs[1], "plan.created")
    assert (refused.status, refused.json["error"]["code"]) == (422, "ORCHESTRATION_PLAN_REFUSED")
    assert [step["name"] for step in forked.json["plan"]["steps"]] == [
        step["name"] for step in first.json["plan"]["steps"]
    ]


async def test_an_edited_result_is_marked_and_read_and_the_quote_has_less_than_the_whole_request(
    tmp_path: Path,
) -> None:
    edit = {"key": "1/0/0/0", "content": "17*3 = 52"}
    body = {"from_step": 2, "edits": [edit]}
    async with scripted(tmp_path, a=[CALL, {"text": "first"}, {"text": "second"}]) as served:
        whole = (await served.post(orjson.dumps({**body, "from_step": 0, "edits": []}), path=QUOTE)).json
        quoted = await served.post(orjson.dumps(body), path=QUOTE)
        listed = (await served.get("/v1/executions")).json["data"]
        forked = await served.post(orjson.dumps(body), path="/v1/executions/q/fork")
        name = forked.json["request_id"]
        steps = (await served.get(f"/v1/executions/{name}/steps?view=summary")).json["data"]
        replayed = (await send_command(served, "replay", name)).json
        again = (await fork(served, 2, origin=name)).json
    assert [each["request_id"] for each in listed] == ["q"]
    assert (quoted.status, quoted.json["inferences"], quoted.json["tool_calls"]) == (
        200,
        whole["inferences"] - 1,
        whole["tool_calls"] - 1,
    )
    (made,) = forked.json["tool_calls_made"]
    assert (made["result"], made["edited"], made["attempts"]) == ("17*3 = 52", True, 1)
    assert [step["key"] for step in steps if step["edited"]] == ["1/0/0/0"]
    assert replayed["identical"]
    assert again["tool_calls_made"][0] == made


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"from_step": 2, "edits": [{"key": "9/0", "content": "x"}]}, ["edits.0.key"]),
        (
            {
                "from_step": "end",
                "overrides": {"messages": [{"role": "user", "content": "x"}]},
                "edits": [{"key": "1/0/0/0", "content": "x"}],
            },
            ["edits.0.key"],
        ),
        ({"from_step": 2, "edits": [{"key": "1/0/0/0", "content": "é" * (1 << 19) + "x"}]}, ["edits.0.content"]),
        ({"from_step": 2, "edits": [{"key": "1/0/0/0", "content": "x"}] * 17}, ["edits"]),
    ],
)
async def test_an_edit_that_cannot_be_made_is_refused_by_the_fork_and_by_its_quote(
    tmp_path: Path, body: dict[str, Any], fields: list[str]
) -> None:
    async with scripted(tmp_path, a=[CALL, {"text": "first"}]) as served:
        answers = [await served.post(orjson.dumps(body), path=path) for path in (QUOTE, QUOTE.removesuffix("/quote"))]
    for answer in answers:
        assert (answer.status, answer.json["code"]) == (422, "REQUEST_INVALID")
        assert [each["field"] for each in answer.json["details"]["errors"]] == fields


async def test_a_guard_checks_an_edited_result(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(orjson.dumps([CALL, {"text": "first"}]))
    guards = {"cards": {"type": "pii", "kinds": ["card"]}}
    engines = {"a": {"model": f"scripted:///{tmp_path}/a.json"}}
    edit = {"key": "1/0/0/0", "content": "card 4111 1111 1111 1111"}
    async with portico(engines=engines, routes={"default": ["a"]}, guardrails=guards) as (served, _):
        await served.post(chat("What is 17*3?", request_id="q"))
        answer = await served.post(orjson.dumps({"from_step": 2, "edits": [edit]}), path="/v1/executions/q/fork")
    assert (answer.status, answer.json["code"]) == (422, "VALIDATION_INPUT_REFUSED")
