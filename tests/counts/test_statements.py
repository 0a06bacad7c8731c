"""The statements that a request sends to its database before it is answered, counted in a service on SQLite.

A client that sends its conversation again costs one look-up of the execution that its calls name; nothing else does.
"""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import orjson
from fastapi import FastAPI

import portico
from bench.calls import recorded_calls
from bench.walk import post_execution
from portico.bootstrap.service import open_service
from portico.entrypoints.http.app import create_app
from portico.settings import Settings
from tests.support.inline_loop import InlineLoop

CHAT = "/v1/chat/completions"
ASKED: Mapping[str, Any] = {"role": "user", "content": "What is there?"}
LOOK: Mapping[str, Any] = {"type": "function", "function": {"name": "look"}}
CALLED: Mapping[str, Any] = {"tool_calls": [{"name": "look", "arguments": {"at": 1}}]}
DONE: Mapping[str, Any] = {"text": "Done."}
FOREIGN = "call_of_another_service"


async def answered(app: FastAPI, body: Mapping[str, Any], path: str = CHAT) -> tuple[int, Any]:
    """Return the number of statements of a request until its answer, and the answer."""
    with recorded_calls(portico) as recorder:
        sent = await post_execution(app, orjson.dumps(body), path=path)
    made = [
        call for call in recorder.calls() if (call.file, call.function) == ("adapters/stores/sqlite.py", "_execute")
    ]
    assert sent[0]["status"] == 200, sent
    return len(made), orjson.loads(b"".join(each.get("body", b"") for each in sent))


def follow_up(message: Mapping[str, Any], call_id: str | None = None) -> dict[str, Any]:
    """Return the request that sends the answer with its call again, and the result of the call, under that id."""
    [call] = message["tool_calls"]
    named = {**call, "id": call_id or call["id"]}
    result = {"role": "tool", "tool_call_id": named["id"], "content": "seen"}
    turns = [ASKED, {**message, "tool_calls": [named]}, result]
    return {"model": "default", "messages": turns, "tools": [LOOK]}


async def counted(folder: Path) -> Mapping[str, int]:
    script = folder / "script.json"
    script.write_bytes(orjson.dumps([CALLED, *[DONE] * 6]))
    engine = {"model": f"scripted://{script}"}
    tables = {"storage": {"url": f"sqlite:///{folder}/portico.db"}, "engines": {"script": engine}}
    app = create_app(Settings.model_validate(tables), open_service)
    native = {"messages": [ASKED]}
    async with app.router.lifespan_context(app):
        _, first = await answered(app, {"model": "default", "messages": [ASKED], "tools": [LOOK]})
        message = first["choices"][0]["message"]
        for body in (follow_up(message), follow_up(message, FOREIGN)):
            await answered(app, body)
        return {
            "native": (await answered(app, native, "/v1/execute"))[0],
            "chat": (await answered(app, {"model": "default", **native}))[0],
            "new": (await answered(app, follow_up(message, FOREIGN)))[0],
            "continued": (await answered(app, follow_up(message)))[0],
        }


def test_only_a_conversation_with_ids_of_ours_costs_statements_and_they_are_one_look_up(tmp_path: Path) -> None:
    with asyncio.Runner(loop_factory=InlineLoop) as runner:
        found = runner.run(counted(tmp_path))
    assert found == {"native": 0, "chat": 0, "new": 0, "continued": 1}


def own_statements(made: list[str]) -> int:
    """Return how many of the statements are not those of deliveries that are sent meanwhile."""
    return len([sql for sql in made if "webhook_" not in sql or sql.startswith("INSERT INTO webhook_deliveries")])


async def of_an_end(folder: Path, **tables: Any) -> int:
    """Return the statements of a stored execution from its request to its answer."""
    app = create_app(Settings.model_validate({"storage": {"url": f"sqlite:///{folder}/{len(tables)}.db"}, **tables}))
    body = {"messages": [ASKED], "session_id": "talk"}
    async with app.router.lifespan_context(app):
        await answered(app, {**body, "session_id": "first"}, "/v1/execute")
        made = list[str]()

        def note(frame: FrameType, event: str, _argument: object) -> None:
            code = frame.f_code
            if event == "call" and code.co_name == "_execute" and code.co_filename.endswith("stores/sqlite.py"):
                made.append(frame.f_locals["call"].statement.compiled("sqlite").sql)

        sys.setprofile(note)
        try:
            sent = await post_execution(app, orjson.dumps(body))
        finally:
            sys.setprofile(None)
        assert sent[0]["status"] == 200
    return own_statements(made)


def test_one_endpoint_costs_one_statement_more_in_the_commit_of_an_end(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLSwx")
    endpoint = {"url": "https://127.0.0.1:9/never", "secret_file": str(secret), "events": ["execution.completed"]}
    others = {**endpoint, "tenant": "another"}
    with asyncio.Runner(loop_factory=InlineLoop) as runner:
        plain = runner.run(of_an_end(tmp_path))
        with_endpoint = runner.run(of_an_end(tmp_path, webhooks={"endpoints": {"team": endpoint}}))
        others_alone = runner.run(of_an_end(tmp_path, webhooks={"endpoints": {"team": others}}, limits={}))
    assert (plain, others_alone, with_endpoint) == (plain, plain, plain + 1)
