"""Tools that the client runs, and several answers at once, over HTTP."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from portico.adapters.system import SystemClock
from portico.domain.access.principal import Permission
from tests.entrypoints.http.test_authentication import bearer, keyed
from tests.support.golden_journals import WHEN, WHO
from tests.support.http_server import HttpAnswer, RunningServer
from tests.support.portico import EVENTS, chat, events, portico, send_command

READ: dict[str, Any] = {
    "name": "read_file",
    "description": "Read a file.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
ASK = 'Use read_file: "ada@ulm.example"'
PATH = {"path": "ada@ulm.example"}


async def answer(served: RunningServer, **body: Any) -> HttpAnswer:
    return await served.post(orjson.dumps(body), path="/v1/executions/q/resume")


async def answered(served: RunningServer, *answers: dict[str, Any]) -> HttpAnswer:
    return await answer(served, answers=list(answers))


async def test_a_stream_shows_the_call_of_the_client_and_the_answer_continues_it() -> None:
    async with portico() as (served, _):
        seen = events(await served.post(chat(ASK, request_id="q", client_tools=[READ]), EVENTS))
        [start] = [each for each in seen if each["type"] == "tool.start"]
        [content] = [each for each in seen if each["type"] == "tool.content"]
        assert (start["tool_name"], start["client"], start["tool_call_id"]) == (
            "read_file",
            True,
            content["tool_call_id"],
        )
        assert (content["arguments"], content["client"]) == (PATH, True)
        [suspension] = seen[-1]["suspensions"]
        assert (suspension["kind"], suspension["tool_id"], suspension["value"]) == ("client_tool", "read_file", PATH)
        resumed = await answered(served, {"tool_call_id": start["tool_call_id"], "payload": {"result": "seven lines"}})
        assert (resumed.status, resumed.json["state"]) == (200, "COMPLETE")
        [made] = resumed.json["tool_calls_made"]
        assert (made["client"], made["status"], made["result"]) == (True, "done", "seven lines")
        assert "seven lines" in resumed.json["content"]
        log = events(await served.get("/v1/executions/q/events"))
        assert [each["type"] for each in log if each["type"].startswith("tool.")] == ["tool.start", "tool.end"]
        [traced] = (await served.get("/v1/executions/q/trace")).json["tool_calls"]
        assert (traced["tool_name"], traced["client"], traced["success"]) == ("read_file", True, True)
        assert (await send_command(served, "replay")).json["identical"]


async def test_an_execution_that_ends_with_client_calls_is_complete_and_replays() -> None:
    async with portico() as (served, _):
        ended = await served.post(chat(ASK, request_id="q", client_tools=[READ], on_client_call="end"))
        assert (ended.status, ended.json["state"], ended.json["metadata"]["finish_reason"]) == (200, "COMPLETE", "tool")
        [call] = ended.json["client_calls"]
        assert (call["name"], call["arguments"]) == ("read_file", PATH)
        assert (await served.get("/v1/executions/q")).json["response"] == ended.json
        assert (await send_command(served, "replay")).json["identical"]
        plain = await served.post(chat("Hello", client_tools=[READ], on_client_call="end"))
        assert "client_calls" not in plain.json


async def test_several_answers_are_accepted_together_or_not_at_all() -> None:
    async with portico() as (served, _):
        await served.post(chat("Ask", request_id="q", mode="plan", plan={"steps": [WHO, WHEN]}))
        first, second = (await served.get("/v1/executions/q")).json["suspensions"]
        one, two = ({"suspension_id": each["suspension_id"], "payload": "yes"} for each in (first, second))
        refusals = {
            "more than one": [{"tool_id": "ask_person", "payload": 1}],
            "no open suspension": [one, {"tool_call_id": "c9", "payload": 1}],
            "an earlier answer": [one, two, one],
        }
        for message, answers in refusals.items():
            refused = await answered(served, *answers)
            assert (refused.status, refused.json["code"]) == (409, "REQUEST_RESUME_MISMATCH")
            assert message in refused.json["detail"]
        assert len((await served.get("/v1/executions/q")).json["suspensions"]) == 2
        ended = await answered(served, two, one)
        assert (ended.status, ended.json["state"]) == (200, "COMPLETE")
        assert (await answered(served, one)).json["code"] == "REQUEST_RESUME_UNEXPECTED"


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["tool_id", "payload"]),
        ({"payload": None}, ["tool_id"]),
        ({"answers": []}, ["answers"]),
        ({"answers": [{"payload": 1}] * 33}, ["answers"]),
        ({"answers": [{"tool_id": "read_file"}]}, ["answers.0.payload"]),
        ({"answers": [{"payload": 1, "tool": "read_file"}]}, ["answers.0.tool"]),
        ({"answers": [{"payload": 1}], "payload": 1, "tool_id": "read_file"}, ["payload", "tool_id"]),
        ({"answers": [{"payload": "text"}]}, ["answers.0.payload"]),
        ({"answers": [{"payload": {"result": 1, "is_error": 1}}]}, ["answers.0.payload.is_error"]),
        ({"tool_id": "read_file", "payload": {"result": "x" * 262_145}}, ["payload.result"]),
    ],
)
async def test_an_answer_that_does_not_fit_is_refused_by_field(body: dict[str, Any], fields: list[str]) -> None:
    async with portico() as (served, _):
        await served.post(chat(ASK, request_id="q", client_tools=[READ]))
        refused = await answer(served, **body)
        assert (refused.status, refused.json["code"]) == (422, "REQUEST_INVALID")
        assert [each["field"] for each in refused.json["details"]["errors"]] == fields
        assert (await served.get("/v1/executions/q")).json["state"] == "SUSPENDED"


def result(call_id: str, content: str = "seven lines") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def body(*messages: dict[str, Any], **fields: Any) -> bytes:
    return orjson.dumps({"messages": list(messages), "client_tools": [READ], "on_client_call": "end", **fields})


def refused_fields(answer: HttpAnswer) -> list[str]:
    """Return the fields of a refusal; in a session it is the end of an execution, which waits for its turn first."""
    failure = answer.json.get("error") or answer.json
    assert (answer.status, failure["code"]) == (422, "REQUEST_INVALID")
    return [each["field"] for each in failure["details"]["errors"]]


@pytest.mark.parametrize("way", ["after", "session_id"])
async def test_the_next_turn_begins_with_the_results_of_the_client(way: str) -> None:
    async with portico(limits={"history_messages": 1}) as (served, _):
        place = {"session_id": "s"} if way == "session_id" else {}
        first = await served.post(chat(ASK, request_id="q", client_tools=[READ], on_client_call="end", **place))
        [call] = first.json["client_calls"]
        place = place or {"after": "q"}
        wrong = await served.post(body(result("c9"), **place))
        assert refused_fields(wrong) == ["messages.0.tool_call_id"]
        twice = await served.post(body(result(call["id"]), result(call["id"]), **place))
        assert refused_fields(twice) == ["messages.1.tool_call_id"]
        second = await served.post(body(result(call["id"]), request_id="r", **place))
        assert (second.status, second.json["state"]) == (200, "COMPLETE")
        assert "seven lines" in second.json["content"]
        assert (await send_command(served, "replay", "r")).json["identical"]
        [prepared] = (await served.get("/v1/executions/r/steps?key=prepare")).json["data"]
        seen = [(each["role"], each.get("tool_call_id")) for each in prepared["outcome"]["messages"]]
        assert seen == [("user", None), ("assistant", None), ("tool", call["id"])]


@pytest.mark.parametrize("way", ["after", "session_id"])
async def test_a_call_that_the_next_turn_does_not_answer_has_a_result_that_says_so(way: str) -> None:
    async with portico() as (served, _):
        place = {"session_id": "s"} if way == "session_id" else {}
        first = await served.post(chat(ASK, request_id="q", client_tools=[READ], on_client_call="end", **place))
        [call] = first.json["client_calls"]
        place = place or {"after": "q"}
        for request_id in ("r", "t"):
            again = await served.post(chat("Hello", request_id=request_id, **place))
            assert (again.status, again.json["state"]) == (200, "COMPLETE")
            assert (await send_command(served, "replay", request_id)).json["identical"]
            [prepared] = (await served.get(f"/v1/executions/{request_id}/steps?key=prepare")).json["data"]
            results = [each for each in prepared["outcome"]["messages"] if each["role"] == "tool"]
            assert [(each["tool_call_id"], each["content"]) for each in results] == [
                (call["id"], "the client gave no result")
            ]
            place = {"after": request_id} if "after" in place else place


async def test_results_need_a_turn_that_they_continue() -> None:
    async with portico() as (served, _):
        for place in ({}, {"session_id": "new"}):
            refused = await served.post(body(result("c1"), {"role": "user", "content": "Hello"}, **place))
            assert refused_fields(refused)[0].startswith("messages")
        await served.post(chat("Hello", request_id="q"))
        refused = await served.post(body(result("c1"), after="q"))
        assert refused_fields(refused) == ["messages.0.tool_call_id"]


async def test_a_fork_keeps_the_client_tools_and_cannot_change_them() -> None:
    async with portico() as (served, _):
        await served.post(chat(ASK, request_id="q", client_tools=[READ], on_client_call="end"))
        path = "/v1/executions/q/fork"
        changed = orjson.dumps({"from_step": 0, "overrides": {"client_tools": []}})
        refused = await served.post(changed, path=path)
        assert refused_fields(refused) == ["overrides.client_tools"]
        forked = await served.post(orjson.dumps({"from_step": 0}), path=path)
        assert [call["name"] for call in forked.json["client_calls"]] == ["read_file"]
        [call] = forked.json["client_calls"]
        overrides = {"messages": [result(call["id"])]}
        ended = await served.post(orjson.dumps({"from_step": "end", "overrides": overrides}), path=path)
        assert (ended.status, ended.json["state"]) == (200, "COMPLETE")
        assert "seven lines" in ended.json["content"]


async def test_rules_of_tools_do_not_apply_to_those_of_the_client_and_only_the_owner_answers(tmp_path: Path) -> None:
    rules = {"approve": [{"tool": "*"}], "deny": [{"tool": "read*"}]}
    async with keyed(SystemClock(), tmp_path, policy=rules) as here:
        owner = bearer(await here.key("ann", "can_send_messages", "model:*"))
        other = bearer(await here.key("bob", *(each.value for each in Permission)))
        asked = await here.served.post(chat(ASK, request_id="q", client_tools=[READ]), owner)
        assert [each["kind"] for each in asked.json["suspensions"]] == ["client_tool"]
        given = orjson.dumps({"answers": [{"payload": {"result": "seven lines"}}]})
        path = "/v1/executions/q/resume"
        refused = await here.served.post(given, other, path)
        assert (refused.status, refused.json["code"]) == (404, "REQUEST_NOT_FOUND")
        assert (await here.served.post(given, owner, path)).json["state"] == "COMPLETE"
