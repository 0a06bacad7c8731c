"""JSON in one form only, so that values can be told apart by their text."""

import orjson
from pydantic import JsonValue


def canonical_json(value: JsonValue) -> bytes:
    """JSON text that two values share exactly when JSON Schema calls them equal.

    Keys are sorted. 1 and 1.0 are one number, 0 and -0.0 too; true is not 1. Text counts as it is: letters that only
    look alike in two normal forms of Unicode are two.
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
