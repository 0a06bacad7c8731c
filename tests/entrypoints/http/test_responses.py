"""The Responses API over HTTP: answers, streams, reading on, follow-ups, cancel and delete."""

import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

import anyio
import orjson
import pytest

from portico.domain.access.principal import LOCAL
from portico.entrypoints.http.recorded_answer import named_response
from portico.entrypoints.http.responses_answer import SECOND_LOOK_SECONDS
from tests.support.http_server import HttpAnswer, RunningServer, request_bytes
from tests.support.open_responses import check_answer, check_numbers, checked_frames, fold, frames_of
from tests.support.portico import portico
from tests.support.server_state import wait_for_idle, wait_for_running
from tests.support.upstream import Script, ScriptedUpstream, reply

PATH = "/v1/responses"
PORTICO = {"type": "mcp", "server_label": "portico", "require_approval": "never"}
CALCULATOR = PORTICO | {"allowed_tools": ["calculate"]}
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
SUM = {"name": "calculate", "arguments": {"expression": "17*3"}}
RAIN = {"name": "weather", "arguments": {"city": "Zürich 🌧"}}
TEXT = "Grüße, 👋🏽 é: done."
ROUNDS = (
    {"reasoning": "A sum, first.", "text": "Let me see.", "tool_calls": [SUM, SUM]},
    {"reasoning": "Now the rain.", "chunks": ["And ", "the ", "rain."], "tool_calls": [SUM, RAIN]},
)
FINAL = {"reasoning": "Easy.", "chunks": ["Grüße, ", "👋🏽 é", ": done."]}


def scripted(folder: Path, *replies: dict[str, Any]) -> dict[str, Any]:
    """Return the table of engines with one that gives these replies in turn."""
    folder.joinpath("script.json").write_bytes(orjson.dumps(replies))
    return {"engines": {"script": {"model": f"scripted:///{folder}/script.json"}}}


def message(role: str, *content: Any) -> dict[str, Any]:
    """Return a message item with this text, or these parts."""
    return {"type": "message", "role": role, "content": content[0] if isinstance(content[0], str) else list(content)}


async def create(served: RunningServer, sent: object = "Hello", **fields: Any) -> HttpAnswer:
    """Send a request to the default route."""
    return await served.post(orjson.dumps({"model": "default", "input": sent, **fields}), path=PATH)


async def retrieve(served: RunningServer, response_id: str, query: str = "") -> HttpAnswer:
    """Read an answer."""
    return await served.get(f"{PATH}/{response_id}{query}")


async def command(served: RunningServer, method: str, path: str) -> HttpAnswer:
    """Send a request without a body."""
    return await served.ask(request_bytes(method, f"{PATH}/{path}", {}))


def texts(body: Any) -> list[str]:
    return [item["content"][0]["text"] for item in body["output"] if item["type"] == "message"]


def kinds(body: Any) -> list[str]:
    return [item["type"] for item in body["output"]]


async def test_an_answer_has_every_field_and_is_read_again_as_it_was_given() -> None:
    async with portico() as (served, _):
        answer = await create(served, instructions="Be brief.", metadata={"a": "b"}, user="ada", temperature=0.5)
        check_answer(answer.json)
        again = await retrieve(served, answer.json["id"])
        listed = await command(served, "GET", f"{answer.json['id']}/input_items?order=asc")
    assert again.json == answer.json | {"completed_at": again.json["completed_at"]}
    assert re.fullmatch("resp_[0-9a-f]{32}", answer.json["id"])
    assert (answer.json["status"], answer.json["metadata"], answer.json["user"]) == ("completed", {"a": "b"}, "ada")
    assert answer.json["temperature"] == 0.5
    assert [(item["role"], item["content"][0]["text"]) for item in listed.json["data"]] == [
        ("system", "Be brief."),
        ("user", "Hello"),
    ]


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("summary", [None, "auto"])
async def test_the_frames_of_a_stream_fold_to_its_answer(tmp_path: Path, background: bool, summary: str | None) -> None:
    asked = {"tools": [CALCULATOR, WEATHER], "background": background, "reasoning": {"summary": summary}}
    async with portico(**scripted(tmp_path, *ROUNDS)) as (served, _):
        frames = checked_frames(await create(served, stream=True, **asked))
        whole = frames[-1]["response"]
        check_answer(whole)
        read = await retrieve(served, whole["id"])
    assert fold(frames) == whole["output"]
    assert read.json == whole | {"completed_at": read.json["completed_at"]}
    calls = ["mcp_call", "mcp_call", "message", "mcp_call", "function_call"]
    reasoned = ["reasoning", "message", "mcp_call", "mcp_call", "reasoning", "message", "mcp_call", "function_call"]
    assert kinds(whole) == (["message", *calls] if summary is None else reasoned)
    assert texts(whole) == ["Let me see.", "And the rain."]
    assert (whole["output"][-1]["call_id"], whole["output"][-1]["name"]) == (f"call_{whole['id'][5:]}_0", "weather")
    assert orjson.loads(whole["output"][-1]["arguments"]) == RAIN["arguments"]
    outputs = [(item["output"], item["status"]) for item in whole["output"] if item["type"] == "mcp_call"]
    assert outputs == [("51", "completed")] * 3


