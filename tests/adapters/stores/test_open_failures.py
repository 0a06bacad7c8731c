"""Failures to open a database name the database and the reason, and never a password."""

import asyncio
import socket
import sqlite3
import ssl
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from portico.adapters.stores.factory import check_database, open_database, open_read_only
from portico.adapters.stores.postgres_open_failures import named_postgres
from portico.domain.failures import Code, ConfigurationFailure, Failure, StorageFailure
from tests.support.entropy import SeededEntropy
from tests.support.virtual_time import VirtualClock, VirtualTimeLoop

CANARY = "s3cret-7d1f"


async def refusal(url: str, *, read_only: bool = False) -> str:
    """Return the message of the failure to open that database."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    opened = (open_read_only if read_only else open_database)(url, VirtualClock(), SeededEntropy(0))
    with loop.in_real_time(), pytest.raises(Failure) as caught:
        async with opened:
            pass
    assert caught.value.code in {Code.STORAGE_UNAVAILABLE, Code.CONFIG_INVALID}
    assert CANARY not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"path": "/away"}, '"away" on {host}, port 5432: the database does not exist'),
        (
            {"netloc": f"stranger:{CANARY}@"},
            '"postgres" on {host}, port 5432: the user "stranger" does not exist or may not log in',
        ),
    ],
)
@pytest.mark.parametrize("read_only", [False, True])
async def test_a_missing_database_or_user_is_named(
    postgres_url: str, changes: dict[str, str], reason: str, *, read_only: bool
) -> None:
    url = urlsplit(postgres_url)
    host = url.query.removeprefix("host=")
    message = await refusal(url._replace(**changes).geturl(), read_only=read_only)
    assert message == "storage.url: cannot open the database " + reason.format(host=host)


async def test_a_closed_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        message = await refusal(f"postgresql://u:{CANARY}@127.0.0.1:{port}/p?user=v")
    assert (
        message == f'storage.url: cannot open the database "p" on 127.0.0.1, port {port}: nothing listens on the port'
    )


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (asyncpg.InvalidPasswordError(CANARY), 'the password of the user "u" is missing or wrong'),
        (
            asyncpg.InsufficientPrivilegeError(CANARY),
            'the user "u" may not use the database or create tables in it',
        ),
        (asyncpg.PostgresError.new({"C": "53300", "M": CANARY}), "the server refused with SQLSTATE 53300"),
        (asyncpg.ConnectionDoesNotExistError(CANARY), "the server closed the connection; it may not be PostgreSQL"),
        (asyncpg.exceptions.ClientConfigurationError(CANARY), "the URL has an option that is not valid"),
        (socket.gaierror(-2, CANARY), "the name of the host cannot be resolved"),
        (ssl.SSLError(1, CANARY), "the TLS connection failed"),
        (TimeoutError(), "the server did not answer in time"),
        (OSError(101, CANARY), "the server cannot be reached: Network is unreachable"),
        (OSError(CANARY), "the server cannot be reached, or does not answer as PostgreSQL does"),
        (None, "the server cannot be reached, or does not answer as PostgreSQL does"),
    ],
    ids=str,
)
def test_every_reason_has_its_own_words(fault: Exception | None, reason: str) -> None:
    with pytest.raises(StorageFailure) as caught, named_postgres(f"postgresql://u:{CANARY}@db.example.org/p%20q"):
        raise StorageFailure(Code.STORAGE_UNAVAILABLE, "the database does not answer") from fault
    assert caught.value.message.startswith(
        f'storage.url: cannot open the database "p q" on db.example.org, port 5432: {reason}'
    )
    assert CANARY not in caught.value.message


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_file_that_is_no_database_is_named(tmp_path: Path, *, read_only: bool) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"no database" * 1_000)
    message = await refusal(f"sqlite:///{path}", read_only=read_only)
    assert message == f"storage.url: cannot open {path}: the file is not a SQLite database"


async def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    message = await refusal(f"sqlite:///{tmp_path}/file/portico.db")
    assert message == f"storage.url: cannot write {tmp_path}/file/portico.db: File exists"
    (tmp_path / "folder").mkdir()
    assert (
        await refusal(f"sqlite:///{tmp_path}/folder") == f"storage.url: cannot write {tmp_path}/folder: Is a directory"
    )


async def test_a_missing_file_is_named_to_a_reader(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFailure, match=f"storage.url: there is no SQLite file {tmp_path}/away.db"):
        async with open_read_only(f"sqlite:///{tmp_path}/away.db", VirtualClock(), SeededEntropy(0)):
            pass


async def test_a_file_of_another_program_has_no_executions_to_read(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE notes (text)")
    message = await refusal(f"sqlite:///{tmp_path}/other.db", read_only=True)
    assert message.endswith("other.db: the file has no tables of Portico")


async def checked(url: str) -> str:
    """Return what a check finds at that URL."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    with loop.in_real_time():
        return await check_database(url, VirtualClock(), SeededEntropy(0))


async def test_a_check_finds_a_file_that_another_process_owns_and_changes_nothing(tmp_path: Path) -> None:
    url, path = f"sqlite:///{tmp_path}/deep/portico.db", tmp_path / "deep" / "portico.db"
    assert await checked(url) == f"no file {path} yet; the service creates it"
    assert not path.parent.exists()
    async with open_database(url, VirtualClock(), SeededEntropy(0)):
        assert await checked(url) == f"{path} found"
    assert await checked("sqlite://") == "in memory; lost when the service stops"


async def test_a_check_refuses_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigurationFailure, match=f"storage.url: cannot write {tmp_path}/file"):
        await checked(f"sqlite:///{tmp_path}/file/portico.db")
    for place, reason in (("/proc/portico/portico.db", "no such file"), (f"/{'x' * 300}/portico.db", "file name too")):
        with pytest.raises(ConfigurationFailure, match=f"storage.url: cannot write {place}: {reason}"):
            await checked(f"sqlite:///{place}")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigurationFailure, match=f"storage.url: cannot write {tmp_path}/folder: it is no file"):
        await checked(f"sqlite:///{tmp_path}/folder")
    (tmp_path / "file").write_bytes(b"no database" * 1_000)
    with pytest.raises(StorageFailure, match="the file is not a SQLite database"):
        await checked(f"sqlite:///{tmp_path}/file")


async def test_a_check_reaches_postgresql(postgres_url: str) -> None:
    empty = urlsplit(postgres_url)._replace(path="/template1").geturl()
    assert await checked(empty) == "no tables yet; the service creates them"
    with pytest.raises(StorageFailure, match="the database does not exist"):
        await checked(urlsplit(postgres_url)._replace(path="/away").geturl())


async def test_a_check_refuses_a_user_who_could_make_no_table(postgres_url: str) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    with loop.in_real_time():
        connection = await asyncpg.connect(postgres_url)
        await connection.execute("CREATE ROLE reader LOGIN")
        await connection.close()
    parts = urlsplit(postgres_url)
    url = parts._replace(path="/template1", netloc=f"reader@{parts.netloc.rpartition('@')[2]}").geturl()
    with pytest.raises(ConfigurationFailure, match=r"storage\.url: this user cannot write the database"):
        await checked(url)
