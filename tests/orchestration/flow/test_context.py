"""Tests of the context of flows: paths, files, commands and dependencies."""

import os
from pathlib import Path

import pytest

from portico.domain.failures import Code
from portico.orchestration.flow import Context, ForbiddenCommand, Io, Missing, PathEscape, UnknownTool


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a working directory with a secret beside it."""
    (tmp_path / "secret").write_text("secret")
    root = tmp_path / "work"
    (root / "inner").mkdir(parents=True)
    (root / "inner" / "file").write_text("öffentlich", encoding="utf-8")
    return root


def test_paths_resolve_beneath_the_working_directory(root: Path) -> None:
    context = Context(root)
    assert context.resolve("inner/../inner/file") == root / "inner" / "file"
    assert context.resolve(root / "inner") == root / "inner"
    (root / "link").symlink_to(root / "inner")
    assert context.resolve("link/file") == root / "inner" / "file"


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "inner/../../secret", "out", "out/secret", "a\0b"])
def test_a_path_that_leads_out_is_refused(root: Path, path: str) -> None:
    (root / "out").symlink_to(root.parent)
    for method in (Context(root).resolve, Context(root).open):
        with pytest.raises(PathEscape):
            method(path)


def test_files_are_opened_for_reading_and_writing(root: Path) -> None:
    context = Context(root)
    with context.open("inner/new", "w") as file:
        file.write("ä")
    with context.open("inner/new", "rb") as file:
        assert file.read() == "ä".encode()
    with context.open("inner/file") as file:
        assert file.read() == "öffentlich"


def test_a_directory_that_is_swapped_for_a_link_is_refused(root: Path) -> None:
    class Swapping(Context):
        """A context whose directory is swapped between the check and the opening."""

        def resolve(self, path: str | Path) -> Path:
            resolved = super().resolve(path)
            (root / "inner" / "file").unlink()
            (root / "inner").rmdir()
            (root / "inner").symlink_to(root.parent)
            return resolved

    (root.parent / "file").write_text("secret")
    with pytest.raises(Io):
        Swapping(root).open("inner/file")


@pytest.mark.parametrize("name", ["pipe", "inner", "", "missing/file"])
def test_only_regular_files_are_opened(root: Path, name: str) -> None:
    os.mkfifo(root / "pipe")
    with pytest.raises((Io, PathEscape)):
        Context(root).open(name)


def test_a_command_must_be_permitted() -> None:
    context = Context(commands=["git"])
    context.check_command("git")
    with pytest.raises(ForbiddenCommand, match="'rm' is not permitted"):
        context.check_command("rm")


def test_dependencies_are_found_by_type_and_a_missing_one_is_named() -> None:
    context = Context(dependencies=["text", 3])
    assert context.require(int) == 3
    with pytest.raises(Missing, match="no dependency of type bytes is provided"):
        context.require(bytes)


def test_errors_of_tools_have_codes() -> None:
    assert UnknownTool.code is Code.TOOL_NOT_FOUND
    assert {Io.code, PathEscape.code, Missing.code} == {Code.TOOL_EXECUTION_FAILED}
