"""Compiled JSON Schemas 2020-12: limited before they are compiled, compiled once, never fetching anything.

jsonschema-rs holds the interpreter's lock while it works and cannot be stopped, so the cost of a schema is limited
beforehand: its bytes, nodes and levels; how often it is evaluated at one place of an answer (`outline`); the number of
its patterns and their size; and once there is an answer, the product of these with the answer's size. jsonschema-rs
only decides if an answer fits. The reasons why one does not fit are found by `violations`: its own list of all errors
can take minutes and gigabytes if alternatives refer back to themselves.

Refused: other dialects than 2020-12, which give shared keywords other meanings; `$id` within a schema and references
out of it, which only retrieval could need. Compiled schemas are cached by their text, fewer of the large ones: one can
take 20 MB.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

import jsonschema_rs
import orjson

from app.capabilities.output.schema.finite_instances import endless_subschema
from app.capabilities.output.schema.metered_keywords import CheckBudget, metered_validators, rename_metered_keywords
from app.capabilities.output.schema.outline import SchemaOutline, SchemaOutlineError, outline_schema
from app.capabilities.output.schema.validators import compile_validator, pattern_bytes
from app.capabilities.output.schema.violations import SchemaViolation, ViolationFinder
from app.domain.failures import Code, ConfigurationFailure, ConstraintFailure
from app.domain.json_path import format_path

MAX_BYTES: Final = 262_144
MAX_NODES: Final = 2_000
"""Objects and lists in a schema, including itself."""
MAX_LEVELS: Final = 64
MAX_EVALUATIONS: Final = 20_000
"""Evaluations of subschemas at one place of an answer."""
MAX_PATTERNS: Final = 100
MAX_PATTERNS_BYTES: Final = 2_097_152
"""Memory of all compiled patterns together."""
MAX_PATTERN_CHARACTERS: Final = 4_096
MAX_CHECK_COST: Final = 1_500_000
"""Evaluations of one check, of about 10 ns each."""
_CONVERSION: Final = 4
"""The least evaluations for a place of an answer."""
_NUMBER = re.compile(rb"\d[\d.]*")
_LARGE = re.compile(rb"\de[-+]?\d\d")
_LARGE_NUMBER: Final = 8
"""Factor for numbers far from 1."""
_DIALECTS: Final = ("https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2020-12/schema#")
_SMALL_BYTES: Final = 16_384


@dataclass(frozen=True, slots=True)
class _Loads:
    """The most evaluations for one place, one character and one number of an answer."""

    of_a_place: int
    of_a_character: int
    of_a_number: int

    def cost(self, value: Any) -> int:
        """Return the most evaluations that checking this value can take."""
        data = orjson.dumps(value)
        places = 1 + data.count(b",") + data.count(b"[") + data.count(b"{")
        cost = (self.of_a_place + _CONVERSION) * places + self.of_a_character * len(data)
        if self.of_a_number:
            cost += self.of_a_number * (len(_NUMBER.findall(data)) + _LARGE_NUMBER * len(_LARGE.findall(data)))
        return cost


class CompiledSchema:
    """A JSON Schema that is compiled once and checks any number of answers, in any number of threads."""

    def __init__(self, document: Mapping[str, Any], parts: SchemaOutline) -> None:
        """Take over `document`, which is changed. Raises: ConfigurationFailure (CONFIG_SCHEMA_INVALID)."""
        evaluations = parts.evaluations()
        self._loads = _Loads(evaluations, parts.character_matches(), parts.number_comparisons())
        if evaluations > MAX_EVALUATIONS:
            raise _invalid("$", f"one place of an answer would take more than {MAX_EVALUATIONS:,} evaluations")
        rename_metered_keywords(parts.subschemas)
        self.outline = parts
        self._document = {name: inner for name, inner in document.items() if name not in {"$id", "$schema"}}
        self._budget = CheckBudget()
        self._validator = _compiled(self._document, metered_validators(self._budget))

    def max_cost(self, characters: int) -> int:
        """Return the most evaluations, of about 10 ns each, that checking an answer of that length takes."""
        loads = self._loads
        places = characters // 2 + 1
        return (
            (loads.of_a_place + _CONVERSION) * places + loads.of_a_character * characters + loads.of_a_number * places
        )

    def fits(self, value: Any) -> bool:
        """Return True if the value fits the schema.

        Raises: ConstraintFailure (CONSTRAINT_SCHEMA_INVALID) for a value that is too large to be checked.
        """
        self._budget.remaining = MAX_CHECK_COST - self._loads.cost(value)
        fits = self._budget.remaining >= 0 and self._validator.is_valid(value)
        if self._budget.remaining < 0:
            message = "the answer is too large to be checked against its schema"
            details = {"violations": [SchemaViolation("$", message).as_dict()]}
            raise ConstraintFailure(Code.CONSTRAINT_SCHEMA_INVALID, message, details)
        return fits

    def violations(self, value: Any) -> tuple[SchemaViolation, ...]:
        """Return the reasons why the value does not fit; empty if it fits. Raises: as `fits`."""
        return () if self.fits(value) else self.explain(value)

    def explain(self, value: Any) -> tuple[SchemaViolation, ...]:
        """Return the reasons why a value does not fit that is known not to fit."""
        return self._finder.find(value)

    @cached_property
    def _finder(self) -> ViolationFinder:
        return ViolationFinder(self._document, self.outline, self._loads.cost, self._budget)


def compile_schema(document: Mapping[str, Any]) -> CompiledSchema:
    """Return the compiled schema, from the cache if it was compiled before.

    Raises: ConfigurationFailure (CONFIG_SCHEMA_INVALID), with the place in the schema as `details.path`.
    """
    try:
        data = orjson.dumps(dict(document), option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        raise _invalid("$", "it is nested too deeply, or holds what JSON does not") from None
    if len(data) > MAX_BYTES:
        raise _invalid("$", f"it is longer than {MAX_BYTES} bytes")
    return _small(data) if len(data) <= _SMALL_BYTES else _large(data)


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
        raise _invalid("$['$schema']", "only JSON Schema 2020-12 is understood")
    try:
        parts = outline_schema(document)
    except SchemaOutlineError as error:
        raise _invalid(error.path, str(error)) from None
    _refuse_patterns(parts)
    compiled = CompiledSchema(document, parts)
    endless = endless_subschema(parts)
    if endless is not None:
        raise _invalid(format_path(endless), "it requires itself without end, so no finite answer fits it")
    return compiled


def _refuse_size(document: Any) -> None:
    level, levels, nodes = [document], 0, 0
    while level:
        levels, nodes = levels + 1, nodes + len(level)
        if levels > MAX_LEVELS:
            raise _invalid("$", f"it is nested deeper than {MAX_LEVELS}")
        if nodes > MAX_NODES:
            raise _invalid("$", f"it has more than {MAX_NODES:,} nodes")
        inner = (child for node in level for child in (node.values() if isinstance(node, dict) else node))
        level = [child for child in inner if isinstance(child, dict | list)]


def _refuse_patterns(parts: SchemaOutline) -> None:
    total, known = 0, set[str]()
    for pointer, pattern in parts.patterns():
        if pattern in known:
            continue
        known.add(pattern)
        size = pattern_bytes(pattern) if len(pattern) <= MAX_PATTERN_CHARACTERS else None
        if size is None:
            raise _invalid(
                format_path(pointer), "it is no pattern that can be searched for in linear time, or too large"
            )
        total += size
        if len(known) > MAX_PATTERNS or total > MAX_PATTERNS_BYTES:
            raise _invalid(
                format_path(pointer), f"it has more than {MAX_PATTERNS} patterns, or too large ones together"
            )


def _compiled(document: Mapping[str, Any], keywords: Mapping[str, Any]) -> jsonschema_rs.Draft202012Validator:
    try:
        return compile_validator(document, keywords=keywords)
    except jsonschema_rs.ValidationError as error:
        raise _invalid(format_path(error.instance_path), error.message) from None
    except ValueError as error:
        raise _invalid("$", str(error).partition("\n")[0]) from None


def _invalid(path: str, message: str) -> ConfigurationFailure:
    message = message[:240]
    details = {"field": "output.schema", "path": path, "message": message}
    return ConfigurationFailure(Code.CONFIG_SCHEMA_INVALID, f"the schema cannot be used, at {path}: {message}", details)
