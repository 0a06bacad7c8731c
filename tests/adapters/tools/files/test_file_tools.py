"""The tools for files: what they return, what they refuse, and that nothing leads out of a caller's directory."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from portico.adapters.tools.files import beneath
from portico.adapters.tools.files.beneath import PathError, open_beneath, open_in_parts
from portico.adapters.tools.files.directories import FileDirectories, FileLimits
from portico.adapters.tools.files.file_tools import FileTools, replaced
from portico.adapters.tools.files.store import UNOWNED_SECONDS, DirectoryFiles
from portico.domain.failures import Code, RequestFailure
from portico.domain.ids import IdempotencyKey, RequestId, SessionId, TenantId, ToolCallId, UserId
from portico.domain.tools import Caller
from portico.ports.tool import ToolContext, ToolError
from tests.support.entropy import SeededEntropy
from tests.support.virtual_time import VirtualClock

LIMITS = FileLimits(file_bytes=1_000, bytes=2_000, entries=8)
SWAP = """
import os, sys
root, secret = sys.argv[1:]
for turn in range(10_000):
    os.symlink(("good", secret)[turn % 2], root + "/new")
    os.replace(root + "/new", root + "/place")
"""


def caller(session: str | None = "s", *, tenant: str = "red", user: str = "ada", request: str = "r") -> Caller:
    return Caller(TenantId(tenant), UserId(user), None if session is None else SessionId(session), RequestId(request))


def directories(folder: Path, *, is_for_tenant: bool = False) -> FileDirectories:
    return FileDirectories(folder / "files", LIMITS, is_for_tenant=is_for_tenant)


async def call(found: FileDirectories, name: str, whose: Caller | None = None, **arguments: Any) -> Any:
    tool = next(each for each in FileTools(found).tools() if each.info().name == name)
    clock, key = VirtualClock(), IdempotencyKey("key")
    context = ToolContext(ToolCallId("c"), 10, clock, SeededEntropy(1), key, caller=whose or caller())
    return await tool.execute(arguments, context)


async def test_a_file_is_written_listed_read_and_edited(tmp_path: Path) -> None:
    found = directories(tmp_path)
    written = await call(found, "write_file", path="a/b.txt", content="one\ntwo\nthree\n")
    assert (written["path"], written["bytes"], len(written["sha256"])) == ("a/b.txt", 14, 64)
    assert await call(found, "read_file", path="./a//b.txt", first_line=2, lines=1) == "two\n"
    listed = await call(found, "list_directory")
    assert listed == {
        "entries": [{"name": "a", "type": "directory", "bytes": listed["entries"][0]["bytes"]}],
        "truncated": False,
    }
    edited = await call(found, "edit_file", path="a/b.txt", old_text="two", new_text="two\n2.5")
    again = await call(found, "edit_file", path="a/b.txt", old_text="two", new_text="two\n2.5")
    assert (edited["changed"], again["changed"], edited["sha256"]) == (True, False, again["sha256"])
    assert await call(found, "read_file", path="a/b.txt") == "one\ntwo\n2.5\nthree\n"


@pytest.mark.parametrize(
    ("text", "old", "new", "result"),
    [
        ("a b a", "b", "c", "a c a"),
        ("a c a", "b", "c", "a c a"),
        ("line\nadded\n", "line\n", "line\nadded\n", "line\nadded\n"),
        ("a b", "b", "", "a "),
        ("a a", "a", "b", 2),
        ("aaa", "aa", "b", 2),
        ("x", "b", "c", 0),
        ("x", "b", "", 0),
    ],
)
def test_a_text_is_replaced_if_it_occurs_once_outside_of_the_new_one(
    text: str, old: str, new: str, result: str | int
) -> None:
    if isinstance(result, str):
        assert replaced(text, old, new) == result
        return
    with pytest.raises(ToolError, match=f"occurs {result} times"):
        replaced(text, old, new)


def _plant(root: Path) -> None:
    """Leave in a caller's directory what its programs might."""
    (root / "out").symlink_to("/etc/passwd")
    (root / "up").symlink_to("../../..")
    (root / "in").symlink_to("real.txt")
    (root / "real.txt").write_text("here")
    os.mkfifo(root / "pipe")
    os.link(root / "real.txt", root / "second")
    (root / "dir").mkdir()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/etc/passwd", "must be relative"),
        ("../x", "must not contain"),
        ("dir/../../x", "must not contain"),
        ("a\0b", "without NUL"),
        ("x" * 1025, "1 to 1024 bytes"),
        ("/".join("x" * 33), "at most 32 parts"),
        ("x" * 300, "too long"),
        ("out", "leads out"),
        ("up/x", "leads out"),
        ("pipe", "no regular file"),
        ("second", "one name"),
        ("dir", "is a directory"),
        ("none", "no such file"),
        ("real.txt/x", "no such directory"),
    ],
)
async def test_a_path_is_refused_with_the_reason(path: str, reason: str, tmp_path: Path) -> None:
    found = directories(tmp_path)
    _plant(found.made(caller()))
    with pytest.raises(ToolError, match=reason):
        await call(found, "read_file", path=path)


