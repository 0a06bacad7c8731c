"""Command templates: places, options, and values that programs must not take for options."""

from typing import Any

import pytest

from portico.adapters.tools.programs.command_template import CommandTemplate
from portico.capabilities.tools.definition import ToolArgumentError

PARAMETERS = {
    "type": "object",
    "properties": {
        "pattern": {"type": "string"},
        "count": {"type": "integer"},
        "deep": {"type": "boolean"},
        "files": {"type": "array", "items": {"type": "string"}},
        "filter": {"type": "object"},
    },
}


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        (["grep", "-r", "--regexp={pattern}", "--", "."], {"pattern": "a b"}, ["-r", "--regexp=a b", "--", "."]),
        (["grep", "--regexp={pattern}"], {"pattern": "-rf"}, ["--regexp=-rf"]),
        (["head", "--lines={count}", "x"], {"count": 3}, ["--lines=3", "x"]),
        (["head", "--lines={count}", "x"], {}, ["x"]),
        (["find", "{deep}"], {"deep": True}, ["true"]),
        (["ls", "--", "{files}"], {"files": ["-l", "; rm", "$(id)"]}, ["--", "-l", "; rm", "$(id)"]),
        (["ls", "{files}"], {"files": []}, []),
        (["ls", "--", "{pattern}"], {"pattern": ""}, ["--", ""]),
        (["awk", "{print $1}", "{pattern}"], {"pattern": "f"}, ["{print $1}", "f"]),
        (["jq", "{{pattern}}"], {"pattern": "f"}, ["{pattern}"]),
        (["echo", "{pattern}{count}"], {"pattern": "{count}", "count": 1}, ["{count}1"]),
    ],
)
def test_a_value_is_part_of_one_word(command: list[str], arguments: dict[str, Any], words: list[str]) -> None:
    assert CommandTemplate(command, PARAMETERS).fill(arguments) == words


@pytest.mark.parametrize(
    ("command", "arguments", "violation"),
    [
        (["grep", "{pattern}"], {"pattern": "-f/etc/passwd"}, ("arguments.pattern", "must not begin with -")),
        (["ls", "{files}"], {"files": ["a", "--all"]}, ("arguments.files", "must not begin with -")),
        (["grep", "--", "{pattern}"], {"pattern": "a\0b"}, ("arguments.pattern", "must not contain NUL")),
        (["ls", "--", "{files}"], {"files": [["a"]]}, ("arguments.files", "must be a text, a number or a truth value")),
    ],
)
def test_a_value_that_would_be_an_option_or_no_word_is_refused(
    command: list[str], arguments: dict[str, Any], violation: tuple[str, str]
) -> None:
    with pytest.raises(ToolArgumentError) as refused:
        CommandTemplate(command, PARAMETERS).fill(arguments)
    assert refused.value.violations == (violation,)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["{pattern}"], "the program itself must not be a place for an argument"),
        (["grep", "{patern}"], r"\{patern\} is no property of the parameters"),
        (["grep", "{filter}"], r"\{filter\} is an object, which cannot be an argument"),
        (["grep", "--in={files}"], r"\{files\} is an array, which must be a word of its own"),
    ],
)
def test_a_command_that_no_call_could_fill_is_refused(command: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        CommandTemplate(command, PARAMETERS)
