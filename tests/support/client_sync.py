"""The blocking Python client, from the one for event loops: `python -m tests.support.client_sync` writes it.

Both are the same program; only what waits differs. So one is written by hand and the other follows from it, word by
word, as in httpcore.
"""

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parents[2] / "clients" / "python" / "portico_client"
SOURCE: Final = PACKAGE / "aio.py"
TARGET: Final = PACKAGE / "client.py"
_HEAD: Final = '"""The client of programs without an event loop, written from aio.py by `make clients-types`."""\n'
_PHRASES: Final[Mapping[str, str]] = {
    "an `async with` block": "a `with` block",
    "JsonValue | Awaitable[JsonValue]": "JsonValue",
    "Awaitable[T]": "T",
    "await settled(on_suspension(each))": "on_suspension(each)",
    "run_side_by_side": "run_in_turn",
    "anyio.get_cancelled_exc_class()": "KeyboardInterrupt",
    ", anyio.CancelScope(shield=True)": "",
    "AsyncGenerator[ExecutionEvent, None]": "core.Events",
    "anyio.sleep": "time.sleep",
}
_WORDS: Final[Sequence[tuple[str, str]]] = (
    (r"\bawait ", ""),
    (r"\basync ", ""),
    (r"\bAsync(\w+)", r"\1"),
    (r"\b__a(enter|exit|iter)__", r"__\1__"),
    (r"\ba(close|read|closing)\b", r"\1"),
)


def blocking_client(source: str) -> str:
    """Return the module of the blocking client, formatted."""
    text = _HEAD + source.partition("\n")[2]
    for phrase, replacement in _PHRASES.items():
        if phrase not in text:
            raise ValueError(f"aio.py does not say {phrase!r} any more")
        text = text.replace(phrase, replacement)
    for word, replacement in _WORDS:
        text = re.sub(word, replacement, text)
    checked = _ruff(text, "check", "--quiet", "--fix-only", "--unsafe-fixes", "--select", "F401,I,UP028")
    return _ruff(checked, "format", "--quiet")


def _ruff(text: str, *command: str) -> str:
    ruff = Path(sys.executable).with_name("ruff")
    ran = subprocess.run(
        [ruff, *command, "--stdin-filename", TARGET, "-"], input=text, capture_output=True, text=True, check=True
    )
    return ran.stdout


if __name__ == "__main__":
    TARGET.write_text(blocking_client(SOURCE.read_text(encoding="utf-8")), encoding="utf-8")
