"""Typed reading of the values of a body, with errors that name the field as it was sent. Null is as good as absent."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, Final

from portico.domain.failures import RequestFailure, invalid_request
from portico.entrypoints.http.client_apis.conversation import WirePath

_DATA_URL = re.compile(r"data:(image/[a-z0-9.+-]{1,40})(?:;[a-z0-9=_-]+)*;base64,", re.IGNORECASE)
_DOCUMENT_URL = re.compile(r"data:(application/pdf|text/plain|text/markdown)(?:;[a-z0-9=_-]+)*;base64,", re.IGNORECASE)
_DOCUMENT_ONLY: Final = "must be a data: URL of application/pdf, text/plain or text/markdown"
_WEB: Final = ("https://", "http://")
_DOCUMENT_TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {".txt": "text/plain", ".md": "text/markdown", ".markdown": "text/markdown"}
)
_PDF: Final = "application/pdf"
_AUDIO_TYPES: Final[Mapping[str, str]] = MappingProxyType({"wav": "audio/wav", "mp3": "audio/mpeg"})
_IMAGE_ONLY: Final = "must be an https URL, or a data: URL with base64"


def invalid(path: WirePath, message: str) -> RequestFailure:
    """Return the refusal of the field of that path."""
    return invalid_request((".".join(path), message))


def as_object(found: object, path: WirePath) -> Mapping[str, Any]:
    """Return the value if it is an object. Raises: RequestFailure."""
    if not isinstance(found, dict):
        raise invalid(path, "must be an object")
    return found


def as_list(found: object, path: WirePath) -> Sequence[Any]:
    """Return the value if it is a list. Raises: RequestFailure."""
    if not isinstance(found, list):
        raise invalid(path, "must be a list")
    return found


def as_text(found: object, path: WirePath) -> str:
    """Return the value if it is a string. Raises: RequestFailure."""
    if not isinstance(found, str):
        raise invalid(path, "must be a string" if found is not None else "is required")
    return found


def as_flag(found: object, path: WirePath) -> bool:
    """Return the value if it is a boolean, False for null. Raises: RequestFailure."""
    if found is not None and not isinstance(found, bool):
        raise invalid(path, "must be true or false")
    return found is True


def as_choice(found: object, path: WirePath, choices: Sequence[str]) -> str:
    """Return the value if it is one of these. Raises: RequestFailure."""
    if not isinstance(found, str) or found not in choices:
        raise invalid(
            path, f"must be {', '.join(choices[:-1])} or {choices[-1]}" if choices[1:] else f"must be {choices[0]}"
        )
    return found


def text_at(parent: Mapping[str, Any], name: str, path: WirePath) -> str:
    """Return this member of the object at the path as `as_text` does. A path is made for an error only."""
    found = parent.get(name)
    return found if isinstance(found, str) else as_text(found, (*path, name))


def object_at(parent: Mapping[str, Any], name: str, path: WirePath) -> Mapping[str, Any]:
    """Return this member of the object at the path as `as_object` does."""
    found = parent.get(name)
    return found if isinstance(found, dict) else as_object(found, (*path, name))


def list_at(parent: Mapping[str, Any], name: str, path: WirePath) -> Sequence[Any]:
    """Return this member of the object at the path if it is a list, an empty one for null. Raises: RequestFailure."""
    found = parent.get(name)
    return () if found is None else as_list(found, (*path, name))


def flag_at(parent: Mapping[str, Any], name: str, path: WirePath) -> bool:
    """Return this member of the object at the path as `as_flag` does."""
    return as_flag(parent.get(name), (*path, name))


def choice_at(parent: Mapping[str, Any], name: str, path: WirePath, choices: Sequence[str]) -> str:
    """Return this member of the object at the path as `as_choice` does."""
    found = parent.get(name)
    return found if isinstance(found, str) and found in choices else as_choice(found, (*path, name), choices)


def text_part(text: str) -> Mapping[str, Any]:
    """Return a text part of a message."""
    return {"type": "text", "text": text}


def image_part(url: object, path: WirePath) -> Mapping[str, Any]:
    """Return the image part of a URL, a `data:` URL or one to fetch from. Raises: RequestFailure for any other."""
    text = as_text(url, path)
    if text.lower().startswith(_WEB):
        return {"type": "image", "url": text}
    match = _DATA_URL.match(text)
    if match is None:
        raise invalid(path, _IMAGE_ONLY)
    return embedded_image(match[1].lower(), match.string[match.end() :])


def document_part(url: object, name: object, path: WirePath) -> Mapping[str, Any]:
    """Return the document part of a `data:` URL. Raises: RequestFailure for any other."""
    match = _DOCUMENT_URL.match(as_text(url, path))
    if match is None:
        raise invalid(path, _DOCUMENT_ONLY)
    return embedded_document(match[1].lower(), match.string[match.end() :], name)


def fetched_document(url: object, name: object, path: WirePath) -> Mapping[str, Any]:
    """Return the document part of a URL to fetch from. Raises: RequestFailure.

    It is a PDF file, unless its name, or else the end of the URL's path, is that of a text or of Markdown.
    """
    text = as_text(url, path)
    ending = PurePosixPath(name if isinstance(name, str) else text.partition("?")[0]).suffix.lower()
    part = {"type": "document", "media_type": _DOCUMENT_TYPES.get(ending, _PDF), "url": text}
    return part | ({} if name is None else {"name": name})


def embedded_document(media_type: str, data: str, name: object = None) -> Mapping[str, Any]:
    """Return the document part of these bytes in base64."""
    return {"type": "document", "media_type": media_type, "data": data} | ({} if name is None else {"name": name})


def audio_part(found: object, path: WirePath) -> Mapping[str, Any]:
    """Return the audio part of an `input_audio`. Raises: RequestFailure."""
    audio = as_object(found, path)
    kind = choice_at(audio, "format", path, tuple(_AUDIO_TYPES))
    return {"type": "audio", "media_type": _AUDIO_TYPES[kind], "data": text_at(audio, "data", path)}


def embedded_image(media_type: str, data: str) -> Mapping[str, Any]:
    """Return the image part of these bytes in base64."""
    return {"type": "image", "media_type": media_type, "data": data}
