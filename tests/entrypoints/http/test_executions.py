"""Existing executions over HTTP: list, show, read events, resume, cancel, replay."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from tests.support.http_server import ClientConnection, HttpAnswer, RunningServer, request_bytes
from tests.support.portico import (
    ASK_PERSON,
    EVENTS,
    JSON_BODY,
    RESPOND_ASYNC,
    chat,
    events,
    listed_ids,
    portico,
    resume,
    send_command,
    sequence_numbers,
)
from tests.support.server_state import wait_for_disconnect, wait_for_idle, wait_for_running, wait_for_state

ROUTES = [
    ("GET", ""),
    ("GET", "/events"),
    ("GET", "/trace"),
    ("GET", "/input"),
    ("GET", "/steps"),
    ("POST", "/resume"),
    ("POST", "/cancel"),
    ("POST", "/replay"),
    ("POST", "/fork"),
]


async def test_an_execution_is_listed_as_soon_as_it_was_answered() -> None:
    async with portico() as (served, _):
        for name in ("a", "b"):
            await served.post(chat("Hello", request_id=name))
            assert (await listed_ids(served, ""))[0] == name


async def test_executions_are_listed_newest_first_by_pages_and_by_filters() -> None:
    async with portico() as (served, _):
        for name in ("a", "b", "c"):
            await served.post(chat("Hello", request_id=name))
        await served.post(chat(ASK_PERSON, request_id="d"))
        first = (await served.get("/v1/executions?limit=3")).json
        rest = (await served.get(f"/v1/executions?limit=3&after={first['next']}")).json
        assert [each["request_id"] for each in first["data"]] == ["d", "c", "b"]
        assert first["has_more"] is True
        assert [each["request_id"] for each in rest["data"]] == ["a"]
        assert (rest["has_more"], rest["next"]) == (False, None)
        assert await listed_ids(served, "?state=SUSPENDED") == ["d"]
        assert await listed_ids(served, "?state=SUSPENDED,COMPLETE,COMPLETE&limit=3") == ["d", "c", "b"]
        assert await listed_ids(served, "?mode=chat&state=COMPLETE") == ["c", "b", "a"]
        assert await listed_ids(served, "?mode=plan") == []
        assert await listed_ids(served, "?session_id=s-1") == []


async def test_executions_are_found_by_the_beginning_of_an_id_and_by_their_origin() -> None:
    async with portico() as (served, _):
        for name, session in (("ab-1", None), ("ab-2", None), ("abc", None), ("z", "ab-s"), ("y", "s-ab")):
            await served.post(chat("Hello", request_id=name, **({} if session is None else {"session_id": session})))
        assert await listed_ids(served, "?q=ab") == ["z", "abc", "ab-2", "ab-1"]
        assert await listed_ids(served, "?q=ab-&limit=2") == ["z", "ab-2"]
        assert await listed_ids(served, "?q=ab-s&state=COMPLETE,ERROR") == ["z"]
        assert await listed_ids(served, "?q=b") == []
        await served.post(chat("And now?", request_id="next", after="abc"))
        assert (await served.get("/v1/executions/next")).status == 200
        body = orjson.dumps({"from_step": 0, "overrides": {"messages": [{"role": "user", "content": "Say\nmore."}]}})
        forked = await served.post(body, path="/v1/executions/abc/fork")
        (fork, after_end) = (await served.get("/v1/executions?origin=abc&view=summary")).json["data"]
        assert [fork["request_id"], after_end["request_id"]] == [forked.json["request_id"], "next"]
        assert [fork["title"], after_end["title"]] == ["Say more.", "And now?"]
        assert fork["origin"] == {"request_id": "abc", "from_step": 0}
        assert after_end["origin"] == {"request_id": "abc", "from_step": "end"}
        assert (await served.get("/v1/executions/abc")).json["origin"] is None
        assert await listed_ids(served, "?origin=next") == []


async def test_a_view_has_the_same_title_user_and_number_of_events_in_memory_and_stored(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text('[{"chunks": ["slow"], "delay": 1}]')
    engines = {"one": {"model": f"scripted://{tmp_path}/one.json"}}
    async with portico(engines=engines) as (served, service):
        text = f"Pay with {' ' * 100} 4111 1111 1111 1111\nplease, {'x' * 100}"
        async with served.connect() as client:
            await client.send(request_bytes("POST", "/v1/execute", JSON_BODY, chat(text, request_id="q")))
            await wait_for_running(service)
            running = (await served.get("/v1/executions/q")).json
            await client.answer()
        stored = (await served.get("/v1/executions/q")).json
        log = sequence_numbers(events(await served.get("/v1/executions/q/events", EVENTS)))
    assert running["title"] == stored["title"] == f"Pay with [redacted:card] please, {'x' * 47}"
    assert (running["state"], stored["state"]) == ("EXECUTE", "COMPLETE")
    assert (running["user"], stored["user"]) == ("local", "local")
    assert 0 < running["events"] < stored["events"] == log[-1]


@asynccontextmanager
async def searched(tmp_path: Path) -> AsyncIterator[RunningServer]:
    """Open a server with three executions: a and b succeed, c fails."""
    (tmp_path / "one.json").write_text('[{"text": "yes"}, {"text": "no"}, {"fault": "server_error"}]')
    engines = {"one": {"model": f"scripted://{tmp_path}/one.json", "price": {"input": 1.0, "output": 2.0}}}
    async with portico(engines=engines, failover={"max_retries": 0}) as (served, _):
        await served.post(chat("Hello", request_id="a", metadata={"team": "red", "ticket": "7"}))
        await served.post(chat("Hello", request_id="b", metadata={"team": "red", "x y": "é=&\x00"}))
        await served.post(chat("Hello", request_id="c", metadata={"team": "blue"}))
        assert (await served.get("/v1/executions/c")).status == 200
        yield served


async def test_executions_are_found_by_metadata_code_model_and_time(tmp_path: Path) -> None:
    async with searched(tmp_path) as served:
        times = [(await served.get(f"/v1/executions/{name}")).json["created_at"] for name in "abc"]
        offset = (datetime.fromisoformat(times[1]) + timedelta(0)).astimezone(timezone(timedelta(hours=2))).isoformat()
        expected = {
            "metadata.team=red": "ba",
            "metadata.team=red&metadata.ticket=7": "a",
            "metadata.team=blue&metadata.ticket=7": "",
            "metadata.x%20y=%C3%A9%3D%26%00": "b",
            "metadata.team=green": "",
            "code=INFERENCE_ENGINE_ERROR": "c",
            "code=TOOL_TIMEOUT": "",
            "model=one": "cba",
            "model=another": "",
            "agent=support": "",
            f"since={times[1]}": "cb",
            f"until={times[1]}": "a",
            f"since={times[0]}&until={times[2]}": "ba",
            f"since={offset.replace('+', '%2B')}": "cb",
            "order=asc": "abc",
            "order=asc&metadata.team=red": "ab",
            "order=desc&state=COMPLETE": "ba",
        }
        for query, names in expected.items():
            assert "".join(await listed_ids(served, f"?{query}")) == names, query


async def test_pages_of_the_oldest_first_continue_in_their_order(tmp_path: Path) -> None:
    async with searched(tmp_path) as served:
        first = (await served.get("/v1/executions?order=asc&limit=2")).json
        rest = (await served.get(f"/v1/executions?order=asc&limit=2&after={first['next']}")).json
        other_order = await served.get(f"/v1/executions?after={first['next']}")
        assert [[each["request_id"] for each in page["data"]] for page in (first, rest)] == [["a", "b"], ["c"]]
        assert (rest["has_more"], rest["next"]) == (False, None)
        assert (other_order.status, other_order.json["code"]) == (422, "REQUEST_INVALID")


async def test_a_summary_has_figures_instead_of_the_response(tmp_path: Path) -> None:
    async with searched(tmp_path) as served:
        whole = (await served.get("/v1/executions")).json["data"]
        brief = (await served.get("/v1/executions?view=summary")).json["data"]
        figures = ("tokens", "cost", "duration")
        for full, short in zip(whole, brief, strict=True):
            response = full.pop("response")
            assert full.pop("progress") is None
            tokens, cost, duration = (short.pop(name) for name in figures)
            assert short == full
            assert (short["provider"], cost) == ("one", response["cost"])
            assert tokens == response["token_usage"]["total_tokens"]
            assert 0 < duration < 60
        assert brief[0]["last_error"]["code"] == "INFERENCE_ENGINE_ERROR"


async def test_the_summary_of_a_waiting_execution_has_no_duration() -> None:
    async with portico() as (served, _):
        await served.post(chat(ASK_PERSON, request_id="q"))
        [brief] = (await served.get("/v1/executions?view=summary")).json["data"]
    assert (brief["state"], brief["duration"], len(brief["suspensions"])) == ("SUSPENDED", None, 1)
    assert brief["tokens"] > 0


@pytest.mark.parametrize(
    "query",
    [
        *("since=yesterday", "until=7", "since=2026-11-22T18:30:00", "since=2026-99-99T00:00:00Z", "code=ZORK"),
        *("order=up", "view=all", "model=", "metadata.a=1&metadata.a=2", "metadata=1", "zork.a=1"),
        "&".join(f"metadata.{number}=1" for number in range(9)),
    ],
)
async def test_an_invalid_filter_is_refused_with_its_name(query: str) -> None:
    async with portico() as (served, _):
        answer = await served.get(f"/v1/executions?{query}")
    assert (answer.status, answer.json["code"]) == (422, "REQUEST_INVALID")
    assert "given twice" in answer.json["detail"] or query.partition("=")[0].partition(".")[0] in answer.json["detail"]


async def test_a_cursor_outlives_its_item_and_belongs_to_one_collection() -> None:
    async with portico() as (served, _):
        for name in ("a", "b", "c", "d"):
            await served.post(chat("Hello", request_id=name, session_id=f"s-{name}"))
        pages = [(await served.get(f"{path}?limit=2")).json for path in ("/v1/executions", "/v1/sessions")]
        places = [page["next"] for page in pages]
        for name in ("c", "b"):
            assert (await served.ask(request_bytes("DELETE", f"/v1/sessions/s-{name}", {}))).status == 204
        left = await listed_ids(served, f"?limit=2&after={places[0]}")
        sessions: Any = (await served.get(f"/v1/sessions?limit=2&after={places[1]}")).json["data"]
        refused = [
            await served.get(f"{path}?after={place}")
            for path, other in (("/v1/executions", places[1]), ("/v1/sessions", places[0]))
            for place in (other, str(other)[:-1], "c", "")
        ]
    assert (left, [each["session_id"] for each in sessions]) == (["a"], ["s-a"])
    assert {(answer.status, answer.json["code"], str(answer.json["detail"])[:7]) for answer in refused} == {
        (422, "REQUEST_INVALID", "after: ")
    }


async def test_an_execution_is_shown_with_its_status_and_response() -> None:
    async with portico() as (served, _):
        response = (await served.post(chat("Please calculate 17*3", request_id="q"))).json
        shown = await served.get("/v1/executions/q")
    assert shown.headers["x-request-id"] == "q"
    stands = shown.json
    assert stands.pop("created_at") <= stands.pop("started_at") <= stands.pop("entered_at")
    assert stands == {
        "request_id": "q",
        "title": "Please calculate 17*3",
        "user": "local",
        "origin": None,
        "session_id": None,
        "mode": "chat",
        "agent": None,
        "channel": "api",
        "state": "COMPLETE",
        "events": 23,
        "run_at": None,
        "progress": None,
        "attempt": 1,
        "provider": "rehearsal",
        "model": "rehearsal",
        "total_steps": 2,
        "last_step": "round 2",
        "fork_points": 2,
        "last_error": None,
        "suspensions": [],
        "response": response,
    }


async def test_an_error_that_was_recovered_from_is_shown(tmp_path: Path) -> None:
    engines = {}
    for name, reply in (("a", {"fault": "rate_limited"}), ("b", {"text": "ok"})):
        (tmp_path / f"{name}.json").write_bytes(orjson.dumps([reply] * 2))
        engines[name] = {"model": f"scripted:///{tmp_path}/{name}.json"}
    async with portico(engines=engines, failover={"max_retries": 0}) as (served, _):
        answered = await served.post(chat("Hello", request_id="q"))
        shown = (await served.get("/v1/executions/q")).json
    assert (answered.json["error"], shown["state"]) == (None, "COMPLETE")
    assert shown["last_error"]["code"] == "INFERENCE_MODEL_UNAVAILABLE"
    assert (shown["total_steps"], shown["fork_points"]) == (1, 0)


async def test_the_steps_of_a_plan_are_counted_and_named() -> None:
    call = {"name": "calculate", "arguments": {"expression": "17*3"}}
    steps = [{"name": "first", "type": "tool", "input": call}, {"name": "second", "type": "infer", "input": "Hello"}]
    async with portico() as (served, _):
        await served.post(chat("Hello", request_id="q", mode="plan", plan={"steps": steps}))
        shown = (await served.get("/v1/executions/q")).json
    assert (shown["total_steps"], shown["last_step"]) == (2, "second")


@pytest.mark.parametrize(("method", "route"), ROUTES)
@pytest.mark.parametrize("name", ["unheard-of", "a%0d%0ab", "x" * 129, "%C3%A9", "%00"])
async def test_an_unknown_id_is_404_before_any_other_error(method: str, route: str, name: str) -> None:
    path = f"/v1/executions/{name}{route}"
    async with portico() as (served, _):
        answer = await served.ask(request_bytes(method, path, {}, b"{" if method == "POST" else None))
    assert (answer.status, answer.json["code"]) == (404, "REQUEST_NOT_FOUND")
    assert answer.headers["content-type"] == "application/problem+json"


async def test_events_are_read_from_the_start_or_after_any_number_and_not_beyond_the_end() -> None:
    path = "/v1/executions/q/events"
    async with portico() as (served, _):
        received = events(await served.post(chat("Please calculate 17*3", request_id="q"), EVENTS))
        kept = [event for event in received if "sequence_number" in event]
        whole = await served.get(path)
        behind = await served.get(f"{path}?after=5")
        wins = await served.get(f"{path}?after=5", {"Last-Event-ID": "7"})
        over = await served.get(f"{path}?after={len(kept)}")
    assert events(whole) == kept
    assert whole.headers["content-type"] == "text/event-stream"
    assert sequence_numbers(events(behind)) == list(range(6, len(kept) + 1))
    assert sequence_numbers(events(wins)) == list(range(8, len(kept) + 1))
    assert (over.status, over.body) == (204, b"")
    assert "content-length" not in over.headers


@pytest.mark.parametrize(("query", "headers"), [("?after=x", {}), ("?zork=1", {}), ("", {"Last-Event-ID": "x"})])
async def test_an_invalid_event_number_is_422(query: str, headers: dict[str, str]) -> None:
    async with portico() as (served, _):
        await served.post(chat("Hello", request_id="q"))
        answer = await served.get(f"/v1/executions/q/events{query}", headers)
    assert (answer.status, answer.json["code"]) == (422, "REQUEST_INVALID")


async def read_some(client: ClientConnection, last: int) -> list[int]:
    """Return the numbers of a first part of the log, after the given one."""
    named = {"Last-Event-ID": str(last)} if last else {}
    await client.send(request_bytes("GET", "/v1/executions/q/events", named))
    assert (await client.head())[0] == 200
    return sequence_numbers(events(HttpAnswer(200, {}, await client.chunk())))


async def test_a_reader_that_reconnects_cancels_nothing_and_misses_nothing() -> None:
    async with portico() as (served, service):
        await served.post(chat("[[slow:5]] Please calculate 17*3", request_id="q"), RESPOND_ASYNC)
        read: list[int] = []
        for _ in range(3):
            async with served.connect() as client:
                read += await read_some(client, read[-1] if read else 0)
            await wait_for_disconnect(served)
        last = read[-1]
        rest = await served.get("/v1/executions/q/events", {"Last-Event-ID": str(last)})
        await wait_for_idle(service)
    assert events(rest)[-1]["type"] == "execution.completed"
    assert read + sequence_numbers(events(rest)) == list(range(1, len(read) + len(sequence_numbers(events(rest))) + 1))


async def test_the_trace_summarises_the_events_of_a_success_and_of_a_failure() -> None:
    async with portico() as (served, _):
        await served.post(chat("Please calculate 17*3", request_id="q"))
        await served.post(chat("[[fail:429]] Hello", request_id="bad"))
        received, failed = [(await served.get(f"/v1/executions/{name}/trace")).json for name in ("q", "bad")]
    assert (received["outcome"], received["error"], received["fallback_attempts"]) == ("COMPLETE", None, 0)
    assert [stage["stage"] for stage in received["stages"]] == [
        *("AuthResolve", "HistorySanitize", "ContextGuard", "ToolSplit", "Execute", "FailoverDecide")
    ]
    assert [call["tool_name"] for call in received["tool_calls"]] == ["calculate"]
    assert (received["provider_used"], failed["outcome"]) == ("rehearsal", "ERROR")
    assert failed["error"]["code"] == "INFERENCE_MODEL_UNAVAILABLE"
    assert [each["finish_reason"] for each in failed["attempts"]] == ["error", "error"]


@pytest.mark.parametrize("form", [{}, EVENTS, RESPOND_ASYNC], ids=["json", "events", "async"])
async def test_a_resume_is_answered_in_each_of_the_three_forms(form: dict[str, str]) -> None:
    async with portico() as (served, service):
        asked = await served.post(chat(ASK_PERSON, request_id="q"))
        assert (asked.status, asked.json["state"]) == (202, "SUSPENDED")
        pending = (await served.get("/v1/suspensions")).json["data"]
        names = {"request_id": "q", "session_id": None, "user": "local", "channel": "api", "agent": None}
        assert pending == [asked.json["suspensions"][0] | names]
        answer = await resume(served, form)
        await wait_for_idle(service)
        shown = (await served.get("/v1/executions/q")).json
        assert (await served.get("/v1/suspensions")).json["data"] == []
        assert (await send_command(served, "replay")).json["identical"] is True
        assert (shown["total_steps"], shown["last_step"], shown["fork_points"]) == (2, "round 2", 2)
    assert shown["response"]["tool_calls_made"][0]["result"] == "yes"
    match form:
        case {"Accept": _}:
            assert answer.headers["location"] == "/v1/executions/q/events"
            assert events(answer)[-1]["response"] == shown["response"]
        case {"Prefer": _}:
            assert (answer.status, answer.headers["location"]) == (202, "/v1/executions/q")
            assert answer.headers["preference-applied"] == "respond-async"
        case _:
            assert (answer.status, answer.json) == (200, shown["response"])
            assert answer.headers["x-request-id"] == "q"


async def test_of_two_concurrent_resumes_one_is_accepted() -> None:
    answers: list[HttpAnswer] = []

    async def answer() -> None:
        answers.append(await resume(served))

    async with portico() as (served, _):
        await served.post(chat(ASK_PERSON, request_id="q"))
        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(answer)
    taken, refused = sorted(answers, key=lambda each: each.status)
    assert (taken.status, refused.status) == (200, 409)
    assert refused.json["code"] in {"REQUEST_RESUME_UNEXPECTED", "REQUEST_RESUME_MISMATCH"}


@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [
        ({"tool_id": "other"}, 409, "REQUEST_RESUME_MISMATCH"),
        ({"suspension_id": "9/9"}, 409, "REQUEST_RESUME_MISMATCH"),
        ({"tool_id": ""}, 422, "REQUEST_INVALID"),
        ({"tool_id": 5}, 422, "REQUEST_INVALID"),
        ({"zork": 1}, 422, "REQUEST_INVALID"),
    ],
)
async def test_a_wrong_answer_changes_nothing(answer: dict[str, Any], status: int, code: str) -> None:
    async with portico() as (served, _):
        await served.post(chat(ASK_PERSON, request_id="q"))
        before = (await served.get("/v1/executions/q")).json
        refused = await resume(served, **answer)
        assert (refused.status, refused.json["code"], refused.json["request_id"]) == (status, code, "q")
        assert (await served.get("/v1/executions/q")).json == before
        assert (await resume(served)).status == 200


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b'{"tool_id":"ask_person","tool_id":"ask_person","payload":1}', {}, 400),
        (b'{"tool_id":"ask_person","payload":NaN}', {}, 400),
        (b'{"tool_id":"ask_person","payload":"\\ud800"}', {}, 400),
        (b'{"tool_id":"ask_person"}', {}, 422),
        (b'{"tool_id":"ask_person","payload":1}', {"Content-Type": "text/plain"}, 415),
        (b'{"tool_id":"ask_person","payload":"' + b"x" * 5_000_000 + b'"}', {}, 413),
    ],
)
async def test_a_resume_is_read_as_strictly_as_a_request(body: bytes, headers: dict[str, str], status: int) -> None:
    async with portico() as (served, _):
        await served.post(chat(ASK_PERSON, request_id="q"))
        refused = await served.post(body, headers, path="/v1/executions/q/resume")
        assert (refused.status, refused.headers["content-type"]) == (status, "application/problem+json")
        assert (await served.get("/v1/executions/q")).json["state"] == "SUSPENDED"


async def test_only_a_suspended_execution_is_resumed() -> None:
    async with portico() as (served, service):
        await served.post(chat("[[slow:5]] Hello", request_id="q"), RESPOND_ASYNC)
        while_running = await resume(served)
        await wait_for_idle(service)
        afterwards = await resume(served)
    assert [each.json["code"] for each in (while_running, afterwards)] == ["REQUEST_RESUME_UNEXPECTED"] * 2
    assert (while_running.status, afterwards.status) == (409, 409)


async def test_a_client_that_resumes_and_leaves_stops_nothing() -> None:
    async with portico() as (served, service):
        await served.post(chat(f"[[slow:5]] {ASK_PERSON}", request_id="q"))
        async with served.connect() as client:
            body = b'{"tool_id":"ask_person","payload":"yes"}'
            await client.send(request_bytes("POST", "/v1/executions/q/resume", JSON_BODY, body))
            await wait_for_running(service)
        await wait_for_disconnect(served)
        await wait_for_idle(service)
        assert (await served.get("/v1/executions/q")).json["state"] == "COMPLETE"


async def test_a_running_execution_is_cancelled_once_and_an_ended_one_stays_unchanged() -> None:
    async with portico() as (served, service):
        await served.post(chat("[[slow:30]] Hello", request_id="q"), RESPOND_ASYNC)
        stopping = await send_command(served, "cancel")
        await wait_for_idle(service)
        ended = await send_command(served, "cancel")
    assert (stopping.status, ended.status) == (202, 200)
    assert (ended.json["state"], ended.json["last_error"]["code"]) == (
        "CANCELLED",
        "CANCELLED_SIGNAL",
    )


async def test_a_cancel_is_answered_once_its_decision_is_committed(tmp_path: Path) -> None:
    """Another connection holds the lock of the database, so that nothing is committed meanwhile."""
    database, answers = tmp_path / "portico.db", []
    async with portico(storage={"url": f"sqlite:///{database}"}) as (served, service):
        await served.post(chat("[[slow:300]] Hello", request_id="q"), RESPOND_ASYNC)
        await wait_for_running(service)
        await anyio.sleep(1)
        beside = sqlite3.connect(database, isolation_level=None)
        beside.execute("BEGIN IMMEDIATE")

        async def cancel() -> None:
            answers.append(await send_command(served, "cancel"))
            answers.append(beside.execute("SELECT count(*) FROM commits WHERE key = 'stop'").fetchone()[0])

        async with anyio.create_task_group() as group:
            group.start_soon(cancel)
            await anyio.sleep(0.3)
            assert answers == []
            beside.execute("ROLLBACK")
        beside.close()
    assert (answers[0].status, answers[1]) == (202, 1)


async def test_a_cancelled_suspension_cannot_be_resumed() -> None:
    async with portico() as (served, service):
        await served.post(chat(ASK_PERSON, request_id="q"))
        assert (await send_command(served, "cancel")).status == 202
        await wait_for_idle(service)
        assert (await served.get("/v1/executions/q")).json["state"] == "CANCELLED"
        assert (await resume(served)).json["code"] == "REQUEST_RESUME_UNEXPECTED"
        assert (await served.get("/v1/suspensions")).json["data"] == []


async def test_of_a_concurrent_resume_and_cancel_one_wins_and_the_execution_ends_once() -> None:
    answers: dict[str, HttpAnswer] = {}

    async def put(name: str) -> None:
        answers[name] = await (resume(served) if name == "resume" else send_command(served, "cancel"))

    for names in (("resume", "cancel"), ("cancel", "resume")):
        async with portico() as (served, service):
            await served.post(chat(ASK_PERSON, request_id="q"))
            async with anyio.create_task_group() as group:
                for name in names:
                    group.start_soon(put, name)
            await wait_for_idle(service)
            state = (await served.get("/v1/executions/q")).json["state"]
            received = events(await served.get("/v1/executions/q/events"))
        assert answers["cancel"].status in {200, 202}
        assert answers["resume"].status in {200, 409}
        assert state in {"COMPLETE", "CANCELLED"}
        last = [event for event in received if event["type"] in {"execution.completed", "execution.cancelled"}]
        assert [event["response"]["state"] for event in last] == [state]


async def test_a_running_execution_is_not_replayed() -> None:
    async with portico() as (served, service):
        await served.post(chat("[[slow:5]] Hello", request_id="q"), RESPOND_ASYNC)
        answer = await send_command(served, "replay")
        await wait_for_idle(service)
    assert (answer.status, answer.json["code"], answer.headers["retry-after"]) == (409, "REQUEST_IN_PROGRESS", "1")


async def test_a_journaled_execution_in_the_queue_of_its_engine_executes(tmp_path: Path) -> None:
    (tmp_path / "slow.json").write_text('[{"text": "first", "delay": 60}, {"text": "second"}]')
    engines = {"slow": {"model": f"scripted://{tmp_path}/slow.json", "max_connections": 1}}
    async with portico(engines=engines) as (served, service):
        for name in ("a", "b"):
            await served.post(chat("Hello", request_id=name), RESPOND_ASYNC)
        await wait_for_running(service, 2)
        await wait_for_state(served, "b", "EXECUTE")
        types = [each["type"] for each in events(await served.get("/v1/executions/b/events?follow=false"))]
        assert "inference.start" not in types
        await wait_for_idle(service)
        assert (await served.get("/v1/executions/b")).json["response"]["content"] == "second"
