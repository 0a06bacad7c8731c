"""Files of sessions over HTTP: who may list, write, fetch and delete them, and what a model does with them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import orjson
import pytest

from portico.bootstrap.service import open_service
from portico.domain.failures import ConfigurationFailure
from portico.domain.tools import IsolationLevel
from portico.settings import load_settings
from tests.support.callers import Caller, Grants, callers
from tests.support.http_server import HttpAnswer
from tests.support.portico import chat
from tests.support.sandbox import opened_sandbox, require_level

GRANTS: Grants = {
    "ada": ("red", "ada", None),
    "eve": ("red", "eve", None),
    "blue": ("blue", "ada", None),
    "sender": ("red", "ada", ["can_send_messages"]),
    "reader": ("red", "ada", ["can_view_full_history"]),
}
FILE = "/v1/sessions/s/files/data/a.csv"


@asynccontextmanager
async def served(folder: Path, **files: Any) -> AsyncIterator[dict[str, Caller]]:
    tables = {"tools": {"files": {"root": str(folder / "files"), **files}}}
    async with callers(folder, GRANTS, **tables) as (by_name, _):
        yield by_name


async def put(caller: Caller, path: str = FILE, content: bytes = b"1,2\n") -> HttpAnswer:
    return await caller.send("PUT", path, content, **{"Content-Type": "text/csv"})


async def test_a_file_is_put_listed_fetched_and_deleted(tmp_path: Path) -> None:
    async with served(tmp_path) as by_name:
        ada = by_name["ada"]
        made, replaced = await put(ada), await put(ada, content=b"\x00\xff")
        assert (made.status, replaced.status, replaced.json["bytes"]) == (201, 200, 2)
        assert made.json["path"] == "data/a.csv"
        session = (await ada.get("/v1/sessions/s")).json
        assert (session["messages"], session["busy"]) == (0, False)
        listed = (await ada.get("/v1/sessions/s/files")).json
        assert [(each["path"], each["bytes"]) for each in listed["data"]] == [("data/a.csv", 2)]
        fetched = await ada.get(FILE)
        assert (fetched.status, fetched.body) == (200, b"\x00\xff")
        assert fetched.headers["content-type"] == "application/octet-stream"
        assert fetched.headers["content-disposition"] == "attachment"
        assert fetched.headers["x-content-type-options"] == "nosniff"
        assert (await ada.send("DELETE", FILE)).status == 204
        assert (await ada.get(FILE)).status == 404


REFUSALS = [
    ("eve", "GET", FILE, 404, "REQUEST_NOT_FOUND"),
    ("eve", "PUT", FILE, 404, "REQUEST_NOT_FOUND"),
    ("eve", "DELETE", FILE, 404, "REQUEST_NOT_FOUND"),
    ("eve", "GET", "/v1/sessions/s/files", 404, "REQUEST_NOT_FOUND"),
    ("blue", "GET", FILE, 404, "REQUEST_NOT_FOUND"),
    ("sender", "GET", FILE, 403, "ACCESS_DENIED"),
    ("reader", "PUT", FILE, 403, "ACCESS_DENIED"),
    ("reader", "DELETE", FILE, 403, "ACCESS_DENIED"),
    ("ada", "GET", "/v1/sessions/none/files", 404, "REQUEST_NOT_FOUND"),
    ("ada", "GET", "/v1/sessions/none/files/%ff", 404, "REQUEST_NOT_FOUND"),
    ("ada", "GET", "/v1/sessions/%ff/files", 404, "REQUEST_NOT_FOUND"),
    ("ada", "GET", "/v1/sessions/s/files/none", 404, "REQUEST_NOT_FOUND"),
    ("ada", "PUT", "/v1/sessions/s/files/a/../../b", 422, "REQUEST_INVALID"),
    ("ada", "PUT", "/v1/sessions/s/files//etc/passwd", 422, "REQUEST_INVALID"),
    ("ada", "PUT", "/v1/sessions/s/files/data", 422, "REQUEST_INVALID"),
    ("ada", "PUT", "/v1/sessions/s/files/%00", 422, "REQUEST_INVALID"),
    ("ada", "PUT", "/v1/sessions/s/files/data/%ff", 422, "REQUEST_INVALID"),
    ("ada", "GET", "/v1/sessions/s/files/data/%ff", 422, "REQUEST_INVALID"),
    ("ada", "DELETE", "/v1/sessions/s/files/data/%ff", 422, "REQUEST_INVALID"),
    ("ada", "PUT", f"/v1/sessions/s/files/{'a/' * 33}", 422, "REQUEST_INVALID"),
    ("ada", "PUT", f"/v1/sessions/s/files/{'%C3%A9' * 513}", 422, "REQUEST_INVALID"),
    ("ada", "PUT", "/v1/sessions/s/files/big", 413, "REQUEST_TOO_LARGE"),
]


async def test_a_request_about_a_file_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path, max_file_bytes=8) as by_name:
        assert (await put(by_name["ada"])).status == 201
        for who, method, path, status, code in REFUSALS:
            body = b"123456789" if path.endswith("big") else b"1"
            answer = await by_name[who].send(method, path, body if method == "PUT" else None)
            assert (answer.status, answer.json["code"]) == (status, code), (who, method, path)
            if status == 422:
                assert [each["field"] for each in answer.json["details"]["errors"]] == ["path"], path
        listed = (await by_name["ada"].get("/v1/sessions/s/files")).json["data"]
        assert [each["path"] for each in listed] == ["data/a.csv"]
        assert (await by_name["ada"].get(FILE)).body == b"1,2\n"


async def test_a_path_is_taken_as_it_was_sent(tmp_path: Path) -> None:
    paths = {"a%0Ab%0A": "a\nb\n", "%EF%BF%BD": "\ufffd", "files/%C3%A9%20%2Fb": "files/é /b", "a%25ff": "a%ff"}
    async with served(tmp_path) as by_name:
        ada = by_name["ada"]
        for sent, path in paths.items():
            file = f"/v1/sessions/files/files/{sent}"
            assert (await put(ada, file)).json["path"] == path
            assert [each["path"] for each in (await ada.get("/v1/sessions/files/files")).json["data"]] == [path]
            assert ((await ada.get(file)).body, (await ada.send("DELETE", file)).status) == (b"1,2\n", 204)


async def test_a_file_over_the_quota_is_refused_and_another_user_cannot_take_a_session(tmp_path: Path) -> None:
    async with served(tmp_path, quota_bytes=6) as by_name:
        assert (await put(by_name["ada"])).status == 201
        over = await put(by_name["ada"], "/v1/sessions/s/files/b")
        assert (over.status, over.json["code"]) == (413, "REQUEST_TOO_LARGE")
        assert (await put(by_name["blue"])).status == 201, "a session of that name in another tenant is another one"


@pytest.mark.parametrize("tables", [{}, {"scope": "tenant"}])
async def test_without_files_of_sessions_the_routes_lead_to_nothing(tables: dict[str, str], tmp_path: Path) -> None:
    tools = {"tools": {"files": {"root": str(tmp_path / "files"), **tables}}} if tables else {}
    async with callers(tmp_path, GRANTS, **tools) as (by_name, _):
        assert (await put(by_name["ada"])).status == 404
        assert (await by_name["ada"].get("/v1/sessions/s/files")).status == 404


async def test_a_model_writes_a_file_that_its_session_keeps_until_it_is_deleted(tmp_path: Path) -> None:
    async with served(tmp_path) as by_name:
        ada = by_name["ada"]
        asked = 'Use write_file with path "notes/a.txt" and content "Hello"'
        answer = (await ada.execute(chat(asked, session_id="s"))).json
        [call] = answer["tool_calls_made"]
        assert (call["name"], call["status"]) == ("write_file", "done")
        assert (await ada.get("/v1/sessions/s/files/notes/a.txt")).body == b"Hello"
        alone = (await ada.execute(chat(asked, request_id="alone"))).json
        assert alone["tool_calls_made"][0]["status"] == "done"
        kept = sorted(each.name[:2] for each in (tmp_path / "files").glob("*/*/*") if each.is_dir())
        assert kept == ["e-", "s-"]
        assert (await ada.send("DELETE", "/v1/sessions/s")).status == 204
        assert (await ada.send("DELETE", "/v1/executions/alone")).status in {202, 204}
        assert [each for each in (tmp_path / "files").glob("*/*/*") if each.is_dir() and each.name[1] == "-"] == []
        assert (await ada.get("/v1/sessions/s/files/notes/a.txt")).status == 404


CHART = """
rows = [line.split(',') for line in open('sales.csv').read().split()]
totals = [(name, int(amount)) for name, amount in rows]
bars = ''.join(
    f'<rect y="{20 * number}" width="{amount}" height="18"><title>{name}</title></rect>'
    for number, (name, amount) in enumerate(totals)
)
open('chart.svg', 'w').write(f'<svg xmlns="http://www.w3.org/2000/svg" width="100" height="40">{bars}</svg>')
print(sum(amount for _, amount in totals))
"""


async def test_a_csv_is_uploaded_summed_and_drawn_by_the_code_of_a_model_and_the_chart_downloaded(
    tmp_path: Path,
) -> None:
    require_level(opened_sandbox(), IsolationLevel.LANDLOCK)
    replies = [{"tool_calls": [{"name": "run_python", "arguments": {"code": CHART}}]}, {"text": "The sum is 42."}]
    (tmp_path / "model.json").write_bytes(orjson.dumps(replies))
    engines = {"model": {"model": f"scripted://{tmp_path}/model.json"}}
    tools: dict[str, Any] = {"files": {"root": str(tmp_path / "files")}, "python": {}}
    async with callers(tmp_path, GRANTS, engines=engines, tools=tools) as (by_name, _):
        ada = by_name["ada"]
        assert (await put(ada, "/v1/sessions/s/files/sales.csv", b"pens,20\nbooks,22\n")).status == 201
        answer = (await ada.execute(chat("Sum and draw it.", session_id="s", request_id="q"))).json
        assert (answer["content"], answer["tool_calls_made"][0]["result"]) == ("The sum is 42.", "42\n")
        listed = (await ada.get("/v1/sessions/s/files")).json["data"]
        assert [each["path"] for each in listed] == ["chart.svg", "sales.csv"]
        chart = (await ada.get("/v1/sessions/s/files/chart.svg")).body
        assert [each.get("width") for each in ElementTree.fromstring(chart)] == ["20", "22"]  # noqa: S314 - our own
        assert (await by_name["eve"].get("/v1/sessions/s/files/chart.svg")).status == 404
        assert (await ada.send("POST", "/v1/executions/q/replay")).json["identical"]


async def test_file_tools_are_untrusted_and_named_by_their_source(tmp_path: Path) -> None:
    async with served(tmp_path) as by_name:
        tools = {each["name"]: each for each in (await by_name["ada"].get("/v1/tools")).json["data"]}
        names = ["edit_file", "list_directory", "read_file", "write_file"]
        assert [name for name, each in tools.items() if each["source"] == "sandbox"] == names
        assert [tools[name]["side_effects"] for name in names] == ["write", "read", "read", "write"]
        assert all(tools[name]["idempotent"] and tools[name]["containment"] for name in names)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ('[tools.files]\nroot = "."', "tools.files.root: must not contain files of the service"),
        ("[tools.files]\nroot = ''", "tools.files.root"),
        ('[tools.files]\nroot = "portico.toml"', "tools.files.root"),
        ('[tools.files]\nroot = "files"\nscope = "user"', "tools.files.scope"),
        ('[tools.files]\nroot = "files"\nquota_bytes = 0', "tools.files.quota_bytes"),
        (
            '[tools.files]\nroot = "data/files"\n[tools.cli.a]\ndescription = "d"\ncommand = ["true"]\n'
            'read_paths = ["data"]',
            "tools.cli.a.read_paths.0: must not contain the root of tools.files",
        ),
        (
            '[tools.files]\nroot = "data"\n[tools.cli.a]\ndescription = "d"\ncommand = ["true"]\n'
            'working_dir = "data/files"',
            "tools.cli.a.working_dir: must not contain the root of tools.files",
        ),
    ],
)
async def test_a_configuration_of_files_is_refused(tables: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "data/files").mkdir(parents=True)
    file = tmp_path / "portico.toml"
    file.write_text(f'[storage]\nurl = "sqlite:///{tmp_path}/portico.db"\n{tables}\n')
    with pytest.raises(ConfigurationFailure, match=message.replace("[", r"\[")):
        async with open_service(load_settings({}, file, local_model=lambda: None)):
            pass