@pytest.mark.parametrize("opener", [open_beneath, open_in_parts])
@pytest.mark.parametrize(
    ("parts", "content"),
    [(("real.txt",), b"here"), (("dir", "x"), b"x"), (("out",), None), (("up", "files"), None), (("dir", "l"), None)],
)
def test_both_ways_of_opening_stay_beneath_the_directory(
    opener: Callable[[int, Sequence[str], int], int], parts: Sequence[str], content: bytes | None, tmp_path: Path
) -> None:
    (tmp_path / "root").mkdir()
    _plant(tmp_path / "root")
    (tmp_path / "root/dir/x").write_text("x")
    (tmp_path / "root/dir/l").symlink_to("/etc")
    root = os.open(tmp_path / "root", os.O_PATH)
    try:
        if content is None:
            with pytest.raises(PathError):
                opener(root, parts, os.O_RDONLY)
            return
        descriptor = opener(root, parts, os.O_RDONLY)
        assert os.read(descriptor, 10) == content
        os.close(descriptor)
    finally:
        os.close(root)


async def test_a_list_names_the_type_of_each_entry_in_order_and_at_most_a_thousand(tmp_path: Path) -> None:
    found = directories(tmp_path)
    root = found.made(caller())
    _plant(root)
    listed = await call(found, "list_directory")
    assert [(each["name"], each["type"]) for each in listed["entries"]] == [
        ("dir", "directory"),
        ("in", "link"),
        ("out", "link"),
        ("pipe", "other"),
        ("real.txt", "file"),
        ("second", "file"),
        ("up", "link"),
    ]
    assert listed["entries"][4]["bytes"] == 4
    for number in range(1_001):
        (root / "dir" / f"{number:04}").touch()
    listed = await call(found, "list_directory", path="dir")
    assert (len(listed["entries"]), listed["entries"][-1]["name"], listed["truncated"]) == (1_000, "0999", True)


async def test_a_link_within_the_directory_is_followed(tmp_path: Path) -> None:
    found = directories(tmp_path)
    root = found.made(caller())
    (root / "in").symlink_to("real.txt")
    (root / "real.txt").write_text("here")
    assert await call(found, "read_file", path="in") == "here"
    await call(found, "write_file", path="in", content="its own")
    assert (root / "real.txt").read_text() == "here"


@pytest.mark.timeout(60)
def test_a_link_that_is_swapped_while_files_are_read_never_leads_out(tmp_path: Path) -> None:
    found = directories(tmp_path)
    root = found.made(caller())
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "file").write_text("secret")
    (root / "good").mkdir()
    (root / "good/file").write_text("good")
    (root / "evil").symlink_to(secret)
    os.symlink("good", root / "place")
    read: set[bytes] = set()
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", SWAP, str(root), str(secret)]) as swapper:
        while swapper.poll() is None:
            try:
                read.add(found.read(caller(), "place/file", 100))
            except PathError:
                read.add(b"refused")
    assert (swapper.returncode, read) == (0, {b"good", b"refused"})


async def test_sessions_executions_users_and_tenants_have_directories_of_their_own(tmp_path: Path) -> None:
    found = directories(tmp_path)
    callers = [
        *(caller("a"), caller("b"), caller("a", user="eve"), caller("a", tenant="blue")),
        *(caller(None, request="a"), caller(None, request="b")),
    ]
    for number, each in enumerate(callers):
        await call(found, "write_file", each, path="f", content=str(number))
    assert [await call(found, "read_file", each, path="f") for each in callers] == list("012345")
    shared = directories(tmp_path / "shared", is_for_tenant=True)
    await call(shared, "write_file", caller("a"), path="f", content="x")
    assert await call(shared, "read_file", caller("b", user="eve"), path="f") == "x"
    with pytest.raises(ToolError, match="no such file"):
        await call(shared, "read_file", caller(tenant="blue"), path="f")


