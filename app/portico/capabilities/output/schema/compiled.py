"""Compiled JSON Schemas 2020-12: limited in size before they are compiled, compiled once, never fetching anything.

jsonschema-rs holds the interpreter's lock while it works and cannot be stopped, so a schema that is not small and plain
(`plainness`) is compiled and used in a worker process, which has a hard limit of time and memory. jsonschema-rs only
decides if an answer fits. The reasons why one does not fit are found by `violations`: its own list of all errors can
take minutes and gigabytes if alternatives refer back to themselves.

Refused: other dialects than 2020-12, which give shared keywords other meanings; `$id` within a schema and references
out of it, which only retrieval could need; a model that predicts what a schema costs, which was never exact. Compiled
schemas are cached by their text, fewer of the large ones: one can take 20 MB.
"""

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

import orjson

from portico.capabilities.output.schema.finite_instances import endless_subschema
from portico.capabilities.output.schema.outline import SchemaOutline, SchemaOutlineError, outline_schema
from portico.capabilities.output.schema.validators import compile_validator, is_linear
from portico.capabilities.output.schema.violations import SchemaViolation, ViolationFinder
from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.json_path import format_path

if TYPE_CHECKING:
    import jsonschema_rs

MAX_BYTES: Final = 262_144
MAX_NODES: Final = 2_000
"""Objects and lists in a schema, including itself."""
MAX_LEVELS: Final = 64
MAX_PATTERNS: Final = 100
MAX_PATTERN_CHARACTERS: Final = 4_096
_DIALECTS: Final = ("https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2020-12/schema#")
_SMALL_BYTES: Final = 16_384
_PROBES: Final[tuple[Any, ...]] = (None, False, 0, "", [], {})
"""A value of each type."""


class CompiledSchema:
    """A JSON Schema that is compiled once and checks any number of answers, in any number of threads."""

    def __init__(self, document: Mapping[str, Any], parts: SchemaOutline) -> None:
        """Compile the schema. Raises: ConfigurationFailure (CONFIG_SCHEMA_INVALID)."""
        self.outline = parts
        self._document = {name: inner for name, inner in document.items() if name not in {"$id", "$schema"}}
        self._validator = _compiled(self._document)

    def fits(self, value: Any) -> bool:
        """Return True if the value fits the schema."""
        return self._validator.is_valid(value)

    def violations(self, value: Any) -> tuple[SchemaViolation, ...]:
        """Return the reasons why the value does not fit; empty if it fits."""
        return () if self.fits(value) else self.explain(value)

    def explain(self, value: Any) -> tuple[SchemaViolation, ...]:
        """Return the reasons why a value does not fit that is known not to fit."""
        return self._finder.find(value)

    def probe(self) -> None:
        """Check a trivial value of each type: a schema that takes very long for these can never be used."""
        for value in _PROBES:
            self.fits(value)

    @cached_property
    def _finder(self) -> ViolationFinder:
        return ViolationFinder(self._document, self.outline)


def compile_schema(document: Mapping[str, Any]) -> CompiledSchema:
    """Return the compiled schema, from the cache if it was compiled before.

    Raises: ConfigurationFailure (CONFIG_SCHEMA_INVALID), with the place in the schema as `details.path`.
    """
    try:
        data = orjson.dumps(dict(document), option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        raise invalid_schema("$", "it is nested too deeply, or holds what JSON does not") from None
    if len(data) > MAX_BYTES:
        raise invalid_schema("$", f"it is longer than {MAX_BYTES} bytes")
    return _small(data) if len(data) <= _SMALL_BYTES else _large(data)


def check_schema_size(document: Mapping[str, Any]) -> None:
    """Raise ConfigurationFailure (CONFIG_SCHEMA_INVALID) for a schema that is too large to be passed on."""
    _refuse_size(document)
    if len(orjson.dumps(document)) > MAX_BYTES:
        raise invalid_schema("$", f"it is longer than {MAX_BYTES} bytes")


@lru_cache(maxsize=128)
def _small(data: bytes) -> CompiledSchema:
    return _compile(data)


@lru_cache(maxsize=8)
def _large(data: bytes) -> CompiledSchema:
    return _compile(data)


def _compile(data: bytes) -> CompiledSchema:
    document = orjson.loads(data)
    _refuse_size(document)
    if document.get("$schema", _DIALECTS[0]) not in _DIALECTS:
        raise invalid_schema("$['$schema']", "only JSON Schema 2020-12 is understood")
    try:
        parts = outline_schema(document)
    except SchemaOutlineError as error:
        raise invalid_schema(error.path, str(error)) from None
    _refuse_patterns(parts)
    compiled = CompiledSchema(document, parts)
    endless = endless_subschema(parts)
    if endless is not None:
        raise invalid_schema(format_path(endless), "it requires itself without end, so no finite answer fits it")
    return compiled


def _refuse_size(document: Any) -> None:
    level, levels, nodes = [document], 0, 0
    while level:
        levels, nodes = levels + 1, nodes + len(level)
        if levels > MAX_LEVELS:
            raise invalid_schema("$", f"it is nested deeper than {MAX_LEVELS}")
        if nodes > MAX_NODES:
            raise invalid_schema("$", f"it has more than {MAX_NODES:,} nodes")
        inner = (child for node in level for child in (node.values() if isinstance(node, dict) else node))
        level = [child for child in inner if isinstance(child, dict | list)]


def _refuse_patterns(parts: SchemaOutline) -> None:
    known = set[str]()
    for pointer, pattern in parts.patterns():
        if pattern in known:
            continue
        known.add(pattern)
        if len(pattern) > MAX_PATTERN_CHARACTERS or not is_linear(pattern):
            raise invalid_schema(
                format_path(pointer), "it is no pattern that can be searched for in linear time, or too large"
            )
        if len(known) > MAX_PATTERNS:
            raise invalid_schema(format_path(pointer), f"it has more than {MAX_PATTERNS} patterns")


def _compiled(document: Mapping[str, Any]) -> "jsonschema_rs.Draft202012Validator":
    import jsonschema_rs  # noqa: PLC0415 - see `compile_validator`

    try:
        return compile_validator(document)
    except jsonschema_rs.ValidationError as error:
        raise invalid_schema(format_path(error.instance_path), error.message) from None
    except ValueError as error:
        raise invalid_schema("$", str(error).partition("\n")[0]) from None


def invalid_schema(path: str, message: str) -> ConfigurationFailure:
    """Return the failure of a schema that cannot be used, with the place in it."""
    message = message[:240]
    details = {"field": "output.schema", "path": path, "message": message}
    return ConfigurationFailure(Code.CONFIG_SCHEMA_INVALID, f"the schema cannot be used, at {path}: {message}", details)
