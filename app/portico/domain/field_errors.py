"""Errors of validated fields in plain words: the field, the expectation, and the nearest known name.

pydantic's own sentences speak of Python, and of a union it reports every branch. Here one field has one error: an error
within one branch of a union replaces those of the branches that expect another type.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from pydantic_core import ErrorDetails

from portico.domain.value import value

FieldPath: TypeAlias = tuple[str, ...]
UNKNOWN_FIELD: Final = "extra_forbidden"
"""Kind of the error of a field that is not known."""
_NOT_EVALUATED: Final = "default_factory_not_called"
"""Kind of an error that only repeats the error of another field."""
_TYPES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("string_type", "string_unicode", "bytes_type"), "a string"),
        **dict.fromkeys(("int_type", "int_parsing", "int_parsing_size", "int_from_float"), "a whole number"),
        **dict.fromkeys(("float_type", "float_parsing"), "a number"),
        **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
        **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type"), "a list"),
        **dict.fromkeys(("dict_type", "mapping_type", "model_type", "model_attributes_type"), "an object"),
        **dict.fromkeys(("dataclass_type", "dataclass_exact_type"), "an object"),
        **dict.fromkeys(("datetime_type", "datetime_parsing", "datetime_from_date_parsing"), "a time as in RFC 3339"),
        **dict.fromkeys(("timezone_aware", "datetime_object_invalid"), "a time with its offset, as in RFC 3339"),
        "none_required": "null",
        "invalid-json-value": "a JSON value",
    }
)
_CHOICES: Mapping[str, str] = MappingProxyType(dict.fromkeys(("literal_error", "enum"), "{expected}"))
_PHRASES: Mapping[str, str] = MappingProxyType(
    {
        "missing": "is required",
        "finite_number": "must be a finite number",
        "greater_than": "must be more than {gt}",
        "greater_than_equal": "must be at least {ge}",
        "less_than": "must be less than {lt}",
        "less_than_equal": "must be at most {le}",
        "multiple_of": "must be a multiple of {multiple_of}",
        "string_too_short": "must have at least {min_length} characters",
        "string_too_long": "must have at most {max_length} characters",
        "string_pattern_mismatch": "must match the pattern {pattern}",
        "too_short": "must have at least {min_length} items",
        "too_long": "must have at most {max_length} items",
        "union_tag_invalid": "must have a {discriminator} of {expected_tags}",
        "union_tag_not_found": "must have the field {discriminator}",
        "value_error": "{error}",
        "assertion_error": "{error}",
    }
)


@value
class InvalidField:
    """A field that is not valid: its path and a message for people, which quotes no value."""

    path: FieldPath
    message: str

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}: {self.message}" if self.path else self.message


def invalid_fields(
    errors: Iterable[ErrorDetails],
    *,
    path_of: Callable[[ErrorDetails], FieldPath] = lambda error: tuple(map(str, error["loc"])),
    schema: Mapping[str, Any] | None = None,
) -> list[InvalidField]:
    """Return one error for each field, in order. `schema` is the JSON Schema that knows the names of the fields."""
    by_path: dict[FieldPath, list[ErrorDetails]] = {}
    for error in errors:
        if error["type"] != _NOT_EVALUATED:
            by_path.setdefault(path_of(error), []).append(error)
    parents = {path[:length] for path in by_path for length in range(len(path))}
    return [
        InvalidField(path, _message(path, found, schema))
        for path, found in by_path.items()
        if path not in parents or not all(map(_follows_from_parts, found))
    ]


def path_within(value: object) -> Callable[[ErrorDetails], FieldPath]:
    """Return a function that gives the path of an error as the value has it, and for a missing field also its name.

    The other parts of the location are pydantic's own names for the branches of a union.
    """

    def path_of(error: ErrorDetails) -> FieldPath:
        path: list[str] = []
        here: Any = value
        for part in error["loc"]:
            try:
                here = here[part]
            except (KeyError, IndexError, TypeError):
                continue
            path.append(str(part))
        return (*path, str(error["loc"][-1])) if error["type"] == "missing" else tuple(path)

    return path_of


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the most similar of the known names; None if all are too different."""
    return next(iter(get_close_matches(name, list(known), n=1, cutoff=0.5)), None)


def _is_branch(error: ErrorDetails) -> bool:
    """Return True for an error that another branch of a union may not have."""
    return error["type"] in _TYPES or error["type"] in _CHOICES


def _follows_from_parts(error: ErrorDetails) -> bool:
    """Return True for an error that is over once the errors of the value's parts are."""
    return _is_branch(error) or error["type"] == "too_short"


def _message(path: FieldPath, errors: Sequence[ErrorDetails], schema: Mapping[str, Any] | None) -> str:
    within = [error for error in errors if not _is_branch(error)] or errors
    if _is_branch(within[0]):
        expected = dict.fromkeys(_fill({**_TYPES, **_CHOICES}[error["type"]], error) for error in within)
        return f"must be {_alternatives(list(expected))}"
    if within[0]["type"] == UNKNOWN_FIELD:
        return _unknown(path, schema)
    return _fill(_PHRASES.get(within[0]["type"], "is not valid"), within[0])


def _alternatives(expected: Sequence[str]) -> str:
    *others, last = expected
    between = ", or " if any(" or " in each for each in others) else " or "
    return f"{', '.join(others)}{between}{last}" if others else last


def _unknown(path: FieldPath, schema: Mapping[str, Any] | None) -> str:
    nearest = None if schema is None else nearest_name(path[-1], _names(schema, path[:-1]))
    return "is not a known field" if nearest is None else f'is not a known field; did you mean "{nearest}"?'


def _fill(template: str, error: ErrorDetails) -> str:
    context: dict[str, Any] = error.get("ctx", {})
    if context.get("min_length") == 1 or context.get("max_length") == 1:
        template = template.removesuffix("s")
    return template.format(**{name: _plain(value) for name, value in context.items()})


def _plain(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _names(schema: Mapping[str, Any], path: FieldPath) -> list[str]:
    """Return the names of the fields that an object at that path may have."""
    nodes = list(_alternative_nodes(schema, schema))
    for part in path:
        below = [child for node in nodes for child in _children(node, part)]
        nodes = [node for child in below for node in _alternative_nodes(schema, child)]
    return [name for node in nodes for name in node.get("properties", {})]


def _children(node: Mapping[str, Any], part: str) -> Iterator[Mapping[str, Any]]:
    for child in (node.get("properties", {}).get(part), node.get("items"), node.get("additionalProperties")):
        if isinstance(child, dict):
            yield child


def _alternative_nodes(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the node and those that it refers to, as one of several or alone."""
    yield node
    inner = [*node.get("anyOf", ()), *node.get("oneOf", ()), *node.get("allOf", ())]
    if "$ref" in node:
        inner.append(schema["$defs"][node["$ref"].rpartition("/")[2]])
    for each in inner:
        yield from _alternative_nodes(schema, each)
