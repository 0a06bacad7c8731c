"""A JSON Schema in the part of the language that Anthropic's decoder keeps to.

It knows types, members, items, alternatives, enumerations and references; every object must be closed. What else a
schema says the model is told in words, in the description, and whether it held is seen when the answer is validated.
Closing an object narrows what may be answered and never makes an answer wrong. What cannot be said at all is left as
it is, and the API refuses it: an object without named members, whose closing would leave `{}` as the only answer, and
references in a circle.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import orjson

VERBATIM: Final = frozenset({"type", "title", "required"})
NESTED: Final = frozenset({"items", "additionalProperties"})
NAMED: Final = frozenset({"properties", "$defs", "definitions"})
LISTED: Final[Mapping[str, str]] = MappingProxyType({"anyOf": "anyOf", "oneOf": "anyOf", "allOf": "allOf"})
"""Lists of schemas and what they become. An answer that fits two of `oneOf` is found out by validation."""
UNSAID: Final = frozenset({"$schema", "$id", "$anchor", "$comment"})
FORMATS: Final = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
)


def decoder_schema(schema: Any) -> Any:
    """The schema as it is sent. What is no object of keywords, as `true` is, stays as it is."""
    if not isinstance(schema, Mapping):
        return schema
    if "$ref" in schema:
        return {"$ref": schema["$ref"]} | _definitions(schema)
    sent: dict[str, Any] = {}
    told: dict[str, Any] = {}
    for keyword, value in schema.items():
        _sort(keyword, value, sent, told)
    if "properties" in sent and schema.get("additionalProperties", True) is True:
        sent["additionalProperties"] = False
    description = _description(schema.get("description"), told)
    return sent | {"description": description} if description else sent


def _sort(keyword: str, value: Any, sent: dict[str, Any], told: dict[str, Any]) -> None:
    """Puts a keyword among those that are sent or those that are told in words."""
    if keyword in NAMED and isinstance(value, Mapping):
        sent[keyword] = {name: decoder_schema(member) for name, member in value.items()}
    elif keyword in LISTED and isinstance(value, list) and LISTED[keyword] not in sent:
        sent[LISTED[keyword]] = [decoder_schema(member) for member in value]
    elif keyword in NESTED:
        sent[keyword] = decoder_schema(value)
    elif keyword in VERBATIM or _is_kept(keyword, value):
        sent[keyword] = value
    elif keyword not in UNSAID | {"description"}:
        told[keyword] = value


def _is_kept(keyword: str, value: Any) -> bool:
    """Whether the decoder keeps that keyword with that value."""
    match keyword:
        case "enum":
            return isinstance(value, list) and all(_is_scalar(member) for member in value)
        case "const":
            return _is_scalar(value)
        case "format":
            return isinstance(value, str) and value in FORMATS
        case "minItems":
            return value in (0, 1)
        case _:
            return False


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _definitions(schema: Mapping[str, Any]) -> dict[str, Any]:
    sent: dict[str, Any] = {}
    for keyword in ("$defs", "definitions"):
        if keyword in schema:
            _sort(keyword, schema[keyword], sent, {})
    return sent


def _description(given: Any, told: Mapping[str, Any]) -> str:
    said = [given] if isinstance(given, str) and given else []
    return "\n\n".join([*said, orjson.dumps(told).decode()] if told else said)
