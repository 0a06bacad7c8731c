"""JSON Schema 2020-12 as clients send it: bounded before it is compiled, compiled once, never fetching anything.

jsonschema-rs holds the interpreter's lock while it works and cannot be stopped, so what a schema can cost is bounded
beforehand: its bytes, nodes and levels; how often it looks at one place of an answer (`schema_outline`); how many
patterns it has and how large they become; and once an answer is there, the product of these with the answer's size.
Only whether an answer fits is asked of it. Why one does not is found by `violations`: a list of all errors can take
minutes and gigabytes where alternatives refer back to themselves.

Refused: other dialects than 2020-12, since what they share keywords for means something else; `$id` within a schema
and references out of it, which only retrieval could need. Compiled schemas are kept by digest, a few of them if they
are large: one can take 20 MB.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any, Final

import jsonschema_rs
import orjson

from app.capabilities.output.schema.metered_keywords import CheckBudget, metered_validators, rename_metered_keywords
from app.capabilities.output.schema.outline import SchemaOutline, SchemaOutlineError, outline_schema
from app.capabilities.output.schema.validators import compile_validator, pattern_bytes
from app.capabilities.output.schema.violations import EVALUATIONS_AT_ONCE, SchemaViolation, ViolationFinder
from app.domain.failures import Code, ConfigurationFailure, ConstraintFailure
from app.domain.json_path import format_path
from app.domain.pausing import Pausing, at_once

MAX_BYTES: Final = 262_144
MAX_NODES: Final = 2_000
"""Objects and lists in a schema, itself among them."""
MAX_LEVELS: Final = 64
MAX_EVALUATIONS: Final = 20_000
"""Evaluations of subschemas that one place of an answer may take."""
MAX_PATTERNS: Final = 100
MAX_PATTERNS_BYTES: Final = 2_097_152
"""Memory of all compiled patterns together."""
MAX_PATTERN_CHARACTERS: Final = 4_096
MAX_CHECK_COST: Final = 1_500_000
"""Evaluations that one check may come to, `EVALUATIONS_AT_ONCE` of them in about a microsecond."""
_SUBSCHEMA_TAKES: Final = 10
_PATTERN_TAKES: Final = 500
"""Microseconds that each step of making a schema takes for one of these."""
_READ_AT_ONCE: Final = 100
_PATTERN_READ_AT_ONCE: Final = 256
"""Bytes of a schema, and of a pattern's memory, that take about a microsecond."""
_CONVERSION: Final = 4
"""Evaluations that a place of an answer takes at least."""
_NUMBER = re.compile(rb"\d[\d.]*")
_LARGE = re.compile(rb"\de[-+]?\d\d")
_LARGE_NUMBER: Final = 8
"""How much longer numbers take that are far from 1, beside others."""
_DIALECTS: Final = ("https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2020-12/schema#")
_SMALL_BYTES: Final = 16_384


@dataclass(frozen=True, slots=True)
class _Loads:
    """Evaluations that one place, one character and one number of an answer can take."""

    of_a_place: int
    of_a_character: int
    of_a_number: int

    def cost(self, value: Any) -> int:
        """The most evaluations that checking this value can take."""
        data = orjson.dumps(value)
        places = 1 + data.count(b",") + data.count(b"[") + data.count(b"{")
        cost = (self.of_a_place + _CONVERSION) * places + self.of_a_character * len(data)
        if self.of_a_number:
            cost += self.of_a_number * (len(_NUMBER.findall(data)) + _LARGE_NUMBER * len(_LARGE.findall(data)))
        return cost


