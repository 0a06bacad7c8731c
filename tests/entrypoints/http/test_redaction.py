"""Redaction over HTTP: what no route and no event shows to a key without the full history, and what stands."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.callers import Caller, callers
from tests.support.canaries import MARK, OF_DOCUMENT, OF_TOOL, OF_TURN, OWN
from tests.support.http_server import HttpAnswer
from tests.support.passes import ANSWER, DONE, PROFILE, SOUND
from tests.support.portico import EVENTS, IDEMPOTENCY_KEY, events

MODULE = {"modules": ["tests.support.canaries"]}
NARROW = ("can_send_messages", "model:*", "tool:*", "agent:*")
LOOK_UP = {"tool_calls": [{"name": "look_up", "arguments": {"name": "Ada"}}]}
SAID = {"text": f"Write to {OWN}."}
VALUE = {"contact": OWN}
WRITTEN = {"text": orjson.dumps(VALUE).decode()}
SYNTHESIS = {"text": orjson.dumps(ANSWER | {"answer_text": SAID["text"], "notes": OF_TOOL}).decode()}
SCHEMA = {"type": "object", "required": ["contact"], "properties": {"contact": {"type": "string"}}}
ASKED = [{"role": "user", "content": "How is Ada reached?"}]
FIND = {"name": "find", "type": "tool", "input": {"name": "look_up", "arguments": {"name": "Ada"}}}
CHECK = {"name": "check", "type": "validate", "schema": {"type": "string"}}
ASSESSED: Sequence[Mapping[str, Any]] = [{"text": orjson.dumps(each).decode()} for each in (PROFILE, SOUND, DONE)]
HIDDEN = "[redacted:email]"


def plan(*steps: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    return {"mode": "plan", "plan": {"steps": list(steps), **options}}


@dataclass(frozen=True)
class Way:
    """A request and the replies of the model to it, with what the answer shows: `content` and `structured_output`.

    With `flagged` the answer says that its value is redacted.
    """

    fields: Mapping[str, Any]
    replies: Sequence[Mapping[str, Any]]
    content: str | None
    value: object = None
    flagged: bool = False
    state: str = "COMPLETE"
    tables: Mapping[str, Any] = field(default_factory=dict)


STRUCTURED = {"mode": "structured", "output": {"schema": SCHEMA}, "tools": ["look_up"]}
REDUNDANT = {"mode": "redundant", "output": {"schema": SCHEMA}, "redundancy": {"n": 2, "early_stop": False}}
SALVAGED = {"limits": {"tool_rounds": 1}, "on_limit": "salvage"}
HELPER = {"agents": {"helper": {"description": "Helps.", "tools": ["look_up"]}}}
CALL_HELPER = {"tool_calls": [{"name": "agent__helper", "arguments": {"message": "Who?"}}]}
FOUND = {"contact": HIDDEN}
RECALLED = f"Ada is reached at {HIDDEN}."
CHUNKS = [{"content": RECALLED, "source": "ada#1", "score": 1.0}]
WAYS = {
    "chat with a tool": Way({}, [LOOK_UP, SAID], SAID["text"]),
    "chat with documents": Way({"context": {"retrieve": True}}, [SAID], SAID["text"]),
    "chat with an agent": Way(
        {"tools": ["agent:helper"]}, [CALL_HELPER, LOOK_UP, SAID, SAID], SAID["text"], tables=HELPER
    ),
    "chat with a failing tool": Way(
        {}, [{"tool_calls": [{"name": "look_up_unknown", "arguments": {"name": "Ada"}}]}, SAID], SAID["text"]
    ),
    "structured": Way(STRUCTURED, [LOOK_UP, SAID, WRITTEN], WRITTEN["text"], VALUE),
    "redundant": Way(
        {**REDUNDANT, "tools": ["look_up"]}, [LOOK_UP, LOOK_UP, SAID, SAID, WRITTEN, WRITTEN], WRITTEN["text"], VALUE
    ),
    "plan of a tool": Way(plan(FIND), [], f"The address of Ada is {HIDDEN}."),
    "plan that checks what a tool said": Way(plan(FIND, CHECK), [], f"The address of Ada is {HIDDEN}."),
    "plan with a contract": Way(
        {**plan({"name": "find", "type": "find_contact", "input": "Ada"}), "output": {"schema": SCHEMA}},
        [],
        orjson.dumps(FOUND).decode(),
        FOUND,
        flagged=True,
    ),
    "plan of a search": Way(
        plan({"name": "find", "type": "retrieve"}, {"name": "rank", "type": "rerank"}),
        [],
        RECALLED,
        CHUNKS,
        flagged=True,
    ),
    "plan of a model": Way(plan(FIND, {"name": "tell", "type": "infer"}), [SAID], f"Write to {HIDDEN}."),
    "plan of a failing tool": Way(
        plan({**FIND, "input": {"name": "look_up_unknown", "arguments": {"name": "Ada"}}}), [], None, state="ERROR"
    ),
    "plan that asks a person": Way(
        {**plan(FIND, {"name": "sure", "type": "confirm_contact"}), "session_id": None}, [], None, state="SUSPENDED"
    ),
    "passes": Way(plan(FIND, passes=2), [*ASSESSED, SYNTHESIS], SAID["text"], f"The address of Ada is {HIDDEN}.", True),
    "passes without an answer": Way(
        plan(FIND, passes=2), [*ASSESSED, {"fault": "refused"}], HIDDEN, f"The address of Ada is {HIDDEN}.", True
    ),
    "salvage": Way(SALVAGED, [LOOK_UP, LOOK_UP, SYNTHESIS], SAID["text"]),
    "salvage without an answer": Way(SALVAGED, [LOOK_UP, LOOK_UP, {"fault": "refused"}], HIDDEN),
    "flow of a function": Way(
        {"mode": "flow", "flow": {"name": "contact", "input": {"name": "Ada"}}},
        [],
        orjson.dumps(FOUND).decode(),
        FOUND,
        flagged=True,
    ),
    "flow of an agent": Way(
        {"mode": "flow", "flow": {"name": "letter", "input": {"name": "Ada"}}},
        [{"text": orjson.dumps({"letter": SAID["text"]}).decode()}],
        f"Write to {HIDDEN}.",
        {"letter": f"Write to {HIDDEN}."},
        flagged=True,
    ),
}


@dataclass
class Canaries:
    """A service in which canaries were planted, and the key that must not see them."""

    narrow: Caller
    wide: Caller


@asynccontextmanager
async def planted(folder: Path, way: Way, runs: int) -> AsyncIterator[Canaries]:
    """Serve the way so many times, after an earlier turn in session `s`, with a document."""
    script = folder / "replies.json"
    script.write_bytes(orjson.dumps([{"text": "Noted."}, *(list(way.replies) * runs)]))
    tables = {
        "engines": {"one": {"model": f"scripted://{script}"}},
        "tools": MODULE,
        "plan": MODULE,
        "flows": MODULE,
        **way.tables,
    }
    grants = {"narrow": ("acme", "ann", NARROW), "wide": ("acme", "ann", None)}
    async with callers(folder, grants, **tables) as (found, _):
        here = Canaries(found["narrow"], found["wide"])
        document = orjson.dumps({"text": f"Ada is reached at {OF_DOCUMENT}."})
        assert (await here.wide.send("PUT", "/v1/memory/ada", document)).status in {200, 201}
        said = {"messages": [{"role": "user", "content": f"Ada is at {OF_TURN}."}], "session_id": "s"}
        assert (await here.wide.execute(orjson.dumps(said))).status == 200
        yield here


def body(way: Way, request_id: str) -> bytes:
    return orjson.dumps({"messages": ASKED, "request_id": request_id, "session_id": "s", **way.fields})


async def read_all(caller: Caller, request_id: str, state: str) -> dict[str, HttpAnswer]:
    """Return what each route shows of the execution; the log of a suspended one has no end to wait for."""
    one = f"/v1/executions/{request_id}"
    names = ["steps", "input", "trace", "snapshot"] + ([] if state == "SUSPENDED" else ["events"])
    paths = [one, *(f"{one}/{name}" for name in names)]
    paths += ["/v1/executions", "/v1/executions?view=summary", "/v1/suspensions", "/v1/sessions/s/messages"]
    return {path: await caller.get(path) for path in [*paths, "/v1/sessions", "/v1/sessions/s"]}


def responses(found: Mapping[str, HttpAnswer], frames: HttpAnswer) -> dict[str, Any]:
    """Return each appearance of the response of the execution."""
    [view] = [each.json["response"] for path, each in found.items() if path == "/v1/executions/streamed"]
    logs = [frames, *(log for path, log in found.items() if path.endswith("/events"))]
    return {"view": view, **{f"log {number}": events(log)[-1]["response"] for number, log in enumerate(logs)}}


@pytest.mark.parametrize("name", WAYS)
async def test_no_route_and_no_event_shows_what_a_tool_a_document_or_an_earlier_turn_said(
    name: str, tmp_path: Path
) -> None:
    way = WAYS[name]
    async with planted(tmp_path, way, runs=2) as here:
        plain = await here.narrow.execute(body(way, "plain"))
        frames = await here.narrow.execute(body(way, "streamed"), **EVENTS, **IDEMPOTENCY_KEY)
        again = await here.narrow.execute(body(way, "streamed"), **IDEMPOTENCY_KEY)
        shown = await read_all(here.narrow, "streamed", way.state)
        found = {**responses(shown, frames), "plain": plain.json, "again": again.json}
        bodies = {place: each.body.decode() for place, each in {**shown, "frames": frames, "plain": plain}.items()}
        assert {place for place, text in bodies.items() if MARK in text or '"repeated"' in text} == set()
        for place, response in found.items():
            assert response["state"] == way.state, (place, response["error"])
            assert (way.content or "") in (response["content"] or ""), place
            assert response["structured_output"] == way.value, place
            assert ("redacted" in response["metadata"]["flags"]) == way.flagged, place
        whole = (await here.wide.get("/v1/executions/streamed")).body.decode()
        assert "[redacted:" not in whole
        assert '"redacted"' not in whole
