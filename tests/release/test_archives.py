"""Archives of a release have the same bytes whenever and by whomever they are built."""

import hashlib
import io
import tarfile

from release.archives import checksums, repacked

EPOCH = 1_790_000_000


def archive(names: list[str], mtime: int, owner: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as files:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uname, member.mode = len(name), mtime, owner, 0o600
            files.addfile(member, io.BytesIO(name.encode()))
    return packed.getvalue()


def test_order_times_owners_and_modes_of_the_build_are_not_in_the_archive() -> None:
    first = repacked(archive(["a/b", "a/c"], 1, "ada"), EPOCH)
    assert first == repacked(archive(["a/c", "a/b"], 2, "bob"), EPOCH)
    with tarfile.open(fileobj=io.BytesIO(first)) as files:
        assert [(each.name, each.mtime, each.uname, each.mode) for each in files] == [
            ("a/b", EPOCH, "", 0o644),
            ("a/c", EPOCH, "", 0o644),
        ]
        content = files.extractfile("a/b")
        assert content is not None
        assert content.read() == b"a/b"


def test_the_checksums_are_those_of_sha256sum() -> None:
    assert checksums({"b": b"2", "a": b"1"}).decode().splitlines() == [
        f"{hashlib.sha256(b'1').hexdigest()}  a",
        f"{hashlib.sha256(b'2').hexdigest()}  b",
    ]
