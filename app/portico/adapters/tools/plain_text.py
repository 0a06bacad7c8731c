"""Output of programs and services as plain text."""

import re
from typing import Final

_CONTROL_SEQUENCE: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|\Z)|[ -/]*[0-~])|\x9b[0-?]*[ -/]*[@-~]"
)
"""Sequences that control a terminal: CSI, OSC and other strings, and the short ones [ECMA-48]."""
_OTHER_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain_text(data: bytes) -> str:
    """Return UTF-8 bytes as text: newlines as line ends, without control characters and terminal sequences."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    return _OTHER_CONTROLS.sub("", _CONTROL_SEQUENCE.sub("", text))
