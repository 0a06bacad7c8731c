"""Masking of the values of credentials in what tools return."""

import base64
import json
import re
import string
from collections.abc import Iterable, Iterator, Mapping

from pydantic import JsonValue

_BASE64_GROUP = 3
_SHOWN_PART = 2
"""Characters of a value that may stand beside a cut: fewer than tell anything."""
_UNRESERVED = string.ascii_letters + string.digits + "_.-~"
_SAFE = ("", "/", "-_.!~*'()")
"""Characters that encoders of URLs leave as they are: all of them, a path, and `encodeURIComponent`."""


def mask(text: str, values: Iterable[tuple[str, str]]) -> str:
    """Return the text with `[credential NAME]` in the place of each value, which are given with their names.

    A value is also found escaped as in JSON, percent-encoded, and in base64, alone or within a longer text.
    """
    for name, value in values:
        for form in sorted(set(_forms(value)), key=len, reverse=True):
            if form in text:
                text = text.replace(form, f"[credential {name}]")
    return text


def mask_json(value: JsonValue, values: Iterable[tuple[str, str]]) -> JsonValue:
    """Return the value with its texts masked, the keys of its objects included."""
    pairs = tuple(values)
    match value:
        case str():
            return mask(value, pairs)
        case list():
            return [mask_json(each, pairs) for each in value]
        case Mapping():
            return {mask(key, pairs): mask_json(each, pairs) for key, each in value.items()}
        case _:
            return value


def mask_ends(text: str, cut: re.Pattern[str], values: Iterable[tuple[str, str]]) -> str:
    """Return the masked text; where something was cut out of it, no beginning or end of a value stands beside that."""
    pairs = tuple(values)
    before, *after = cut.split(mask(text, pairs), maxsplit=1)
    if not after:
        return before
    mark = cut.search(text)
    for name, value in pairs:
        forms = set(_forms(value))
        before = _without_part(before, name, forms, at_end=True)
        after = [_without_part(after[0], name, forms, at_end=False)]
    return before + (mark.group() if mark else "") + after[0]


def _without_part(text: str, name: str, forms: Iterable[str], *, at_end: bool) -> str:
    """Return the text without the longest part of a form at its end, or at its beginning."""
    longest = 0
    for form in forms:
        for size in range(min(len(form), len(text)), max(longest, _SHOWN_PART), -1):
            if text.endswith(form[:size]) if at_end else text.startswith(form[-size:]):
                longest = size
                break
    if not longest:
        return text
    return f"{text[:-longest]}[credential {name}]" if at_end else f"[credential {name}]{text[longest:]}"


def _forms(value: str) -> Iterator[str]:
    plain = {value, value.strip()}
    for ascii_only in (True, False):
        escaped = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        plain |= {escaped, escaped.replace("/", "\\/"), json.dumps(escaped)[1:-1]}
    yield from plain
    for safe in _SAFE:
        for space in ("%20", "+"):
            encoded = _percent_encoded(value, safe, space)
            yield encoded
            yield _with_small_digits(encoded)
    yield from _base64_forms(value.encode())


def _percent_encoded(value: str, safe: str, space: str) -> str:
    """Return the value as a part of a URL [RFC 3986], in which the safe characters stand as they are."""
    kept = frozenset((_UNRESERVED + safe).encode())
    encoded = "".join(chr(byte) if byte in kept else f"%{byte:02X}" for byte in value.encode())
    return encoded.replace("%20", space)


def _with_small_digits(encoded: str) -> str:
    begin, *rest = encoded.split("%")
    return "%".join([begin, *(part[:2].lower() + part[2:] for part in rest)])


def _base64_forms(data: bytes) -> Iterator[str]:
    """Yield what the base64 of a text has in it that holds the data at each of the three positions of a group."""
    for before in range(_BASE64_GROUP):
        padded = bytes(before) + data
        whole = len(padded) // _BASE64_GROUP * 4
        begin = (0, 2, 3)[before]
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            encoded = encode(padded).decode()
            yield encoded[begin:whole]
            if before == 0:
                yield encoded
                yield encoded.rstrip("=")
