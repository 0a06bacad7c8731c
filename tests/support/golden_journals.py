"""Golden journals: small executions as they are stored, which are read, continued and replayed.

`make golden` makes them anew by running them on the rehearsal engine.
"""

import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import anyio
import orjson
from pydantic import JsonValue

from portico.bootstrap.service import Service, open_service
from portico.domain.access.principal import LOCAL
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import SuspensionKind
from portico.domain.ids import DocumentId
from portico.orchestration.execution_views import ExecutionView
from portico.orchestration.executions import ResumeAccepted
from portico.orchestration.facade import DocumentContent
from portico.orchestration.runtime.fork import ForkRequest
from portico.orchestration.runtime.handle import ExecutionHandle
from portico.orchestration.runtime.resume import ResumeRequest
from portico.settings import Settings
from tests.support.stored_format import GOLDEN

JOURNALS = GOLDEN / "journals"
TABLES = ("executions", "commits", "suspensions", "sessions", "messages")
BYTES = ("outcome", "events", "response", "suspension", "details", "message", "title")
"""Columns of texts, most of which the codec wrote as JSON: bytes in the database, text in a file.

`events` of an execution is a number.
"""
_KEYS = {table: "session_id" if table in {"sessions", "messages"} else "execution_id" for table in TABLES}
NEVER_EXPIRES = 4e9
"""Time at which the suspensions of golden journals expire."""

Rows = Mapping[str, list[dict[str, Any]]]


def path_of(name: str) -> Path:
    """Return the path of that journal."""
    return JOURNALS / f"{name}.json"


def rows_of(database: Path, request_id: str) -> Rows:
    """Return the rows of one execution in all tables."""
    with closing(sqlite3.connect(database)) as connection:
        connection.row_factory = sqlite3.Row
        which = "{0} = (SELECT {0} FROM executions WHERE request_id = ?)"
        return {
            table: [
                {name: _text(row[name]) for name in row.keys()}  # noqa: SIM118 - a row iterates over its values
                for row in connection.execute(f"SELECT * FROM {table} WHERE {which.format(_KEYS[table])}", [request_id])
            ]
            for table in TABLES
        }


