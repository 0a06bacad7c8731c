"""A process that ends between the arrival of a value and its answers: the next one answers the calls that wait."""

import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import orjson

from portico import SideEffects, ToolContext, tool
from portico.adapters.credentials.seal import FernetSeal, key_beside
from tests.support.callers import Caller, callers
from tests.support.portico import chat, portico

GRANTS = {"ada": ("red", "ada", None), "bob": ("red", "bob", None)}
TABLES = {
    "tools": {"modules": ["tests.entrypoints.http.test_credential_arrival"]},
    "credentials": {"tracker": {"type": "secret"}},
}


@tool(side_effects=SideEffects.READ, idempotent=True, credentials=("tracker",))
async def length_of_token(context: ToolContext) -> str:
    """Return how long the token is."""
    return f"{len(await context.credential('tracker'))} characters"


async def test_a_value_that_came_before_a_crash_answers_after_it(tmp_path: Path) -> None:
    step = {"name": "look", "type": "tool", "input": {"name": "length_of_token", "arguments": {}}}
    async with callers(tmp_path, GRANTS, **TABLES) as (by_name, _):
        for name, caller in by_name.items():
            body = chat("go", mode="plan", plan={"steps": [step]}, request_id=name)
            assert (await caller.execute(body)).status == 202
        headers = {name: caller.headers for name, caller in by_name.items()}
    sealed = FernetSeal([key_beside(tmp_path / "portico.db")], print).seal("red", "ada", "tracker", "adas-own-token")
    with closing(sqlite3.connect(tmp_path / "portico.db")) as database, database:
        row = ("red", "ada", "", "tracker", sealed, 1.0, 0)
        database.execute("INSERT INTO credentials VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    tables = {"storage": {"url": f"sqlite:///{tmp_path}/portico.db"}, "auth": {"mode": "keys"}, **TABLES}
    async with portico(**tables) as (served, _):
        while True:
            view = (await Caller(served, headers["ada"]).get("/v1/executions/ada")).json
            if view["state"] == "COMPLETE":
                break
            await anyio.sleep(5)
        other = (await Caller(served, headers["bob"]).get("/v1/executions/bob")).json
    assert (view["response"]["content"], other["state"]) == ("14 characters", "SUSPENDED")
    assert orjson.dumps(view).find(b"adas-own-token") == -1
