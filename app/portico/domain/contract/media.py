"""Images, documents and audio that a message has: their types, how their bytes begin, and where they are fetched."""

import base64
import binascii
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

MAX_URL_CHARACTERS: Final = 8_192
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


_IMAGES: Final[Mapping[str, Callable[[bytes], bool]]] = MappingProxyType(
    {
        "image/png": lambda data: data.startswith(b"\x89PNG\r\n\x1a\n"),
        "image/jpeg": lambda data: data.startswith(b"\xff\xd8\xff"),
        "image/gif": lambda data: data[:6] in {b"GIF87a", b"GIF89a"},
        "image/webp": lambda data: data[:4] == b"RIFF" and data[8:12] == b"WEBP",
    }
)
SIGNATURES: Final[Mapping[str, Callable[[bytes], bool]]] = MappingProxyType(
    {
        **_IMAGES,
        PDF: lambda data: b"%PDF-" in data[:_PDF_HEAD],
        "text/plain": _is_text,
        "text/markdown": _is_text,
        "audio/wav": _is_wav,
        "audio/mpeg": _is_mpeg,
    }
)
"""Whether bytes are of a media type."""


def checked_data(data: str, media_type: str) -> str:
    """Return the base64 text if its bytes are of that media type; those of images are not looked at.

    Raises: ValueError.
    """
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("must be base64") from None
    if media_type not in SIGNATURES or media_type in _IMAGES:
        return data
    if not SIGNATURES[media_type](content):
        raise ValueError(f"must be of the type {media_type}")
    return data


def fetched_type(content: bytes, wanted: str, said: str | None) -> str:
    """Return the media type of bytes that were fetched: the one that is `wanted`, or that of an image without one.

    `said` is what the server said of them. Raises: ValueError if the bytes are of another type than either.
    """
    if not content:
        raise ValueError("has no content")
    found = wanted or next((name for name, matches in _IMAGES.items() if matches(content)), "")
    if not found:
        raise ValueError("must be an image: PNG, JPEG, GIF or WebP")
    if not SIGNATURES[found](content):
        raise ValueError(f"must be of the type {found}")
    if said is not None and said in SIGNATURES and not SIGNATURES[said](content):
        raise ValueError(f"must be of the type {said}, as its server says")
    return found