async def test_the_answer_without_a_stream_has_the_same_output(tmp_path: Path) -> None:
    bodies = []
    for number, fields in enumerate(({}, {"stream": True}, {"background": True, "stream": True})):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with portico(**scripted(folder, *ROUNDS)) as (served, _):
            asked = {"tools": [CALCULATOR, WEATHER], "reasoning": {"summary": "auto"}}
            answer = await create(served, **asked, **fields)
            bodies.append(frames_of(answer.body)[-1]["response"] if fields else answer.json)
    plain = [re.sub("[0-9a-f]{32}", "HEX", orjson.dumps(body["output"]).decode()) for body in bodies]
    assert plain[0] == plain[1] == plain[2]


async def test_reading_on_behind_any_number_gives_exactly_what_is_missing(tmp_path: Path) -> None:
    asked = {"tools": [CALCULATOR], "background": True, "reasoning": {"summary": "auto"}}
    async with portico(**scripted(tmp_path, ROUNDS[0], FINAL)) as (served, _):
        frames = checked_frames(await create(served, stream=True, **asked))
        name = frames[-1]["response"]["id"]
        for number in range(-1, frames[-1]["sequence_number"] + 2):
            query = "?stream=true" if number < 0 else f"?stream=true&starting_after={number}"
            rest = frames_of((await retrieve(served, name, query)).body)
            check_numbers(rest, number + 1)
            assert rest == behind(frames, number)


