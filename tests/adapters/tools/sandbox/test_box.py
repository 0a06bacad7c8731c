"""Programs as they are found: never over what is relative to the place where the service was started."""

from pathlib import Path

import pytest

from portico.adapters.tools.sandbox.box import find_program


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, which has a program `bin/tool`."""
    program = tmp_path / "bin" / "tool"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / "bin" / "text").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_name_is_found_by_the_absolute_entries_of_a_search_path_only(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place / "bin")
    for relative in ("", ".", "../bin", ":", "bin:.."):
        assert find_program("tool", relative) is None, relative
        monkeypatch.setenv("PATH", relative)
        assert find_program("tool") is None, relative
    assert find_program("tool", f".:{place}/bin") == f"{place}/bin/tool"
    monkeypatch.setenv("PATH", f":{place}/bin")
    assert find_program("tool") == f"{place}/bin/tool"
    assert find_program("text", f"{place}/bin") is None


def test_a_relative_path_begins_at_its_base_only(place: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert find_program("bin/tool", base=place) == f"{place}/bin/tool"
    assert find_program("bin/tool", base=tmp_path_factory.mktemp("other")) is None
    assert find_program("bin/tool") is None
    assert find_program(f"{place}/bin/tool", base=Path("/")) == f"{place}/bin/tool"
