"""Directory of prompt texts, one file `PROMPT_ID.txt` for each prompt whose text is not the shipped one."""

from pathlib import Path
from typing import Final

from portico.capabilities.prompting.definition import PromptId
from portico.capabilities.prompting.registry import PromptRegistry, default_registry
from portico.domain.failures import Code, ConfigurationFailure

MAX_PROMPT_BYTES: Final = 65_536
_SUFFIX: Final = ".txt"


def read_prompts(directory: Path) -> PromptRegistry:
    """Return the shipped prompts with the texts of the directory; names that begin with a dot are ignored.

    Raises: ConfigurationFailure (CONFIG_INVALID) with the name of the file that is no prompt or cannot be used.
    """
    try:
        files = sorted(each for each in directory.iterdir() if not each.name.startswith("."))
    except OSError as fault:
        raise _unusable(f"{directory} cannot be read: {fault.strerror}") from fault
    prompts = default_registry()
    for file in files:
        if file.suffix != _SUFFIX or file.stem not in PromptId.__members__:
            raise _unusable(f"{file.name!a} is not PROMPT_ID.txt of a prompt; GET /v1/prompts lists their ids")
        try:
            prompts = prompts.with_texts({PromptId(file.stem): _read(file)})
        except ValueError as fault:
            raise _unusable(f"{file.name}: {fault}") from fault
    return prompts


def _read(file: Path) -> str:
    """Return the text without blanks around it. Raises: ConfigurationFailure; ValueError if it is too long or empty."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_PROMPT_BYTES + 1)
    except OSError as fault:
        raise _unusable(f"{file.name}: cannot be read") from fault
    if len(content) > MAX_PROMPT_BYTES:
        raise ValueError(f"is larger than {MAX_PROMPT_BYTES} bytes")
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n").strip()
    except UnicodeDecodeError as fault:
        raise ValueError("is not UTF-8") from fault
    if not text:
        raise ValueError("is empty")
    return text


def _unusable(reason: str) -> ConfigurationFailure:
    return ConfigurationFailure(Code.CONFIG_INVALID, f"prompts.directory: {reason}")
