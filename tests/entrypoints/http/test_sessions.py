"""Sessions over HTTP: history, turns, and the routes that read and change them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from portico.entrypoints.http.app import create_app
from portico.orchestration.sessions import MAX_DETAIL_BYTES
from portico.settings import Secret, Settings
from tests.support.emulators import openai_chat
from tests.support.emulators.answers import EmulatedAnswer
from tests.support.emulators.server import KEY, EmulatedServer
from tests.support.http_server import HttpAnswer, RunningServer, request_bytes, running_server
from tests.support.portico import (
    ASK_PERSON,
    EVENTS,
    JSON_BODY,
    QUOTE,
    RESPOND_ASYNC,
    chat,
    events,
    portico,
    resume,
    send_command,
)
from tests.support.server_state import wait_for_disconnect, wait_for_idle, wait_for_running

SESSIONS = "/v1/sessions"
UNHEARD_OF = ["unheard-of", "a%0d%0ab", "x" * 129, "%C3%A9", "%00", "%27%20OR%201=1"]


def say(text: str, session_id: str = "s", **changes: Any) -> bytes:
    return chat(text, session_id=session_id, **changes)


async def change(
    served: RunningServer, body: bytes, path: str = f"{SESSIONS}/s", headers: dict[str, str] = JSON_BODY
) -> HttpAnswer:
    return await served.ask(request_bytes("PATCH", path, headers, body))


async def delete(served: RunningServer, path: str = f"{SESSIONS}/s") -> HttpAnswer:
    return await served.ask(request_bytes("DELETE", path, {}))


async def messages_of(served: RunningServer, session_id: str = "s") -> list[tuple[str, str]]:
    """Return role and text of all messages."""
    page = (await served.get(f"{SESSIONS}/{session_id}/messages?limit=1000")).json
    return [(each["role"], each["content"]) for each in page["data"]]


@asynccontextmanager
async def listening(**tables: Any) -> AsyncIterator[tuple[RunningServer, EmulatedServer]]:
    """Run a service with one engine, whose requests are recorded."""
    async with EmulatedServer(openai_chat.respond, EmulatedAnswer("Hello.")) as upstream:
        engine = {"model": "openai://some-model", "base_url": upstream.url, "api_key_env": Secret(KEY)}
        engines = {"only": engine | tables.pop("engine", {})}
        settings = Settings.model_validate({"storage": {"url": "sqlite://"}, "engines": engines} | tables)
        async with running_server(create_app(settings)) as served:
            yield served, upstream


def provider_messages(upstream: EmulatedServer) -> list[tuple[str, str]]:
    """Return the messages of the last provider request."""
    return [(each["role"], each["content"]) for each in orjson.loads(upstream.requests[-1].body)["messages"]]


async def test_messages_are_remembered_in_their_session_only() -> None:
    async with listening() as (served, upstream):
        first = await served.post(say("I am Ada.", request_id="r-1"))
        await served.post(say("Who am I?"))
        assert provider_messages(upstream) == [
            ("user", "I am Ada."),
            ("assistant", "Hello."),
            ("user", "Who am I?"),
        ]
        await served.post(say("Who am I?", "another"))
        assert provider_messages(upstream) == [("user", "Who am I?")]
        await served.post(chat("Who am I?"))
        assert provider_messages(upstream) == [("user", "Who am I?")]
        assert len(await messages_of(served)) == 4
        listed = (await served.get("/v1/executions?session_id=s")).json["data"]
    assert (first.status, first.json["session_id"]) == (200, "s")
    assert first.json["metadata"]["durability"] == "journaled"
    assert first.json["metadata"]["truncated_history"] is False
    assert [each["session_id"] for each in listed] == ["s", "s"]


async def test_a_session_survives_a_restart(tmp_path: Path) -> None:
    kept = {"storage": {"url": f"sqlite:///{tmp_path}/portico.db"}}
    async with listening(**kept) as (served, _):
        await served.post(say("I am Ada."))
    async with listening(**kept) as (served, upstream):
        await served.post(say("Who am I?"))
        assert provider_messages(upstream)[0] == ("user", "I am Ada.")


async def test_tool_calls_and_results_are_part_of_the_history() -> None:
    async with portico() as (served, _):
        answer = await served.post(say("Please calculate 17*3"))
        page = (await served.get(f"{SESSIONS}/s/messages")).json
        again = await served.post(say("Please calculate 2*3"))
        record = await send_command(served, "replay", str(again.json["request_id"]))
    asked, call, result, received = page["data"]
    assert asked == {"role": "user", "content": "Please calculate 17*3"}
    assert (call["role"], call["tool_calls"][0]["name"]) == ("assistant", "calculate")
    assert (result["role"], result["tool_call_id"], result["content"]) == ("tool", call["tool_calls"][0]["id"], "51")
    assert received == {"role": "assistant", "content": answer.json["content"]}
    assert (page["has_more"], page["next"]) == (False, None)
    assert record.json["identical"] is True


async def test_the_system_message_of_a_session_stays_until_it_is_replaced() -> None:
    rhyme, brief = ({"role": "system", "content": text} for text in ("Rhyme.", "Be brief."))

    def asked(*messages: dict[str, str]) -> bytes:
        return orjson.dumps({"session_id": "s", "messages": [*messages, {"role": "user", "content": "Hi"}]})

    async with listening() as (served, upstream):
        for messages, prompt in (([rhyme], "Rhyme."), ([], "Rhyme."), ([brief], "Be brief."), ([], "Rhyme.")):
            assert (await served.post(asked(*messages))).status == 200
            received = provider_messages(upstream)
            assert [text for role, text in received if role == "system"] == [prompt]
            assert received[0] == ("system", prompt)
        assert [role for role, _ in await messages_of(served)] == ["system", *["user", "assistant"] * 4]


async def test_history_is_truncated_at_the_start_of_a_turn_and_the_response_reports_it() -> None:
    async with listening(limits={"history_messages": 5}) as (served, upstream):
        answers = [await served.post(say(f"turn {number}")) for number in range(5)]
        received = provider_messages(upstream)
    assert [answer.json["metadata"]["truncated_history"] for answer in answers] == [False] * 3 + [True] * 2
    assert received == [
        ("user", "turn 2"),
        ("assistant", "Hello."),
        ("user", "turn 3"),
        ("assistant", "Hello."),
        ("user", "turn 4"),
    ]


async def test_the_history_always_fits_the_context_window() -> None:
    window = {"context_window": 1_400, "response_reserve": 400}
    async with listening(engine=window) as (served, upstream):
        for number in range(8):
            answer = await served.post(say(f"{number} " + "word " * 300, tools=[]))
            assert answer.status == 200
        assert len(provider_messages(upstream)) == 3
        assert answer.json["metadata"]["truncated_history"] is True
        too_long = await served.post(say("word " * 1_000, tools=[]))
    assert (too_long.status, too_long.json["error"]["code"]) == (413, "INFERENCE_CONTEXT_EXCEEDED")


@pytest.mark.parametrize(
    "fields",
    [
        {"mode": "structured", "output": {"schema": {"type": "object", "properties": {"size": {"enum": ["large"]}}}}},
        {"mode": "structured", "output": {"schema": {"type": "object"}}, "tools": ["calculate"]},
        {"mode": "redundant", "output": {"schema": {"type": "object"}}},
        {"mode": "plan", "plan": {"steps": [{"name": "a", "type": "infer"}]}},
        {"output": {"rules": [{"type": "length", "max": 5_000}]}},
        {"output": {"semantic": True}},
    ],
    ids=["structured", "gathering", "redundant", "plan", "rules", "judged"],
)
async def test_every_mode_adds_the_request_and_its_answer_to_the_session(fields: dict[str, Any]) -> None:
    async with portico() as (served, _):
        for _ in range(2):
            answer = await served.post(say("How large is Ulm?", **fields))
            assert answer.status == 200
            replay = await send_command(served, "replay", str(answer.json["request_id"]))
            assert replay.json["identical"] is True
        assert await messages_of(served) == [("user", "How large is Ulm?"), ("assistant", answer.json["content"])] * 2


@pytest.mark.parametrize("words", ["[[fail:500]] Hello", "[[garble]] Hello"])
async def test_a_failed_turn_is_not_remembered_and_frees_the_session(words: str) -> None:
    async with portico() as (served, _):
        assert (await served.post(say(words))).status >= 500
        assert (await served.post(say("Hello"))).status == 200
        assert [text for role, text in await messages_of(served) if role == "user"] == ["Hello"]


async def test_a_cancelled_turn_is_not_remembered_and_frees_the_session() -> None:
    async with portico() as (served, service):
        await served.post(say("[[slow:30]] Hello", request_id="q"), RESPOND_ASYNC)
        assert (await send_command(served, "cancel")).status == 202
        await wait_for_idle(service)
        assert (await served.post(say("Hello again"))).status == 200
        assert [text for role, text in await messages_of(served) if role == "user"] == ["Hello again"]


async def test_a_concurrent_turn_is_refused_as_retryable() -> None:
    async with portico() as (served, service):
        await served.post(say("[[slow:5]] Hello"), RESPOND_ASYNC)
        busy = await served.post(say("Me too", request_id="q"))
        assert (await served.get(f"{SESSIONS}/s")).json["busy"] is True
        assert (await served.post(say("Not me", "another"))).status == 200
        await wait_for_idle(service)
        assert (await served.post(say("Me too", request_id="q"))).status == 200
    assert (busy.status, busy.json["code"], busy.json["retryable"]) == (409, "REQUEST_SESSION_BUSY", True)
    assert (busy.headers["retry-after"], busy.headers["x-should-retry"]) == ("1", "true")
    assert busy.headers["content-type"] == "application/problem+json"


async def test_a_request_that_waits_gets_the_next_turn_and_sees_the_history() -> None:
    answers: dict[str, HttpAnswer] = {}

    async def asks(text: str) -> None:
        answers[text] = await served.post(say(text, if_session_busy="enqueue"))

    async with portico() as (served, service), anyio.create_task_group() as group:
        await served.post(say("[[slow:20]] first"), RESPOND_ASYNC)
        for number, text in enumerate(("second", "third", "fourth"), 2):
            group.start_soon(asks, text)
            await wait_for_running(service, number)
        await wait_for_idle(service)
        assert [text for role, text in await messages_of(served) if role == "user"] == [
            "[[slow:20]] first",
            "second",
            "third",
            "fourth",
        ]
    used = [answers[text].json["token_usage"]["input_tokens"] for text in ("second", "third", "fourth")]
    assert [answer.status for answer in answers.values()] == [200] * 3
    assert used == sorted(set(used))


async def test_a_waiting_turn_is_shown_read_and_cancelled_like_any_execution() -> None:
    async with portico() as (served, service):
        await served.post(say("[[slow:30]] Hello"), RESPOND_ASYNC)
        waits = await served.post(say("Me too", request_id="q", if_session_busy="enqueue"), RESPOND_ASYNC)
        assert (waits.status, waits.json["state"]) == (202, "INIT")
        assert (await send_command(served, "cancel")).status == 202
        await wait_for_running(service, 1)
        received = events(await served.get("/v1/executions/q/events"))
        assert [each["type"] for each in received] == [
            "lifecycle.transition",
            "stage.end",
            "lifecycle.transition",
            "execution.cancelled",
        ]
        assert (await send_command(served, "replay")).json["identical"] is True
        await wait_for_idle(service)
        assert len(await messages_of(served)) == 2
        assert (await served.get(f"{SESSIONS}/s")).json["busy"] is False


async def test_waiting_for_a_turn_is_not_running_time_but_is_limited() -> None:
    async with portico() as (served, service):
        await served.post(say("[[slow:9]] Hello"), RESPOND_ASYNC)
        fields: dict[str, Any] = {"if_session_busy": "enqueue", "hints": {"timeout": 10}}
        patient = await served.post(say("[[slow:9]] Hello", **fields))
        assert (patient.status, patient.json["state"]) == (200, "COMPLETE")
        await served.post(say("[[slow:60]] Hello"), RESPOND_ASYNC)
        too_late = await served.post(say("Hello", **fields))
        assert (too_late.status, too_late.json["error"]["code"]) == (504, "CANCELLED_TIMEOUT")
        await wait_for_idle(service)


async def test_a_stream_reports_that_its_execution_waits_for_the_turn() -> None:
    async with portico() as (served, service):
        await served.post(say("[[slow:60]] Hello"), RESPOND_ASYNC)
        async with served.connect() as client:
            body = say("Hello", if_session_busy="enqueue", on_disconnect="cancel")
            await client.send(request_bytes("POST", "/v1/execute", JSON_BODY | EVENTS, body))
            await client.head()
            assert b'"to_state":"INIT"' in await client.chunk()
            assert service.runner.in_flight == 2
        await wait_for_disconnect(served)
        await wait_for_running(service, 1)


async def test_a_session_is_busy_while_its_turn_is_suspended() -> None:
    async with portico() as (served, _):
        await served.post(say(ASK_PERSON, request_id="q"))
        for waits in ("reject", "enqueue"):
            refused = await served.post(say("Hello", if_session_busy=waits))
            assert (refused.status, refused.json["code"]) == (409, "REQUEST_RESUME_REQUIRED")
        assert await messages_of(served) == []
        assert (await resume(served)).status == 200
        assert [role for role, _ in await messages_of(served)] == ["user", "assistant", "tool", "assistant"]
        assert (await served.post(say("Hello"))).status == 200


async def test_a_cancelled_suspended_turn_frees_its_session() -> None:
    async with portico() as (served, service):
        await served.post(say(ASK_PERSON, request_id="q"))
        await send_command(served, "cancel")
        await wait_for_idle(service)
        assert (await served.post(say("Hello"))).status == 200


async def test_a_dead_process_does_not_lock_a_session(tmp_path: Path) -> None:
    kept: dict[str, Any] = {"storage": {"url": f"sqlite:///{tmp_path}/portico.db"}, "server": {"drain_seconds": 1}}
    async with portico(**kept) as (served, service):
        await served.post(say("[[slow:60]] first", request_id="q"), RESPOND_ASYNC)
        await served.post(say("second", request_id="r", if_session_busy="enqueue"), RESPOND_ASYNC)
        await wait_for_running(service, 2)
    async with portico(**kept) as (served, service):
        assert (await served.post(say("third"))).json["code"] == "REQUEST_SESSION_BUSY"
        await wait_for_idle(service)
        assert [text for role, text in await messages_of(served) if role == "user"] == [
            "[[slow:60]] first",
            "second",
        ]
        assert (await served.post(say("third"))).status == 200
        for name in "qr":
            assert (await send_command(served, "replay", name)).json["identical"] is True


async def test_a_repeated_idempotency_key_takes_no_second_turn() -> None:
    key = {"Idempotency-Key": "k-1"}
    async with portico() as (served, _):
        first = await served.post(say("Hello"), key)
        again = await served.post(say("Hello"), key)
        assert (again.json, again.headers["idempotency-replayed"]) == (first.json, "true")
        assert len(await messages_of(served)) == 2


async def test_sessions_are_listed_by_pages_last_used_first() -> None:
    async with portico() as (served, _):
        for name in ("a", "b", "c", "a"):
            await served.post(say("Hello", name))
        first = (await served.get(f"{SESSIONS}?limit=2")).json
        rest = (await served.get(f"{SESSIONS}?limit=2&after={first['next']}")).json
        bad = [await served.get(f"{SESSIONS}?{query}") for query in ("limit=0", "after=x", "after=1/%00", "zork=1")]
    assert [each["session_id"] for each in (*first["data"], *rest["data"])] == ["a", "c", "b"]
    assert (first["has_more"], rest["has_more"], rest["next"]) == (True, False, None)
    assert first["data"][0]["messages"] == 4
    assert [(answer.status, answer.json["code"]) for answer in bad] == [(422, "REQUEST_INVALID")] * 4


async def test_messages_are_read_by_pages() -> None:
    async with portico() as (served, _):
        for _ in range(3):
            await served.post(say("Hello"))
        path, after, pages = f"{SESSIONS}/s/messages", 0, []
        while after is not None:
            page = (await served.get(f"{path}?limit=4&after={after}")).json
            pages.append([each["role"] for each in page["data"]])
            after = page["next"]
        assert pages == [["user", "assistant"] * 2, ["user", "assistant"]]
        beyond = (await served.get(f"{path}?after=99")).json
        assert (beyond["data"], beyond["next"]) == ([], None)
        assert (await served.get(f"{path}?after=-1")).status == 422


async def test_the_data_of_a_session_is_updated_field_by_field() -> None:
    async with portico() as (served, _):
        await served.post(say("Hello"))
        await change(served, orjson.dumps({"preferences": {"tone": "dry"}, "state": [1, 2]}))
        changed = await change(served, orjson.dumps({"state": None, "model": "rehearsal"}))
        shown = (await served.get(f"{SESSIONS}/s")).json
    assert changed.status == 200
    assert changed.json == shown
    assert (shown["session_id"], shown["messages"], shown["busy"]) == ("s", 2, False)
    assert (shown["preferences"], shown["state"], shown["model"]) == ({"tone": "dry"}, None, "rehearsal")


async def test_the_model_of_a_session_is_used_if_a_request_names_none(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.json").write_text(f'[{{"text": "I am {name}."}}, {{"text": "I am {name}."}}]')
    engines = {name: {"model": f"scripted://{tmp_path}/{name}.json"} for name in "ab"}
    async with portico(engines=engines, routes={"default": ["a"]}) as (served, _):
        await served.post(say("Hello"))
        await change(served, b'{"model": "b"}')
        own = await served.post(say("Hello"))
        named = await served.post(say("Hello", model="a"))
        quote = await served.post(say("Hello"), path=QUOTE)
    assert (own.json["content"], named.json["content"], quote.status) == ("I am b.", "I am a.", 200)


@pytest.mark.parametrize(("surplus", "status"), [(0, 200), (1, 422)])
async def test_a_detail_has_exactly_as_many_bytes_as_are_allowed_or_is_refused_by_name(
    surplus: int, status: int
) -> None:
    size = MAX_DETAIL_BYTES - len(b'""') + surplus
    async with portico() as (served, _):
        await served.post(say("Hello"))
        changed = await change(served, b'{"state":"' + b"x" * size + b'"}')
    assert changed.status == status
    if surplus:
        assert changed.json["detail"] == f"state: must be at most {MAX_DETAIL_BYTES} bytes"


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", JSON_BODY, 400),
        (b'{"state":1,"state":2}', JSON_BODY, 400),
        (b'{"state":"\\ud800"}', JSON_BODY, 400),
        (b'{"state":NaN}', JSON_BODY, 400),
        (b'{"zork":1}', JSON_BODY, 422),
        (b'{"model":"unknown"}', JSON_BODY, 422),
        (b'{"model":7}', JSON_BODY, 422),
        (b'{"state":"' + b"x" * 65_536 + b'"}', JSON_BODY, 422),
        (b'{"state":"' + b"x" * 5_000_000 + b'"}', JSON_BODY, 413),
        (b"{}", {"Content-Type": "text/plain"}, 415),
    ],
)
async def test_an_update_is_read_as_strictly_as_a_request(body: bytes, headers: dict[str, str], status: int) -> None:
    async with portico() as (served, _):
        await served.post(say("Hello"))
        before = (await served.get(f"{SESSIONS}/s")).json
        refused = await change(served, body, headers=headers)
        assert (refused.status, refused.headers["content-type"]) == (status, "application/problem+json")
        assert (await served.get(f"{SESSIONS}/s")).json == before


async def test_a_session_is_deleted_with_everything_in_it() -> None:
    async with portico() as (served, _):
        await served.post(say("I am Ada.", request_id="q"), {"Idempotency-Key": "k"})
        gone_now = await delete(served)
        assert (gone_now.status, gone_now.body) == (204, b"")
        for path in (f"{SESSIONS}/s", f"{SESSIONS}/s/messages", "/v1/executions/q", "/v1/executions/q/events"):
            assert (await served.get(path)).status == 404
        assert (await delete(served)).status == 404
        fresh = await served.post(say("Who am I?", request_id="q"), {"Idempotency-Key": "k"})
        assert (fresh.status, "idempotency-replayed" in fresh.headers) == (200, False)
        assert len(await messages_of(served)) == 2


async def test_deleting_a_session_stops_its_executions_without_adding_messages() -> None:
    answers: list[HttpAnswer] = []

    async def asks(text: str) -> None:
        answers.append(await served.post(say(text, if_session_busy="enqueue")))

    async with portico() as (served, service):
        async with anyio.create_task_group() as group:
            for number, text in enumerate(("[[slow:30]] Hello", "Me too"), 1):
                group.start_soon(asks, text)
                await wait_for_running(service, number)
            began = anyio.current_time()
            assert (await delete(served)).status == 204
            assert anyio.current_time() - began < 5
        assert [(answer.status, answer.json["error"]["code"]) for answer in answers] == [(409, "CANCELLED_SIGNAL")] * 2
        assert (await served.post(say("Hello"))).status == 200
        assert len(await messages_of(served)) == 2


@pytest.mark.parametrize("name", UNHEARD_OF)
@pytest.mark.parametrize(
    ("method", "route"), [("GET", ""), ("PATCH", ""), ("DELETE", ""), ("GET", "/messages?limit=0")]
)
async def test_an_unknown_session_is_404_before_any_other_error(method: str, route: str, name: str) -> None:
    async with portico() as (served, _):
        body = b"{" if method == "PATCH" else None
        answer = await served.ask(request_bytes(method, f"{SESSIONS}/{name}{route}", {}, body))
    assert (answer.status, answer.json["code"]) == (404, "REQUEST_NOT_FOUND")
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("path", [SESSIONS, f"{SESSIONS}/s", f"{SESSIONS}/s/messages"])
async def test_an_unsupported_method_is_refused_with_the_supported_ones(path: str) -> None:
    async with portico() as (served, _):
        answer = await served.ask(request_bytes("PUT", path, {}))
    allowed = {"GET", "HEAD"} | ({"PATCH", "DELETE"} if path.endswith("/s") else set())
    assert answer.status == 405
    assert set(answer.headers["allow"].split(", ")) == allowed


@pytest.mark.parametrize("session_id", ["", "a b", "é", "x" * 129, "a\r\nb", "\x00", 7])
async def test_an_invalid_session_id_is_refused(session_id: object) -> None:
    async with portico() as (served, _):
        answer = await served.post(chat("Hello", session_id=session_id))
    assert (answer.status, answer.json["code"]) == (422, "REQUEST_INVALID")
    assert "session_id" in answer.json["message"]


async def test_a_quote_counts_the_history() -> None:
    async with portico() as (served, _):
        for _ in range(6):
            await served.post(say("How large is Ulm, and how far is it from here to there? " * 4, tools=[]))
        fields: dict[str, Any] = {"tools": [], "limits": {"tokens": 200}}
        for path in (QUOTE, "/v1/execute"):
            alone = await served.post(chat("Hello", **fields), path=path)
            behind = await served.post(say("Hello", **fields), path=path)
            assert alone.status == 200
            assert (behind.status, behind.json["code"]) == (422, "ORCHESTRATION_BUDGET_EXCEEDED")


async def test_a_fork_of_a_turn_sees_the_history_and_adds_nothing_to_it() -> None:
    async with listening() as (served, upstream):
        await served.post(say("I am Ada."))
        await served.post(say("Who am I?", request_id="q", if_session_busy="enqueue"))
        fork = await served.post(b'{"from_step": 0}', path="/v1/executions/q/fork")
        assert (fork.status, fork.json["session_id"]) == (200, None)
        assert [text for _, text in provider_messages(upstream)] == ["I am Ada.", "Hello.", "Who am I?"]
        assert len(await messages_of(served)) == 4