def insert_rows(database: Path, rows: Rows) -> None:
    """Insert the rows into a database of the current schema; their suspensions do not expire."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        for table in TABLES:
            for row in rows.get(table, ()):
                values = row | ({"expires_at": NEVER_EXPIRES} if table == "suspensions" else {})
                cells = [_bytes(name, value) for name, value in values.items()]
                marks = ", ".join("?" * len(values))
                connection.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", cells)


def read_rows(path: Path) -> Rows:
    rows: Rows = orjson.loads(path.read_bytes())
    return rows


def records(rows: Rows) -> Iterator[tuple[str, bytes]]:
    """Yield every record that the codec wrote, with its kind among `stored_format.CODECS`."""
    for commit in rows["commits"]:
        if commit["outcome"] is not None:
            yield "outcomes" if commit["number"] else "headers", commit["outcome"].encode()
        if commit["events"] is not None:
            yield "events", commit["events"].encode()
    for table, column in (("executions", "response"), ("suspensions", "suspension"), ("messages", "message")):
        for row in rows[table]:
            if row[column] is not None:
                yield f"{column}s", row[column].encode()


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _bytes(name: str, value: Any) -> Any:
    return value.encode() if name in BYTES and isinstance(value, str) else value


@dataclass(frozen=True)
class GoldenExecution:
    """An execution to store: its request and what happens to it."""

    text: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    answers: Sequence[int] = ()
    """Indexes of the suspensions that are answered, in order."""
    fork_from: int | Literal["end"] | None = None
    """The step at which it is forked, or `end` to ask `Hello` after it; the fork is stored instead."""
    interrupted: bool = False
    """True if the service stops before it ends."""
    before: str | None = None
    """The message of an earlier turn in its session."""
    documents: Mapping[str, str] = field(default_factory=dict)
    """Texts of the documents that are stored before it, by id."""


SIZE: dict[str, Any] = {"type": "object", "required": ["size"], "properties": {"size": {"enum": ["small", "large"]}}}
NESTED = {**SIZE, "properties": {**SIZE["properties"], "parts": {"type": "array", "items": {"$ref": "#"}}}}
"""A recursive schema, so that a worker validates the answers."""
ROLL = {"name": "roll", "type": "tool", "input": {"name": "roll_dice", "arguments": {"count": 2, "sides": 6}}}
WHO = {"name": "who", "type": "tool", "input": {"name": "ask_person", "arguments": {"question": "Who?"}}}
SUB = {"name": "sub", "type": "subplan", "input": "Please calculate 17*3", "depends_on": []}
WHEN = {"name": "when", "type": "tool", "depends_on": [], "input": WHO["input"]}
STEPS = [
    ROLL,
    {"name": "size", "type": "infer", "depends_on": [], "schema": SIZE},
    {"name": "check", "type": "validate", "depends_on": ["size"], "schema": SIZE},
    {"name": "tell", "type": "infer", "depends_on": ["roll", "check"]},
]
MODULE_STEPS = [{"name": "find", "type": "find_orders"}, {"name": "cheap", "type": "keep_cheap", "below": 50}]
CONFIRM = {"name": "sure", "type": "confirm", "input": "Now?"}
MODULES = {"plan": {"modules": ["tests.support.shop_steps"]}}
FIND = {"name": "find", "type": "retrieve"}
RANK = {"name": "rank", "type": "rerank", "top_k": 1}
ULM = {"ulm": "Ulm is small, and its church is large.", "danube": "The Danube is long."}
ASK = 'Use ask_person: "May I?"'
AGENTS = {
    "counter": {"description": "Does sums.", "system_prompt": "You count.", "tools": ["calculate"]},
    "asker": {"description": "Asks people.", "system_prompt": "You ask.", "tools": ["ask_person"]},
    "lead": {"description": "Leads.", "system_prompt": "You lead.", "tools": ["agent:counter", "agent:asker"]},
}
GUARDED = {"guarded": {"description": "Is guarded.", "tools": ["calculate", "ask_person"]}}
GUARDS = {"careful": {"type": "judge", "intent": "Ask for secrets.", "agents": ["guarded"]}}
COUNT = 'Use agent__counter: "Please calculate 17*3"'
LET_ASK = "Use agent__asker: 'Use ask_person: \"May I?\"'"
READ_FILE = {
    "name": "read_file",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
READ = 'Use read_file: "notes.txt"'
GOLDEN_EXECUTIONS: Mapping[str, GoldenExecution] = {
    "chat-plain": GoldenExecution("Hello"),
    "chat-tools": GoldenExecution("Please calculate 17*3"),
    "chat-tools-step-by-step": GoldenExecution("Please calculate 17*3", {"background": True}),
    "chat-failed": GoldenExecution("[[fail:429]] Hello"),
    "chat-timed-out": GoldenExecution("[[slow:60]] Hello", {"hints": {"timeout": 0.2}}),
    "chat-judged": GoldenExecution("Hello", {"output": {"semantic": True}}),
    "chat-suspended": GoldenExecution(ASK),
    "chat-suspended-step-by-step": GoldenExecution(ASK, {"background": True}),
    "chat-resumed": GoldenExecution(ASK, answers=(0,)),
    "chat-forked": GoldenExecution("Please calculate 17*3", fork_from=2),
    "chat-continued": GoldenExecution("Please calculate 17*3", fork_from="end"),
    "chat-interrupted": GoldenExecution("[[slow:30]] Please calculate 17*3", {"background": True}, interrupted=True),
    "chat-second-turn": GoldenExecution("Please calculate 17*3", {"session_id": "s"}, before="Hello"),
    "chat-suspended-in-session": GoldenExecution(ASK, {"session_id": "s"}, before="Hello"),
    "chat-agent": GoldenExecution(COUNT, {"agent": "lead"}),
    "chat-agent-step-by-step": GoldenExecution(COUNT, {"agent": "lead", "background": True}),
    "chat-agent-suspended": GoldenExecution(LET_ASK, {"agent": "lead"}),
    "chat-agent-resumed": GoldenExecution(LET_ASK, {"agent": "lead"}, answers=(0,)),
    "chat-retrieved": GoldenExecution("How large is Ulm?", {"context": {"retrieve": True}}, documents=ULM),
    "chat-retrieved-step-by-step": GoldenExecution(
        "How large is Ulm?", {"context": {"retrieve": True}, "background": True}, documents=ULM
    ),
    "chat-guarded": GoldenExecution("Please calculate 17*3", {"agent": "guarded", "background": True}),
    "chat-guarded-refused": GoldenExecution("Hello [[refuse]]", {"agent": "guarded"}),
    "chat-guarded-suspended": GoldenExecution(ASK, {"agent": "guarded"}),
    "chat-guarded-resumed": GoldenExecution(ASK, {"agent": "guarded"}, answers=(0,)),
    "chat-client-suspended": GoldenExecution(READ, {"client_tools": [READ_FILE]}),
    "chat-client-resumed": GoldenExecution(READ, {"client_tools": [READ_FILE]}, answers=(0,)),
    "chat-client-ended": GoldenExecution(READ, {"client_tools": [READ_FILE], "on_client_call": "end"}),
    "structured-client-ended": GoldenExecution(
        READ,
        {
            "mode": "structured",
            "output": {"schema": SIZE},
            "client_tools": [READ_FILE],
            "on_client_call": "end",
            "background": True,
        },
    ),
    "structured": GoldenExecution("How large is Ulm?", {"mode": "structured", "output": {"schema": SIZE}}),
    "structured-garbled": GoldenExecution(
        "[[garble]] How large is Ulm?", {"mode": "structured", "output": {"schema": SIZE}}
    ),
    "structured-gathered": GoldenExecution(
        "Please calculate 17*3", {"mode": "structured", "output": {"schema": SIZE}, "tools": ["calculate"]}
    ),
    "structured-nested": GoldenExecution("How large is Ulm?", {"mode": "structured", "output": {"schema": NESTED}}),
    "redundant": GoldenExecution("How large is Ulm?", {"mode": "redundant", "output": {"schema": SIZE}}),
    "redundant-whole": GoldenExecution(
        "How large is Ulm?",
        {"mode": "redundant", "output": {"schema": SIZE}, "redundancy": {"n": 3, "early_stop": False}},
    ),
    "plan-authored": GoldenExecution("How large is Ulm?", {"mode": "plan", "plan": {"steps": STEPS}}),
    "plan-retrieved": GoldenExecution(
        "How large is Ulm?", {"mode": "plan", "plan": {"steps": [FIND, RANK]}}, documents=ULM
    ),
    "plan-planned": GoldenExecution("Please calculate 17*3", {"mode": "plan"}),
    "plan-second-turn": GoldenExecution(
        "Please calculate 17*3", {"mode": "plan", "session_id": "s"}, before="I like numbers."
    ),
    "plan-passes": GoldenExecution("Please calculate 17*3 [[again]]", {"mode": "plan", "plan": {"passes": 4}}),
    "plan-passes-expired": GoldenExecution("Hello [[again:9]]", {"mode": "plan", "plan": {"passes": 2}}),
    "plan-passes-nested": GoldenExecution(
        "How large is Ulm? [[again]]", {"mode": "plan", "plan": {"passes": 3, "steps": [*STEPS, SUB]}}
    ),
    "plan-passes-suspended": GoldenExecution("Ask", {"mode": "plan", "plan": {"passes": 3, "steps": [WHO, WHEN]}}),
    "plan-passes-interrupted": GoldenExecution(
        "[[slow:30]] Hello", {"mode": "plan", "plan": {"passes": 3}, "background": True}, interrupted=True
    ),
    "plan-suspended": GoldenExecution("Ask", {"mode": "plan", "plan": {"steps": [WHO, WHEN]}}),
    "plan-module": GoldenExecution("Ada", {"mode": "plan", "plan": {"steps": MODULE_STEPS}}),
    "plan-module-suspended": GoldenExecution("Ada", {"mode": "plan", "plan": {"steps": [*MODULE_STEPS, CONFIRM]}}),
    "plan-module-passes": GoldenExecution("Ada", {"mode": "plan", "plan": {"steps": MODULE_STEPS, "passes": 2}}),
    "plan-half-answered": GoldenExecution("Ask", {"mode": "plan", "plan": {"steps": [WHO, WHEN]}}, answers=(1,)),
}


@asynccontextmanager
async def open_service_on(database: Path) -> AsyncIterator[Service]:
    """Open a service on that file, with the rehearsal engine and a short drain."""
    tables = {"storage": {"url": f"sqlite:///{database}"}, "server": {"drain_seconds": 0.1}, "agents": AGENTS | GUARDED}
    tables |= MODULES | {"guardrails": GUARDS}
    async with open_service(Settings.model_validate(tables | {"telemetry": {"log_level": "error"}})) as service:
        yield service


async def run_golden(service: Service, name: str, golden: GoldenExecution) -> str:
    """Run the execution as far as it gets and return its request id."""
    for document_id, text in golden.documents.items():
        await service.facade.memory.put(LOCAL, DocumentId(document_id), DocumentContent(text=text))
    if golden.before is not None:
        await wait_for_end(await _execute(service, golden.before, golden.fields))
    running = await _execute(service, golden.text, {"request_id": name, **golden.fields})
    if golden.interrupted:
        await anyio.sleep(0.1)
        return name
    await wait_for_end(running)
    for number in golden.answers:
        await answer_suspension_of(service, name, number)
    if golden.fork_from is None:
        return name
    messages = [{"role": "user", "content": "Hello"}] if golden.fork_from == "end" else []
    asked = ForkRequest.model_validate({"from_step": golden.fork_from, "overrides": {"messages": messages}})
    fork = await service.facade.fork(name, asked, LOCAL)
    await wait_for_end(fork)
    return fork.request_id


async def answer_suspension_of(service: Service, name: str, number: int = 0) -> None:
    """Answer the suspension of that index and wait until the execution has ended or is suspended again."""
    question = (await service.facade.executions.show(LOCAL, name)).suspensions[number]
    payload: JsonValue = {"result": "yes"} if question.kind is SuspensionKind.CLIENT_TOOL else "yes"
    answer = ResumeRequest(tool_id=question.tool_id, payload=payload, suspension_id=question.suspension_id)
    await wait_for_end(await service.facade.executions.resume(LOCAL, name, answer, subscribe=False))


async def _execute(service: Service, text: str, fields: Mapping[str, Any]) -> ExecutionHandle | ExecutionView:
    request = {"messages": [{"role": "user", "content": text}], **fields}
    return await service.facade.execute(SystemRequest.model_validate(request), LOCAL)


async def wait_for_end(running: ExecutionHandle | ExecutionView | ResumeAccepted) -> None:
    if isinstance(running, ExecutionHandle):
        ended = anyio.Event()
        running.add_done_callback(ended.set)
        await ended.wait()


async def _make(name: str, golden: GoldenExecution) -> Rows:
    with TemporaryDirectory() as folder:
        database = Path(folder) / "portico.db"
        async with open_service_on(database) as service:
            request_id = await run_golden(service, name, golden)
        return rows_of(database, request_id)


def write_journals(report: Callable[[str], object]) -> None:
    """Write all journals and delete every other file beside them."""
    JOURNALS.mkdir(parents=True, exist_ok=True)
    for path in {*JOURNALS.iterdir()} - {*map(path_of, GOLDEN_EXECUTIONS)}:
        path.unlink()
    for name, golden in GOLDEN_EXECUTIONS.items():
        rows = anyio.run(_make, name, golden)
        path_of(name).write_bytes(orjson.dumps(rows, option=orjson.OPT_INDENT_2) + b"\n")
        report(f"{path_of(name)}\n")


if __name__ == "__main__":
    write_journals(sys.stdout.write)
