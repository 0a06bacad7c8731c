"""Values that go in and out of code that calls tools: its text, the results of its calls, and its end."""

import json
from typing import Final

from pydantic import JsonValue

from portico.capabilities.tools.executor import cut_text
from portico.ports.code import CodeEnd

MAX_CODE_BYTES: Final = 64 * 1024
_OUTPUT_SHARE: Final = 4
"""The printed text takes at most one part of so many of the bytes that a result may have."""


def text_of_end(end: CodeEnd, calls: int, max_bytes: int) -> tuple[str, bool]:
    """Return the end of code as the text of its call, in at most so many bytes, and True if that is an error.

    `calls` is how many calls of tools it has made.
    """
    output, error = cut_text(end.output, max_bytes // _OUTPUT_SHARE), end.error
    if error is None:
        text = json.dumps({"result": end.result, "output": output, "calls": calls}, ensure_ascii=False)
        if len(text.encode("utf-8", "replace")) <= max_bytes:
            return text, False
        error = f"The result has more than {max_bytes} bytes; let the code return less."
    made = f"It had made {calls} call{'' if calls == 1 else 's'} of tools."
    said = [error, made, *([f"Its output:\n{output}"] if output else [])]
    return cut_text("\n".join(said), max_bytes), True


def value_of_text(text: str) -> JsonValue:
    """Return the result of a tool as code gets it: an object or an array as such, anything else as its text."""
    if text[:1] in {"{", "["}:
        try:
            value: JsonValue = json.loads(text)
        except (ValueError, RecursionError):
            return text
        return value
    return text


def code_violation(code: str) -> str | None:
    """Return why code cannot be run; None if it can."""
    try:
        size = len(code.encode())
    except UnicodeEncodeError:
        return "must be valid Unicode"
    return f"must have at most {MAX_CODE_BYTES} bytes" if size > MAX_CODE_BYTES else None
