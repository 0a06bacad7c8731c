"""`portico backup` and `portico restore`: a server under load is backed up, killed, lost and restored."""

import json
import re
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from http.client import HTTPException
from pathlib import Path

import anyio
import pytest
from typer.testing import CliRunner, Result

from portico.bootstrap.service import open_service
from portico.domain.access.principal import LOCAL
from portico.domain.contract.request import SystemRequest
from portico.domain.failures import Category
from portico.entrypoints.cli.command_line import command_line
from portico.entrypoints.cli.exit_codes import EXIT_CODES
from portico.settings import Settings
from tests.support.cli_process import Process, serving
from tests.support.file_size import limited_file_size
from tests.support.stores import set_schema_id

pytestmark = pytest.mark.usefixtures("empty_directory")

DATABASE = Path("var/portico.db")
CONFIGURATION, STORAGE = EXIT_CODES[Category.CONFIGURATION], EXIT_CODES[Category.STORAGE]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command_line(), arguments, prog_name="portico")


def stored(*names: str) -> None:
    """Store completed executions of these names in the database."""

    async def execute() -> None:
        async with open_service(Settings()) as service:
            for name in names:
                asked = {"request_id": name, "messages": [{"role": "user", "content": "Hello"}], "background": True}
                await service.facade.execute(SystemRequest.model_validate(asked), LOCAL)
                while (await service.facade.executions.show(LOCAL, name)).response is None:  # noqa: ASYNC110 - there is no event for it
                    await anyio.sleep(0.01)

    anyio.run(execute)


