"""Canonical JSON, so that values can be compared by their text."""

import orjson
from pydantic import JsonValue


def canonical_json(value: JsonValue) -> bytes:
    """Return JSON text that two values share exactly if JSON Schema calls them equal.

    Keys are sorted. 1 and 1.0 are one number, 0 and -0.0 too; true is not 1. Text is compared as it is: letters that
    look alike but have different normal forms of Unicode differ.
    """
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    may_hold_whole_floats = b".0" in text or b"e+" in text
    return orjson.dumps(_whole(value), option=orjson.OPT_SORT_KEYS) if may_hold_whole_floats else text


def _whole(value: JsonValue) -> JsonValue:
    match value:
        case float() if value.is_integer() and -(2**63) <= value < 2**64:
            return int(value)
        case dict():
            return {key: _whole(member) for key, member in value.items()}
        case list():
            return [_whole(element) for element in value]
        case _:
            return value
