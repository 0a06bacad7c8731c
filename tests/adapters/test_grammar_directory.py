"""Directory of grammars: every error names its file."""

from pathlib import Path

import pytest

from portico.adapters.grammar_directory import read_grammars
from portico.capabilities.output.grammar import MAX_GRAMMAR_BYTES
from portico.domain.failures import Code, ConfigurationFailure


def test_every_gbnf_file_is_a_grammar_and_other_files_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "yes.no-1.gbnf").write_text('root ::= "yes" | "no"')
    (tmp_path / "notes.txt").write_text("no grammar")
    assert read_grammars(tmp_path) == {"yes.no-1": 'root ::= "yes" | "no"'}


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("bad.gbnf", b'root ::= "yes"\nrest ::= (', "bad.gbnf: line 2, column"),
        ("latin.gbnf", b'root ::= "\xe9"', "latin.gbnf: is not UTF-8"),
        ("no name.gbnf", b'root ::= "a"', "'no name.gbnf': a name has"),
        ("large.gbnf", b"#" * (MAX_GRAMMAR_BYTES + 1), "large.gbnf: line"),
        ("empty.gbnf", b"", "empty.gbnf: line"),
    ],
)
def test_an_invalid_grammar_file_is_refused_with_its_name(tmp_path: Path, name: str, content: bytes, what: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigurationFailure) as refused:
        read_grammars(tmp_path)
    assert refused.value.code is Code.CONFIG_INVALID
    assert refused.value.message.startswith(f"grammars.directory: {what}")


def test_a_missing_directory_is_refused_with_the_settings_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFailure, match=r"grammars\.directory: .* cannot be read: No such file"):
        read_grammars(tmp_path / "gone")


def test_a_directory_with_the_suffix_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sub.gbnf").mkdir()
    with pytest.raises(ConfigurationFailure, match="cannot be read"):
        read_grammars(tmp_path)
