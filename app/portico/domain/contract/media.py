"""Documents and audio that a message has: their types, and how their bytes begin."""

import base64
import binascii
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

PDF: Final = "application/pdf"
_PDF_HEAD: Final = 1024
"""A PDF file may have that many bytes before its signature."""


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


def _is_wav(data: bytes) -> bool:
    return data[:4] in {b"RIFF", b"RF64"} and data[8:12] == b"WAVE"


def _is_mpeg(data: bytes) -> bool:
    return data[:3] == b"ID3" or (len(data) > 1 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0)


SIGNATURES: Final[Mapping[str, Callable[[bytes], bool]]] = MappingProxyType(
    {
        PDF: lambda data: b"%PDF-" in data[:_PDF_HEAD],
        "text/plain": _is_text,
        "text/markdown": _is_text,
        "audio/wav": _is_wav,
        "audio/mpeg": _is_mpeg,
    }
)
"""Whether bytes are of a media type."""


def checked_data(data: str, media_type: str) -> str:
    """Return the base64 text if its bytes are of that media type. Raises: ValueError."""
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("must be base64") from None
    if not SIGNATURES[media_type](content):
        raise ValueError(f"must be of the type {media_type}")
    return data