class CompiledSchema:
    """A schema that answers can be checked against, one after the other."""

    def __init__(self, document: Mapping[str, Any], parts: SchemaOutline, loads: _Loads) -> None:
        self.outline = parts
        self._document = {name: inner for name, inner in document.items() if name not in {"$id", "$schema"}}
        self._loads = loads
        self._effort = CheckBudget()
        self._validator = _compiled(self._document, metered_validators(self._effort))

    @classmethod
    def making(cls, document: Mapping[str, Any], parts: SchemaOutline) -> Pausing["CompiledSchema"]:
        """The schema of that document, which it keeps and changes."""
        took = len(parts.subschemas) * _SUBSCHEMA_TAKES
        evaluations = parts.evaluations()
        yield took
        loads = _Loads(evaluations, parts.character_matches(), parts.number_comparisons())
        yield took
        if evaluations > MAX_EVALUATIONS:
            raise _invalid("$", f"one place of an answer would take more than {MAX_EVALUATIONS:,} evaluations")
        rename_metered_keywords(parts.subschemas)
        schema = cls(document, parts, loads)
        yield took
        return schema

    def fits(self, value: Any) -> bool:
        """Whether the value fits. Raises: as `fitting`."""
        return at_once(self.fitting(value))

    def fitting(self, value: Any) -> Pausing[bool]:
        """Whether the value fits.

        Raises: ConstraintFailure (CONSTRAINT_SCHEMA_INVALID) for one that is too large to be checked.
        """
        self._effort.remaining = MAX_CHECK_COST - self._loads.cost(value)
        fits = self._effort.remaining >= 0 and self._validator.is_valid(value)
        if self._effort.remaining < 0:
            message = "the answer is too large to be checked against its schema"
            details = {"violations": [SchemaViolation("$", message).as_dict()]}
            raise ConstraintFailure(Code.CONSTRAINT_SCHEMA_INVALID, message, details)
        yield (MAX_CHECK_COST - self._effort.remaining) // EVALUATIONS_AT_ONCE
        return fits

    def violations(self, value: Any) -> tuple[SchemaViolation, ...]:
        """Why the value does not fit; empty where it does. Raises: as `fitting`."""
        return () if self.fits(value) else at_once(self.explaining(value))

    def explaining(self, value: Any) -> Pausing[tuple[SchemaViolation, ...]]:
        """Why a value does not fit that does not."""
        explainer = self._explainer
        yield len(self.outline.subschemas) * _SUBSCHEMA_TAKES
        return (yield from explainer.find(value))

    @cached_property
    def _explainer(self) -> ViolationFinder:
        return ViolationFinder(self._document, self.outline, self._loads.cost, self._effort)


def compile_schema(document: Mapping[str, Any]) -> CompiledSchema:
    """The same as `compiling`, without a pause."""
    return at_once(compiling(document))


def compiling(document: Mapping[str, Any]) -> Pausing[CompiledSchema]:
    """The compiled schema, from the cache if it was compiled before.

    Raises: ConfigurationFailure (CONFIG_SCHEMA_INVALID), with the place in the schema as `details.path`.
    """
    try:
        data = orjson.dumps(dict(document), option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        raise _invalid("$", "it is nested too deeply, or holds what JSON does not") from None
    if len(data) > MAX_BYTES:
        raise _invalid("$", f"it is longer than {MAX_BYTES} bytes")
    source = _Source(data)
    kept = _small(source) if len(data) <= _SMALL_BYTES else _large(source)
    if kept.schema is None:
        kept.schema = yield from _reading(data)
    return kept.schema


class _Source:
    """A schema's text, known again by its digest."""

    __slots__ = ("_digest",)

    def __init__(self, data: bytes) -> None:
        self._digest = blake2b(data, digest_size=16).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Source) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)


@dataclass(slots=True)
class _Kept:
    """A place in the cache; None while nothing was made of that source."""

    schema: CompiledSchema | None = None


@lru_cache(maxsize=128)
def _small(_source: _Source) -> _Kept:
    return _Kept()


@lru_cache(maxsize=8)
def _large(_source: _Source) -> _Kept:
    return _Kept()


def _reading(data: bytes) -> Pausing[CompiledSchema]:
    document = orjson.loads(data)
    _refuse_size(document)
    if document.get("$schema", _DIALECTS[0]) not in _DIALECTS:
        raise _invalid("$['$schema']", "only JSON Schema 2020-12 is understood")
    yield len(data) // _READ_AT_ONCE
    try:
        parts = outline_schema(document)
    except SchemaOutlineError as fault:
        raise _invalid(fault.path, str(fault)) from None
    yield len(parts.subschemas) * _SUBSCHEMA_TAKES
    yield from _refuse_patterns(parts)
    return (yield from CompiledSchema.making(document, parts))


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


def _refuse_patterns(parts: SchemaOutline) -> Pausing[None]:
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
        yield _PATTERN_TAKES + size // _PATTERN_READ_AT_ONCE


def _compiled(document: Mapping[str, Any], keywords: Mapping[str, Any]) -> jsonschema_rs.Draft202012Validator:
    try:
        return compile_validator(document, keywords=keywords)
    except jsonschema_rs.ValidationError as fault:
        raise _invalid(format_path(fault.instance_path), fault.message) from None
    except ValueError as fault:
        raise _invalid("$", str(fault).partition("\n")[0]) from None


def _invalid(path: str, what: str) -> ConfigurationFailure:
    what = what[:240]
    details = {"field": "output.schema", "path": path, "message": what}
    return ConfigurationFailure(Code.CONFIG_SCHEMA_INVALID, f"the schema cannot be used, at {path}: {what}", details)