def behind(frames: list[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    """Return the frames behind that number; a delta across it has its rest."""
    rest = []
    for frame in frames:
        missing = frame["sequence_number"] - number
        if missing > 0:
            rest.append({**frame, "delta": frame["delta"][-missing:]} if "delta" in frame else frame)
    return rest


async def test_only_a_background_answer_is_read_on() -> None:
    async with portico() as (served, _):
        name = (await create(served)).json["id"]
        refused = await retrieve(served, name, "?stream=true&starting_after=3")
        whole = checked_frames(await retrieve(served, name, "?stream=true"))
    assert (refused.status, refused.json["error"]["param"]) == (400, "starting_after")
    assert whole[-1]["type"] == "response.completed"


async def test_a_background_answer_is_queued_and_read_later() -> None:
    async with portico() as (served, service):
        answer = await create(served, background=True)
        check_answer(answer.json)
        await wait_for_idle(service)
        later = await retrieve(served, answer.json["id"])
    assert (answer.status, answer.json["status"], answer.json["output"]) == (200, "queued", [])
    assert (later.json["status"], later.json["background"]) == ("completed", True)


async def test_a_slow_answer_is_cancelled_and_its_stream_ends_with_an_error(tmp_path: Path) -> None:
    slow = FINAL | {"delay": 3_600}
    async with portico(**scripted(tmp_path, ROUNDS[0], slow)) as (served, _):
        name = (await create(served, background=True, tools=[CALCULATOR])).json["id"]
        streams: list[HttpAnswer] = []

        async def read() -> None:
            streams.append(await retrieve(served, name, "?stream=true"))

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            while len((await retrieve(served, name)).json["output"]) < 3:  # noqa: ASYNC110 - HTTP has no event for it
                await anyio.sleep(0.01)
            running = await retrieve(served, name)
            cancelled = await command(served, "POST", f"{name}/cancel")
        again = await command(served, "POST", f"{name}/cancel")
    check_answer(running.json)
    check_answer(cancelled.json)
    assert (running.json["status"], kinds(running.json)) == ("in_progress", ["message", "mcp_call", "mcp_call"])
    assert (cancelled.json["status"], again.json["status"]) == ("cancelled", "cancelled")
    frames = checked_frames(streams[0])
    assert [frame["type"] for frame in frames[-2:]] == ["error", "response.failed"]
    assert frames[-2]["error"]["code"] == "CANCELLED_SIGNAL"
    assert fold(frames) == running.json["output"]


async def test_an_answer_is_deleted_unless_later_ones_follow_it() -> None:
    async with portico() as (served, _):
        first = (await create(served)).json["id"]
        second = (await create(served, previous_response_id=first)).json["id"]
        refused = await command(served, "DELETE", first)
        gone = [await command(served, "DELETE", name) for name in (second, first)]
        read = [await retrieve(served, name) for name in (second, first)]
    assert (refused.status, refused.json["code"]) == (409, "REQUEST_HAS_FORKS")
    assert [answer.json for answer in gone] == [
        {"id": name, "object": "response", "deleted": True} for name in (second, first)
    ]
    assert [answer.status for answer in read] == [404, 404]


async def test_an_answer_repeats_instructions_and_format_also_when_it_is_read_later() -> None:
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    form = {"type": "json_schema", "name": "sums", "description": None, "schema": schema, "strict": False}
    async with portico() as (served, _):
        answer = await create(served, instructions="Be brief.", text={"format": form})
        frames = checked_frames(await create(served, instructions="Be brief.", text={"format": form}, stream=True))
        read = await retrieve(served, answer.json["id"])
        plain = await create(served, [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
        again = await retrieve(served, plain.json["id"])
        refused = await create(served, text={"format": form | {"name": 3}})
    for body in (answer.json, read.json, frames[0]["response"], frames[-1]["response"]):
        assert (body["instructions"], body["text"]["format"]) == ("Be brief.", form | {"schema": None})
    assert [(body["instructions"], body["text"]["format"]) for body in (plain.json, again.json)] == [
        *[(None, {"type": "text"})] * 2
    ]
    assert (refused.status, refused.json["error"]["param"]) == (400, "text.format.name")


async def test_an_answer_that_is_not_stored_is_not_read_again() -> None:
    async with portico() as (served, _):
        answer = await create(served, store=False)
        read = await retrieve(served, answer.json["id"])
        followed = await create(served, previous_response_id=answer.json["id"])
    assert (answer.json["status"], answer.json["store"], read.status) == ("completed", False, 404)
    assert (followed.status, followed.json["error"]["code"]) == (404, "previous_response_not_found")


@pytest.mark.parametrize("name", ["resp_1", "msg_" + 32 * "0", "resp-" + 32 * "0", "resp_" + 32 * "0", "q", "%00"])
async def test_an_unknown_id_is_a_404_on_every_route(name: str) -> None:
    async with portico() as (served, _):
        answers = [
            *[await command(served, "GET", name + rest) for rest in ("", "?stream=true", "/input_items")],
            await command(served, "POST", f"{name}/cancel"),
            await command(served, "DELETE", name),
        ]
    assert [(answer.status, answer.json["error"]["type"]) for answer in answers] == [(404, "invalid_request_error")] * 5


async def test_an_answer_that_is_not_stored_may_ask_for_reasoning(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"store": False, "reasoning": {"summary": "auto"}}
    async with portico(**scripted(tmp_path, FINAL, FINAL)) as (served, _):
        answer = await create(served, **asked)
        frames = checked_frames(await create(served, stream=True, **asked))
    assert (answer.status, texts(answer.json), answer.json["store"]) == (200, [TEXT], False)
    assert fold(frames) == frames[-1]["response"]["output"]
    without_ids = [
        re.sub("[0-9a-f]{32}", "HEX", orjson.dumps(each["output"]).decode())
        for each in (answer.json, frames[-1]["response"])
    ]
    assert without_ids[0] == without_ids[1]
    assert kinds(answer.json) == ["reasoning", "message"]


async def test_reasoning_is_shown_beside_rules_too_and_that_of_a_refused_text_is_not(tmp_path: Path) -> None:
    asked: dict[str, Any] = {
        "tools": [CALCULATOR, WEATHER],
        "reasoning": {"summary": "auto"},
        "portico": {"output": {"rules": [{"type": "length", "min": 5}]}},
    }
    short = {"reasoning": "Too short.", "text": "Hm."}
    found = []
    for number, fields in enumerate(({}, {"stream": True}, {"store": False}, {"store": False, "stream": True})):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with portico(**scripted(folder, ROUNDS[0], short, FINAL)) as (served, _):
            answer = await create(served, **asked, **fields)
            body = checked_frames(answer)[-1]["response"] if fields.get("stream") else answer.json
        found.append(re.sub("[0-9a-f]{32}", "HEX", orjson.dumps(body["output"]).decode()))
        assert kinds(body) == ["reasoning", "message", "mcp_call", "mcp_call", "reasoning", "message"], fields
    assert found == [found[0]] * 4
    assert "Too short." not in found[0]


async def test_a_header_stores_what_its_client_would_not(tmp_path: Path) -> None:
    async with portico(**scripted(tmp_path, FINAL)) as (served, _):
        body = orjson.dumps({"model": "default", "input": "Hello", "store": False})
        answer = await served.post(body, {"portico-store": "true"}, path=PATH)
        read = await retrieve(served, answer.json["id"])
        refused = await served.post(body, {"portico-store": "yes"}, path=PATH)
    assert (answer.json["store"], read.status, texts(read.json)) == (True, 200, [TEXT])
    assert (refused.status, refused.json["error"]["message"]) == (400, "portico-store: must be true, or absent")


async def test_a_reference_is_to_an_item_of_any_answer_before() -> None:
    async with portico() as (served, _):
        first = (await create(served)).json
        second = (await create(served, previous_response_id=first["id"])).json
        other = (await create(served)).json
        references = [{"type": "item_reference", "id": each["output"][0]["id"]} for each in (first, second, other)]
        hello = {"role": "user", "content": "And?"}
        follow = await create(served, [*references[:2], hello], previous_response_id=second["id"])
        refused = [
            await create(served, [*references, hello], previous_response_id=second["id"]),
            await create(served, [hello, references[1]], previous_response_id=first["id"]),
            await create(served, [references[0], hello]),
        ]
        unknown = await create(served, [references[0]], previous_response_id=f"{other['id'][:-4]}0000")
    assert (follow.status, texts(follow.json)[0][-6:]) == (200, '"And?"')
    assert [(each.status, each.json["error"]["param"]) for each in refused] == [
        *((400, "input.2.id"), (400, "input.1.id"), (400, "input.0.id"))
    ]
    assert (unknown.status, unknown.json["error"]["code"]) == (404, "previous_response_not_found")


async def test_an_answer_that_another_replica_is_still_writing_is_looked_up_once_more(tmp_path: Path) -> None:
    async with portico(storage={"url": f"sqlite:///{tmp_path}/portico.db"}) as (served, _):
        first = (await create(served)).json["id"]
        assert (await retrieve(served, first)).status == 200
        with closing(sqlite3.connect(tmp_path / "portico.db", isolation_level=None)) as database:
            database.execute("UPDATE executions SET tenant = 'elsewhere'")
            async with anyio.create_task_group() as group:

                async def write() -> None:
                    await anyio.sleep(SECOND_LOOK_SECONDS / 2)
                    database.execute("UPDATE executions SET tenant = 'local'")

                group.start_soon(write)
                follow = await create(served, "And?", previous_response_id=first)
    assert (follow.status, texts(follow.json)[0][-6:]) == (200, '"And?"')


async def test_results_for_an_unknown_answer_are_refused_as_one_that_is_not_found() -> None:
    digits = "0" * 12 + "7" + "0" * 19
    result = {"type": "function_call_output", "call_id": f"call_{digits}_0", "output": "rain"}
    async with portico() as (served, _):
        refused = await create(served, [result], previous_response_id=f"resp_{digits}")
    assert (refused.status, refused.json["error"]["code"]) == (404, "previous_response_not_found")


async def test_what_openai_has_at_such_a_path_and_the_service_has_not_is_a_404() -> None:
    async with portico() as (served, _):
        refused = [await served.post(b"{}", path=f"{PATH}/{path}") for path in ("compact", "input_tokens", "resp_x")]
    assert [(each.status, each.json["error"]["type"]) for each in refused] == [(404, "invalid_request_error")] * 3


async def test_an_execution_that_another_replica_continues_is_no_reason_to_ask_again() -> None:
    headers = {"Content-Type": "application/json", "Idempotency-Key": "k"}
    async with (
        portico(server={"drain_seconds": 1}) as (served, service),
        served.connect() as client,
        served.connect() as reader,
    ):
        for connection, fields in ((client, {}), (reader, {"stream": True, "conversation": "talk"})):
            body = orjson.dumps({"model": "default", "input": "[[slow:60]] Hello", **fields})
            await connection.send(request_bytes("POST", PATH, headers, body))
            headers.pop("Idempotency-Key", None)
        await wait_for_running(service, 2)
        await service.drain()
        answer, stream = await client.answer(), await reader.answer()
        shown = (await served.get(answer.headers["location"])).json
    assert (answer.status, answer.json["code"], answer.headers["x-should-retry"]) == (
        *(400, "REQUEST_IN_PROGRESS", "false"),
    )
    assert (shown["state"], shown["response"]) == ("EXECUTE", None)
    assert [(frame["type"], frame.get("error", {}).get("code")) for frame in frames_of(stream.body)[-2:]] == [
        ("error", "invalid_prompt"),
        ("response.failed", None),
    ]


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ACCEPTED: Mapping[str, tuple[dict[str, Any], str]] = MappingProxyType(
    {
        "basic text": ({"input": [message("user", "Say hello.")]}, "message"),
        "streaming": ({"input": [message("user", "Count to five.")], "stream": True}, "message"),
        "system prompt": ({"input": [message("system", "Be a pirate."), message("user", "Say hello.")]}, "message"),
        "tool calling": (
            {"input": [message("user", "How is the weather?")], "tools": [WEATHER], "tool_choice": "required"},
            "function_call",
        ),
        "image input": (
            {
                "input": [
                    message(
                        "user",
                        {"type": "input_text", "text": "What is this?"},
                        {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"},
                    )
                ]
            },
            "message",
        ),
        "several turns": (
            {"input": [message("user", "I am Ada."), message("assistant", "Hello Ada."), message("user", "My name?")]},
            "message",
        ),
    }
)
"""The cases of the acceptance suite of Open Responses, with the type of the item that ends each answer."""


async def test_the_cases_of_the_acceptance_suite_of_open_responses_are_answered() -> None:
    async with portico() as (served, _):
        for name, (fields, kind) in ACCEPTED.items():
            answer = await served.post(orjson.dumps({"model": "default", **fields}), path=PATH)
            assert answer.status == 200, name
            body = checked_frames(answer)[-1]["response"] if fields.get("stream") else answer.json
            check_answer(body)
            assert (body["status"], kinds(body)[-1]) == ("completed", kind), name


async def test_two_follow_ups_of_one_answer_at_once_do_not_see_each_other() -> None:
    answers: dict[str, HttpAnswer] = {}
    async with portico() as (served, _):
        first = (await create(served, "I am Ada.")).json["id"]

        async def follow(text: str) -> None:
            answers[text] = await create(served, text, previous_response_id=first)

        async with anyio.create_task_group() as group:
            group.start_soon(follow, "Tea?")
            group.start_soon(follow, "Coffee?")
        inputs = {
            text: (await command(served, "GET", f"{answer.json['id']}/input_items")).json["data"]
            for text, answer in answers.items()
        }
    assert {text: texts(answer.json)[0][-len(text) - 2 :] for text, answer in answers.items()} == {
        "Tea?": '"Tea?"',
        "Coffee?": '"Coffee?"',
    }
    assert {text: [each["content"][0]["text"] for each in items] for text, items in inputs.items()} == {
        "Tea?": ["Tea?"],
        "Coffee?": ["Coffee?"],
    }
    assert {answer.json["previous_response_id"] for answer in answers.values()} == {first}


async def test_input_items_are_listed_in_pages() -> None:
    sent = [{"role": "user", "content": text} for text in "abc"]
    async with portico() as (served, _):
        name = (await create(served, sent)).json["id"]
        first = (await command(served, "GET", f"{name}/input_items?limit=2")).json
        rest = (await command(served, "GET", f"{name}/input_items?limit=2&after={first['last_id']}")).json
        refused = await command(served, "GET", f"{name}/input_items?after=x")
    assert [each["content"][0]["text"] for each in first["data"] + rest["data"]] == ["c", "b", "a"]
    assert (first["has_more"], rest["has_more"], rest["first_id"]) == (True, False, rest["last_id"])
    assert (refused.status, refused.json["error"]["param"]) == (400, "after")


async def test_a_text_that_was_cut_is_incomplete(tmp_path: Path) -> None:
    cut = {"chunks": ["It was ", "a dark"], "finish_reason": "length"}
    async with portico(**scripted(tmp_path, cut, cut)) as (served, _):
        answer = (await create(served, max_output_tokens=4)).json
        frames = checked_frames(await create(served, max_output_tokens=4, stream=True))
    check_answer(answer)
    assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert answer["output"][-1]["status"] == "incomplete"
    assert frames[-1]["type"] == "response.incomplete"
    assert fold(frames) == frames[-1]["response"]["output"]


async def test_a_failure_in_a_stream_is_an_error_and_a_failed_answer(tmp_path: Path) -> None:
    broken = {"fault": "refused", "after_chunks": 2}
    async with portico(**scripted(tmp_path, broken, broken)) as (served, _):
        refused = await create(served)
        frames = checked_frames(await create(served, stream=True))
        read = await retrieve(served, frames[-1]["response"]["id"])
    assert (refused.status, refused.json["error"]["type"]) == (500, "model_error")
    assert [frame["type"] for frame in frames[-2:]] == ["error", "response.failed"]
    check_answer(read.json)
    assert (read.json["status"], read.json["error"]["code"]) == ("failed", "INFERENCE_ENGINE_ERROR")


async def test_the_extension_asks_for_a_mode_and_shows_how_it_ran() -> None:
    async with portico() as (served, _):
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        form = {"format": {"type": "json_schema", "name": "number", "schema": schema}}
        answer = await create(served, text=form, portico={"mode": "redundant"})
        again = await retrieve(served, answer.json["id"])
        quoted = await create(served, portico={"quote": True})
        plain = await create(served)
    assert answer.json["portico"]["mode"] == "redundant"
    assert again.json["portico"] == answer.json["portico"]
    assert quoted.json["output"] == []
    assert quoted.json["portico"]["quote"]["inferences"]
    assert "portico" not in plain.json


async def test_what_is_ignored_is_named() -> None:
    async with portico() as (served, _):
        answer = await create(served, seed2=1, tools=[{"type": "web_search"}], include=["reasoning.encrypted_content"])
    assert answer.headers["portico-ignored"] == "include.reasoning.encrypted_content, seed2, tools.web_search"


async def test_the_same_idempotency_key_gives_the_same_answer() -> None:
    async with portico() as (served, _):
        body = orjson.dumps({"model": "default", "input": "Hello"})
        first, second = [await served.post(body, {"Idempotency-Key": "k"}, path=PATH) for _ in range(2)]
    assert second.json == first.json
    assert second.headers["idempotency-replayed"] == "true"


async def test_a_follow_up_of_a_mixed_reply_brings_both_results_to_the_provider_and_runs_the_server_tool_once() -> None:
    calls = [{**call, "id": f"provider-{number}"} for number, call in enumerate((SUM, RAIN))]
    script = [chat_reply("Both.", calls), chat_reply("It rains."), chat_reply("Still.")]
    async with ScriptedUpstream(*script) as upstream:
        engine = {"model": "openai://m", "base_url": upstream.url, "api": "chat_completions"}
        async with portico(engines={"only": engine}) as (served, service):
            asked = {"tools": [CALCULATOR, WEATHER]}
            first = (await create(served, **asked)).json
            call = first["output"][-1]
            result = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
            previous = {"previous_response_id": first["id"], **asked}
            answers = [await create(served, items, **previous) for items in ([result], [call, result])]
            events = await service.facade.executions.events(LOCAL, named_response(first["id"]).request_id)
            unknown = await create(served, [result | {"call_id": call["call_id"][:-1] + "7"}], **previous)
    assert kinds(first) == ["message", "mcp_call", "function_call"]
    assert [texts(answer.json) for answer in answers] == [["It rains."], ["Still."]]
    for request in upstream.requests[1:]:
        results = [
            (each["tool_call_id"], each["content"]) for each in request.json()["messages"] if each["role"] == "tool"
        ]
        assert results == [("provider-0", "51"), ("provider-1", "rain")]
    assert [type(each.event).__name__ for each in events].count("ToolEnd") == 1
    assert (unknown.status, unknown.json["error"]["type"]) == (400, "invalid_request_error")


def chat_reply(text: str, calls: Sequence[dict[str, Any]] = ()) -> Script:
    """Return a chat completion of a provider."""
    functions = [
        {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": arguments}}
        for call in calls
        for arguments in [orjson.dumps(call["arguments"]).decode()]
    ]
    message = {"role": "assistant", "content": text, **({"tool_calls": functions} if functions else {})}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if functions else "stop"}
    return reply({"model": "m", "choices": [choice], "usage": usage})