def names(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        return sorted(name for (name,) in connection.execute("SELECT request_id FROM executions"))


def files() -> list[str]:
    """Return the names of all files but the log of the database, which a reader makes if there is none."""
    names = (path.name for folder in (Path(), Path("var")) if folder.is_dir() for path in folder.iterdir())
    return sorted(name for name in names if name not in {"portico.db-wal", "portico.db-shm"})


def keyed(portico: Process, name: str, text: str = "Please calculate 17*3") -> tuple[int, str]:
    body = {"messages": [{"role": "user", "content": text}], "request_id": name}
    return portico.ask("POST", "/v1/execute", body, **{"Idempotency-Key": name})


@contextmanager
def load(portico: Process, clients: int = 4) -> Iterator[None]:
    """Send keyed requests from so many clients for as long as the context is open, or the server answers."""
    stop = threading.Event()

    def send(client: int) -> None:
        count = 0
        while not stop.is_set():
            try:
                keyed(portico, f"load-{client}-{count}")
            except (OSError, ValueError, HTTPException):
                return
            count += 1

    threads = [threading.Thread(target=partial(send, client)) for client in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_of_a_lost_server_what_was_answered_before_the_backup_is_back(start: Callable[..., Process]) -> None:
    with serving(start) as portico:
        before = {f"before-{number}": keyed(portico, f"before-{number}") for number in range(5)}
        asked = keyed(portico, "asked", 'Use ask_person: "May I?"')
        slow = {"request_id": "slow", "messages": [{"role": "user", "content": "[[slow:60]] Hi"}], "background": True}
        assert (asked[0], portico.ask("POST", "/v1/execute", slow)[0]) == (202, 202)
        with load(portico):
            for number in range(2):
                code, _ = start("backup", f"copy-{number}.db", "--verify", "10").ended()
                assert code == 0
            keyed(portico, "after")
            portico.signal(signal.SIGKILL)
        portico.ended()
    DATABASE.unlink()
    assert Path("var/portico.db-wal").exists()
    lines = run("restore", "copy-1.db").stdout.splitlines()
    cancelled = re.fullmatch(r"(\d+) executions that ran are cancelled\.", lines[1])
    assert lines[0].startswith("The state of 20")
    assert cancelled is not None
    assert lines[2] == "1 suspensions are open; some may have been answered since."
    with serving(start) as portico:
        while json.loads(portico.ask("GET", "/v1/executions/slow")[1])["response"] is None:
            pass
        shown = {name: portico.ask("GET", f"/v1/executions/{name}") for name in ("slow", "asked", "after")}
        assert {name: keyed(portico, name) for name in before} == before
        assert json.loads(shown["slow"][1])["response"]["error"]["code"] == "CANCELLED_SIGNAL"
        assert json.loads(shown["asked"][1])["state"] == "SUSPENDED"
        assert shown["after"][0] == 404
        portico.signal(signal.SIGTERM)
        assert portico.ended()[0] == 0
    replay = start("replay", "--last", "20", "--fail-on-difference")
    assert replay.ended()[0] == 0


@pytest.mark.torture
@pytest.mark.timeout(600)
def test_each_of_twenty_backups_while_fifty_clients_write_is_whole_and_replays(start: Callable[..., Process]) -> None:
    with serving(start) as portico, load(portico, clients=50):
        for number in range(20):
            code, _ = start("backup", f"copy-{number}.db", "--verify", "20").ended()
            assert code == 0
        portico.signal(signal.SIGTERM)
        portico.ended()
    for number in range(20):
        with closing(sqlite3.connect(f"copy-{number}.db")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert len(names(Path("copy-19.db"))) > len(names(Path("copy-0.db")))


def test_a_backup_is_one_private_file_with_what_was_committed() -> None:
    stored("a", "b")
    result = run("backup", "copy.db")
    size = Path("copy.db").stat().st_size
    assert (result.exit_code, result.stdout) == (0, f"copy.db  {size} bytes  2 executions\n")
    assert Path("copy.db").stat().st_mode & 0o777 == 0o600
    assert names(Path("copy.db")) == ["a", "b"]
    assert files() == ["copy.db", "portico.db", "var"]


def test_a_restored_backup_replaces_nothing_without_an_option_and_keeps_what_it_replaces() -> None:
    stored("a")
    run("backup", "copy.db")
    stored("b")
    refused = run("restore", "copy.db")
    assert (refused.exit_code, names(DATABASE)) == (STORAGE, ["a", "b"])
    assert "--replace restores the backup and keeps the file as portico.db.replaced" in refused.stderr
    assert run("restore", "copy.db", "--replace").exit_code == 0
    assert (names(DATABASE), names(Path("var/portico.db.replaced"))) == (["a"], ["a", "b"])
    again = run("restore", "copy.db", "--replace")
    assert (again.exit_code, "portico.db.replaced exists; move it away first" in again.stderr) == (STORAGE, True)
    with closing(sqlite3.connect(DATABASE)) as connection:
        assert connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'backup'").fetchone() is None
    stored("c")
    assert names(DATABASE) == ["a", "c"]


def test_the_log_of_a_killed_server_goes_with_the_file_that_is_replaced() -> None:
    stored("a")
    run("backup", "copy.db")
    with closing(sqlite3.connect(DATABASE, isolation_level=None)) as killed:
        killed.execute("PRAGMA journal_mode = WAL")
        killed.execute("UPDATE executions SET request_id = 'changed'")
        left = {path: path.read_bytes() for path in Path("var").iterdir()}
    for path, content in left.items():
        path.write_bytes(content)
    assert Path("var/portico.db-wal").stat().st_size > 0
    assert run("restore", "copy.db", "--replace").exit_code == 0
    assert (names(DATABASE), names(Path("var/portico.db.replaced"))) == (["a"], ["changed"])


def test_a_database_that_cannot_be_opened_is_kept_with_its_log() -> None:
    stored("a")
    run("backup", "copy.db")
    for suffix in ("", "-wal", "-shm"):
        Path(f"var/portico.db{suffix}").write_bytes(b"garbage" * 1000)
    assert run("restore", "copy.db", "--replace").exit_code == 0
    kept = [path for path in files() if "replaced" in path]
    assert kept == ["portico.db.replaced", "portico.db.replaced-shm", "portico.db.replaced-wal"]
    assert names(DATABASE) == ["a"]


@pytest.mark.parametrize(
    ("options", "cancels", "line"),
    [((), 1, "1 executions that ran are cancelled."), (("--continue",), 0, "What ran or was queued goes on.")],
)
def test_what_ran_is_cancelled_unless_it_is_to_go_on(options: tuple[str, ...], cancels: int, line: str) -> None:
    stored("ended", "ran", "waits")
    with closing(sqlite3.connect(DATABASE, isolation_level=None)) as connection:
        for name, state in (("ran", "EXECUTE"), ("waits", "SUSPENDED")):
            connection.execute("UPDATE executions SET state = ?, owner = NULL WHERE request_id = ?", (state, name))
    run("backup", "copy.db")
    DATABASE.unlink()
    assert run("restore", "copy.db", *options).stdout.splitlines()[1] == line
    with closing(sqlite3.connect(DATABASE)) as connection:
        assert connection.execute("SELECT count(*) FROM cancels").fetchone() == (cancels,)


def test_a_backup_onto_an_existing_file_leaves_it_as_it_is() -> None:
    stored("a")
    Path("copy.db").write_text("mine")
    result = run("backup", "copy.db")
    assert (result.exit_code, Path("copy.db").read_text()) == (STORAGE, "mine")
    assert result.stderr == "STORAGE_UNAVAILABLE: copy.db exists; name another file, or remove it\n"


@pytest.mark.parametrize("command", [("backup", "copy.db"), ("restore", "kept.db")])
def test_without_room_nothing_is_left(command: tuple[str, ...]) -> None:
    stored("a")
    run("backup", "kept.db")
    DATABASE.unlink()
    if command[0] == "backup":
        stored("a")
    before = files()
    with limited_file_size(65_536):
        result = run(*command)
    assert (result.exit_code, files()) == (STORAGE, before)
    assert result.stderr.startswith("STORAGE_FULL: cannot write ")


def test_a_restore_beneath_a_server_is_refused(start: Callable[..., Process]) -> None:
    with serving(start) as portico:
        assert keyed(portico, "a")[0] == 200
        assert run("backup", "copy.db").exit_code == 0
        result = run("restore", "copy.db", "--replace")
        assert (result.exit_code, keyed(portico, "b")[0]) == (CONFIGURATION, 200)
        assert result.stderr == "CONFIG_INVALID: a server runs on var/portico.db; stop it first\n"
    assert not [name for name in files() if "partial" in name or "replaced" in name]


def _garbage(path: Path) -> None:
    path.write_bytes(b"no database" * 500)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _other(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE other (a)")


def _later(path: Path) -> None:
    stored("a")
    run("backup", str(path))
    DATABASE.unlink()
    set_schema_id(f"sqlite:///{path}", "2")


def _damaged(path: Path) -> None:
    stored("a")
    run("backup", str(path))
    DATABASE.unlink()
    content = bytearray(path.read_bytes())
    content[8_192:40_960] = b"\xff" * 32_768
    path.write_bytes(content)


def _nothing(path: Path) -> None:
    path.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("make", "code", "reason"),
    [
        (_garbage, STORAGE, "cannot read copy.db: it is no database of Portico, or damaged"),
        (_empty, STORAGE, "cannot read copy.db: it is no database of Portico, or damaged"),
        (_other, STORAGE, "cannot read copy.db: it is no database of Portico, or damaged"),
        (_damaged, STORAGE, "cannot read copy.db: "),
        (_nothing, STORAGE, "there is no file copy.db"),
        (_later, CONFIGURATION, "copy.db was made by another version of the service, which this one cannot read"),
    ],
)
def test_what_is_no_backup_of_this_version_is_refused_and_nothing_is_made(
    make: Callable[[Path], None], code: int, reason: str
) -> None:
    make(Path("copy.db"))
    before = files()
    result = run("restore", "copy.db")
    assert (result.exit_code, files()) == (code, before)
    assert result.stderr.partition(": ")[2].startswith(reason)


@pytest.mark.parametrize(("command", "program"), [("backup", "pg_dump"), ("restore", "pg_restore")])
def test_on_postgresql_its_own_program_is_named(command: str, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORTICO__STORAGE__URL", "postgresql://portico@127.0.0.1/portico")
    result = run(command, "copy.db")
    assert (result.exit_code, f"use {program}" in result.stderr) == (CONFIGURATION, True)
