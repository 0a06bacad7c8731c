"""JSON Schemas in the part of the language that Anthropic's decoder enforces.

It knows types, members, items, alternatives, enumerations and references, and every object must be closed. Other
keywords are added to the description for the model to read, and the answer is validated afterwards. Closing an object
narrows the possible answers and never makes one wrong. A schema that cannot be expressed is left as it is, and the API
refuses it: an object without named members, whose closing would leave `{}` as the only answer, and circular references.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import orjson

VERBATIM: Final = frozenset({"type", "title", "required"})
NESTED_SCHEMAS: Final = frozenset({"items", "additionalProperties"})
SCHEMAS_BY_NAME: Final = frozenset({"properties", "$defs", "definitions"})
SCHEMA_LISTS: Final[Mapping[str, str]] = MappingProxyType({"anyOf": "anyOf", "oneOf": "anyOf", "allOf": "allOf"})
"""Lists of schemas and their names there. Validation finds an answer that fits two of `oneOf`."""
OMITTED: Final = frozenset({"$schema", "$id", "$anchor", "$comment"})
FORMATS: Final = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
)


def decoder_schema(schema: Any) -> Any:
    """Return the schema as it is sent. A value that is not an object of keywords, as `true`, stays as it is."""
    if not isinstance(schema, Mapping):
        return schema
    if "$ref" in schema:
        return {"$ref": schema["$ref"]} | _definitions(schema)
    enforced: dict[str, Any] = {}
    described: dict[str, Any] = {}
    for keyword, value in schema.items():
        _sort(keyword, value, enforced, described)
    if "properties" in enforced and schema.get("additionalProperties", True) is True:
        enforced["additionalProperties"] = False
    description = _description(schema.get("description"), described)
    return enforced | {"description": description} if description else enforced


def _sort(keyword: str, value: Any, enforced: dict[str, Any], described: dict[str, Any]) -> None:
    """Add a keyword to those that are enforced or to those that are described."""
    if keyword in SCHEMAS_BY_NAME and isinstance(value, Mapping):
        enforced[keyword] = {name: decoder_schema(member) for name, member in value.items()}
    elif keyword in SCHEMA_LISTS and isinstance(value, list) and SCHEMA_LISTS[keyword] not in enforced:
        enforced[SCHEMA_LISTS[keyword]] = [decoder_schema(member) for member in value]
    elif keyword in NESTED_SCHEMAS:
        enforced[keyword] = decoder_schema(value)
    elif keyword in VERBATIM or _is_enforced(keyword, value):
        enforced[keyword] = value
    elif keyword not in OMITTED | {"description"}:
        described[keyword] = value


def _is_enforced(keyword: str, value: Any) -> bool:
    """Tell whether the decoder enforces a keyword with that value."""
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
    enforced: dict[str, Any] = {}
    for keyword in ("$defs", "definitions"):
        if keyword in schema:
            _sort(keyword, schema[keyword], enforced, {})
    return enforced


def _description(given: Any, described: Mapping[str, Any]) -> str:
    paragraphs = [given] if isinstance(given, str) and given else []
    return "\n\n".join([*paragraphs, orjson.dumps(described).decode()] if described else paragraphs)
