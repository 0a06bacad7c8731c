"""The audit log in a file: several writers make one chain of lines, and what breaks it is found."""

import json
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from portico.adapters.audit.file import CHAIN_START, AuditFile
from portico.adapters.audit.refusals import RefusalLog
from portico.adapters.audit.verification import verify
from portico.domain.failures import AccessFailure, Code, Failure, OrchestrationFailure, StorageFailure
from portico.ports.audit import Action, AuditEntry
from tests.support.file_size import limited_file_size
from tests.support.virtual_time import VirtualClock


def opened(path: Path) -> AuditFile:
    return AuditFile(path, VirtualClock())


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


async def written(path: Path, count: int) -> None:
    log = opened(path)
    for number in range(count):
        await log.write(AuditEntry(Action.EXECUTION_CANCEL, target=f"r-{number}"))
    log.close()


async def test_a_line_has_every_field_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    await written(path, 1)
    fields = ["time", "action", "tenant", "user", "key", "target", "owner", "outcome", "code", "detail", "prev"]
    line = json.loads(path.read_bytes())
    assert list(line) == fields
    assert (line["target"], line["outcome"], line["tenant"], line["prev"]) == ("r-0", "ok", None, CHAIN_START)
    assert path.stat().st_mode & 0o777 == 0o600


async def test_several_writers_make_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(written, path, 25)
    assert (verify([path]), len(lines(path))) == (200, 200)


async def test_after_a_move_the_chain_goes_on_in_a_new_file(tmp_path: Path) -> None:
    path, old = tmp_path / "audit.jsonl", tmp_path / "audit.1"
    first, second = opened(path), opened(path)
    for log in (first, second, first):
        await log.write(AuditEntry(Action.KEY_CREATE))
    path.rename(old)
    for log in (first, second):
        await log.write(AuditEntry(Action.KEY_REVOKE))
        log.close()
    assert (verify([old]), verify([old, path])) == (3, 5)
    with pytest.raises(OrchestrationFailure, match="it continues another file"):
        verify([path])
    await written(tmp_path / "later", 2)
    assert verify([old, path, tmp_path / "later"]) == 7


def _changed(found: list[bytes]) -> list[bytes]:
    return [*found[:2], found[2].replace(b"r-2", b"r-9"), *found[3:]]


def _removed(found: list[bytes]) -> list[bytes]:
    return [*found[:2], *found[3:]]


def _moved(found: list[bytes]) -> list[bytes]:
    return [*found[:2], found[3], found[2], *found[4:]]


def _first_removed(found: list[bytes]) -> list[bytes]:
    return found[1:]


def _cut(found: list[bytes]) -> list[bytes]:
    return [*found[:2], found[2][:40], *found[3:]]


@pytest.mark.parametrize(
    ("damage", "line"), [(_changed, 4), (_removed, 3), (_moved, 3), (_first_removed, 1), (_cut, 3)]
)
async def test_a_line_that_was_changed_removed_or_moved_is_found(
    tmp_path: Path, damage: Callable[[list[bytes]], list[bytes]], line: int
) -> None:
    path = tmp_path / "audit.jsonl"
    await written(path, 6)
    path.write_bytes(b"\n".join(damage(lines(path))) + b"\n")
    with pytest.raises(OrchestrationFailure, match=f"audit.jsonl line {line}: ") as found:
        verify([path])
    assert found.value.category.name == "ORCHESTRATION"


async def test_a_line_that_breaks_off_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    await written(path, 3)
    before = path.read_bytes()
    failures: list[None] = []
    log = AuditFile(path, VirtualClock(), lambda: failures.append(None))
    with limited_file_size(len(before) + 50), pytest.raises(StorageFailure) as failed:
        await log.write(AuditEntry(Action.KEY_CREATE))
    assert (failed.value.code, path.read_bytes(), len(failures)) == (Code.STORAGE_FULL, before, 1)
    await log.write(AuditEntry(Action.KEY_CREATE))
    log.close()
    assert verify([path]) == 4


async def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageFailure, match="none: No such file"):
        verify([tmp_path / "none"])


async def test_refused_callers_have_one_line_a_second_each_and_unknown_ones_one_together(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = opened(path)
    refusals = RefusalLog(log, VirtualClock())
    denied = AccessFailure(Code.ACCESS_DENIED, "no")
    unknown = AccessFailure(Code.ACCESS_UNAUTHENTICATED, "no")
    other: Failure = StorageFailure(Code.STORAGE_FULL, "no")
    for failure, caller in [(denied, "a"), (denied, "a"), (denied, "b"), (unknown, "a"), (unknown, "c"), (other, "a")]:
        refusals.add(failure, caller)
    await refusals.flush()
    await refusals.flush()
    log.close()
    found = [json.loads(line) for line in lines(path)]
    assert [(each["key"], each["code"], each["detail"], each["outcome"]) for each in found] == [
        ("a", "ACCESS_DENIED", "1 more", "refused"),
        ("b", "ACCESS_DENIED", None, "refused"),
        (None, "ACCESS_UNAUTHENTICATED", "1 more", "refused"),
    ]
