"""Directory of named grammars, one file `NAME.gbnf` for each."""

import re
from collections.abc import Mapping
from pathlib import Path

from portico.capabilities.output.grammar import MAX_GRAMMAR_BYTES, GrammarError, cached_grammar
from portico.domain.failures import Code, ConfigurationFailure

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SUFFIX = ".gbnf"


def read_grammars(directory: Path) -> Mapping[str, str]:
    """Return the text of every grammar by name. Raises: ConfigurationFailure (CONFIG_INVALID) with the file's name."""
    try:
        files = sorted(each for each in directory.iterdir() if each.suffix == _SUFFIX)
    except OSError as fault:
        raise _unusable(f"{directory} cannot be read: {fault.strerror}") from fault
    return {file.stem: _read(file) for file in files}


def _read(file: Path) -> str:
    if not _NAME.fullmatch(file.stem):
        raise _unusable(f"{file.name!a}: a name has 1 to 64 letters, digits, dots, dashes and underscores")
    try:
        with file.open("rb") as opened:
            text = opened.read(MAX_GRAMMAR_BYTES + 1).decode()
        cached_grammar(text)
    except OSError as fault:
        raise _unusable(f"{file.name}: cannot be read") from fault
    except UnicodeDecodeError as fault:
        raise _unusable(f"{file.name}: is not UTF-8") from fault
    except GrammarError as fault:
        raise _unusable(f"{file.name}: {fault.message}") from fault
    return text


def _unusable(reason: str) -> ConfigurationFailure:
    return ConfigurationFailure(Code.CONFIG_INVALID, f"grammars.directory: {reason}")