async def test_quotas_are_kept_and_what_is_replaced_counts_once(tmp_path: Path) -> None:
    found = directories(tmp_path)
    with pytest.raises(ToolError, match="at most 1000 bytes"):
        await call(found, "write_file", path="big", content="x" * 1001)
    for name in ("a", "b", "b"):
        await call(found, "write_file", path=name, content="x" * 900)
    with pytest.raises(ToolError, match="at most 2000 bytes"):
        await call(found, "write_file", path="c", content="x" * 201)
    with pytest.raises(ToolError, match="at most 1000 bytes"):
        await call(found, "edit_file", path="a", old_text="x" * 900, new_text="y" * 1001)
    with pytest.raises(ToolError, match="at most 8 files"):
        await call(found, "write_file", path="1/2/3/4/5/6/7", content="")
    assert sorted(os.listdir(found.directory_of(caller()))) == ["a", "b"]
    assert [each.name for each in found.directory_of(caller()).parent.glob("new-*")] == []


async def test_a_name_that_is_no_text_spoils_neither_lists_nor_quotas(tmp_path: Path) -> None:
    found = directories(tmp_path)
    root = os.fsencode(found.made(caller()))
    os.mkdir(root + b"/\xff")
    os.mkdir(root + b"/\xff/\xfe")
    await call(found, "write_file", path="a", content="x")
    listed = await call(found, "list_directory")
    assert [each["name"] for each in listed["entries"]] == ["a", "?"]
    page, _ = await DirectoryFiles(found).page(caller(), after=None, limit=10)
    assert ([each.path for each in page], found.space_left(found.directory_of(caller()))) == (["a"], (1999, 5))


async def test_bytes_that_are_no_text_are_refused_with_their_size(tmp_path: Path) -> None:
    found = directories(tmp_path)
    found.write(caller(), "image", b"\xff\xfe\x00")
    with pytest.raises(ToolError, match=r"no UTF-8 text; it has 3 bytes"):
        await call(found, "read_file", path="image")


async def test_a_call_outside_of_an_execution_has_no_files(tmp_path: Path) -> None:
    tool = FileTools(directories(tmp_path)).tools()[0]
    context = ToolContext(ToolCallId("c"), 10, VirtualClock(), SeededEntropy(1), IdempotencyKey("key"))
    with pytest.raises(ToolError, match="of neither"):
        await tool.execute({}, context)


async def test_what_is_discarded_is_gone_at_once_and_removed_at_any_depth(tmp_path: Path) -> None:
    found = directories(tmp_path)
    store = DirectoryFiles(found)
    root = found.made(caller())
    nested = os.open(root, os.O_PATH)
    for _ in range(1_100):
        os.mkdir("d", dir_fd=nested)
        inner = os.open("d", os.O_PATH, dir_fd=nested)
        os.close(nested)
        nested = inner
    os.close(nested)
    (root / "closed").mkdir(mode=0)
    store.discard(caller())
    assert not root.exists()
    await store.remove_discarded()
    assert list((tmp_path / "files/discarded").iterdir()) == []
    store.discard(caller())


async def test_the_sweep_removes_what_belongs_to_nothing_after_a_day(tmp_path: Path) -> None:
    found = directories(tmp_path)
    store, now = DirectoryFiles(found), 0.0
    for each in (caller("kept"), caller("gone"), caller(None, request="ended")):
        now = found.made(each).stat().st_mtime

    async def exists(whose: Caller) -> bool:
        return whose.session_id == "kept"

    await store.sweep(exists, now)
    assert found.directory_of(caller("gone")).exists()
    await store.sweep(exists, now + UNOWNED_SECONDS + 60)
    kept = [
        found.directory_of(each).exists() for each in (caller("kept"), caller("gone"), caller(None, request="ended"))
    ]
    assert kept == [True, False, False]


async def test_a_page_of_files_goes_on_after_a_path(tmp_path: Path) -> None:
    store = DirectoryFiles(directories(tmp_path))
    for name in ("b", "a/c", "a.txt"):
        await store.write(caller(), name, b"x")
    first, following = await store.page(caller(), after=None, limit=2)
    rest, end = await store.page(caller(), after=following, limit=2)
    assert ([each.path for each in first], [each.path for each in rest], end) == (["a.txt", "a/c"], ["b"], None)
    with pytest.raises(RequestFailure) as refused:
        await store.read(caller(), "none")
    assert refused.value.code is Code.REQUEST_NOT_FOUND


def test_the_number_of_openat2_is_that_of_the_headers() -> None:
    """A number of a system call that is wrong would always take the slower way."""
    root = os.open("/", os.O_PATH)
    try:
        os.close(beneath._open_whole(root, "usr", os.O_PATH))
    finally:
        os.close(root)
