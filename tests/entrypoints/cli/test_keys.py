"""`portico keys`, alone and beside a running server, and a start as in a container."""

import json
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi import FastAPI
from typer.testing import CliRunner, Result
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from portico.bootstrap.keys import open_keys
from portico.bootstrap.service import open_history_reader, open_service
from portico.domain.access.api_key import ApiKey
from portico.entrypoints.cli.command_line import command_line
from portico.entrypoints.cli.service_parts import Wiring
from tests.support.cli_checks import CHECKS
from tests.support.cli_process import Process
from tests.support.stores import set_schema_id

pytestmark = pytest.mark.usefixtures("empty_directory")

KEY = re.compile(r"ptk_[A-Za-z0-9]{8}_[A-Za-z0-9_-]{43}\n")
DATABASE = Path("var/portico.db")


def run(*arguments: str) -> Result:
    wiring = Wiring(
        create_app=lambda _: FastAPI(),
        protocol=HttpToolsProtocol,
        open_service=open_service,
        open_history_reader=open_history_reader,
        checks=CHECKS,
        open_keys=open_keys,
    )
    return CliRunner().invoke(command_line(), ["keys", *arguments], obj=lambda: wiring, prog_name="portico")


def created(*options: str) -> ApiKey:
    result = run("create", "--tenant", "acme", "--user", "ann", *options)
    assert result.exit_code == 0, result.stderr
    assert KEY.fullmatch(result.stdout)
    key = ApiKey.parse(result.stdout.strip())
    assert key is not None
    return key


def listed() -> list[dict[str, object]]:
    return [json.loads(line) for line in run("list", "--json").stdout.splitlines()]


def test_a_key_is_printed_once_and_listed_without_its_secret() -> None:
    key = created("--permission", "can_send_messages", "--permission", "tool:search*", "--expires", "30")
    (shown,) = listed()
    assert (shown["key_id"], shown["tenant"], shown["user"]) == (key.key_id, "acme", "ann")
    assert shown["permissions"] == ["can_send_messages", "tool:search*"]
    assert shown["expires_at"] is not None
    text = run("list").stdout
    assert key.key_id in text
    assert key.secret not in text + str(shown)
    assert key.secret.encode() not in DATABASE.read_bytes()


def test_a_key_is_revoked_by_its_public_id() -> None:
    key = created()
    assert run("revoke", key.key_id).exit_code == 0
    assert listed()[0]["revoked_at"] is not None
    assert run("revoke", "unknown1").exit_code == 18
    whole = run("revoke", key.reveal())
    assert whole.exit_code == 2
    assert key.secret not in whole.output


def test_a_key_is_generated_without_a_database() -> None:
    assert KEY.fullmatch(run("generate").stdout)
    assert not DATABASE.exists()


@pytest.mark.parametrize(
    "options",
    [
        ("--tenant", "a/b"),
        ("--tenant", ""),
        ("--user", "a b"),
        ("--permission", "can_fly"),
        ("--permission", "*"),
        ("--permission", "tool:"),
        ("--requests", "10"),
        ("--requests", "0/60"),
        ("--tokens", "a/b"),
        ("--cost", "1/0"),
        ("--concurrency", "0"),
        ("--expires", "-1"),
    ],
)
def test_what_cannot_be_granted_is_wrong_usage(options: tuple[str, ...]) -> None:
    result = run("create", "--tenant", "acme", "--user", "ann", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert not DATABASE.exists()


def test_the_database_and_its_folder_are_for_their_owner_only() -> None:
    created()
    assert stat.S_IMODE(DATABASE.stat().st_mode) == 0o600
    assert stat.S_IMODE(DATABASE.parent.stat().st_mode) == 0o700
    DATABASE.chmod(0o644)
    created()
    assert stat.S_IMODE(DATABASE.stat().st_mode) == 0o600


def test_the_file_of_another_user_is_refused_and_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    database = DATABASE
    if os.geteuid() == 0:
        created()
        os.chown(database, 65_534, 65_534)
    else:
        database = Path("/etc/passwd")
        monkeypatch.setenv("PORTICO__STORAGE__URL", f"sqlite:///{database}")
    before = sorted(os.listdir(database.parent))
    for arguments in (("list",), ("create", "--tenant", "acme", "--user", "ann"), ("revoke", "unknown1")):
        result = run(*arguments)
        assert result.exit_code == 15
        assert "belongs to another user" in result.stderr
    assert sorted(os.listdir(database.parent)) == before


def test_a_database_of_an_unreleased_version_is_refused() -> None:
    created()
    set_schema_id(f"sqlite:///{DATABASE}", "0010")
    for arguments in (("list",), ("create", "--tenant", "acme", "--user", "ann"), ("revoke", "unknown1")):
        result = run(*arguments)
        assert result.exit_code == 15
        assert "made by an unreleased version; use a new one" in result.stderr


def test_a_database_in_memory_has_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORTICO__STORAGE__URL", "sqlite://")
    assert run("create", "--tenant", "acme", "--user", "ann").exit_code == 15


def test_it_starts_as_in_a_container_with_a_key_file_on_every_address(start: Callable[..., Process]) -> None:
    file = Path("key")
    file.write_text(run("generate").stdout)
    variables = {
        "PORTICO__AUTH__MODE": "keys",
        "PORTICO__AUTH__BOOTSTRAP_KEY_FILE": str(file.absolute()),
        "PORTICO__AUTH__BOOTSTRAP_TENANT": "acme",
        "PORTICO__ENGINES__REHEARSAL__MODEL": "rehearsal://",
    }
    process = start("serve", "--host", "0.0.0.0", "--port", "0", **variables)  # noqa: S104 - as in a container
    line = process.line()
    assert line.startswith("Portico listens on http://0.0.0.0:")
    process.port = int(line.split(",")[0].rpartition(":")[2])
    assert 'auth.mode is "keys"' in process.line()
    assert process.ask("GET", "/readyz")[0] == 200
    assert process.execute("Hello")[0] == 401
    bootstrap = {"Authorization": f"Bearer {file.read_text().strip()}", "Host": "portico.example.org"}
    assert process.execute("Hello", **bootstrap)[0] == 200
    key = created()
    mine = {"Authorization": f"Bearer {key.reveal()}"}
    assert process.execute("Hello", **mine)[0] == 200
    assert process.ask("GET", "/metrics", **mine)[0] == 403
    file.write_text(run("generate").stdout)
    renewed = {"Authorization": f"Bearer {file.read_text().strip()}"}
    assert process.execute("Hello", **renewed)[0] == 200
    assert process.execute("Hello", **bootstrap)[0] == 401
