"""The constraint stages, in their order: extract → repair → enum normalisation → schema → grammar.

    found a value? ── no ──► repair allowed, and possible? ── no ──► CONSTRAINT_JSON_INVALID
         │ yes ◄──────────────────── yes ──┘
    fits the schema? ── no ──► respelled to fit it? ── no ──► CONSTRAINT_ENUM_UNRECOGNIZED, _SCHEMA_INVALID
         │ yes ◄──────────────────── yes ──┘
    follows the grammar? ── no ──► CONSTRAINT_GRAMMAR_REJECTED

An answer that fits is not respelled, since nothing is wrong with it. One that does not is told all reasons at once; if
an enumeration is among them, that is the stage it failed at. With a grammar alone the text is the answer: it has a
value where all of it is JSON, and no other stage runs. The grammar judges the text as the model wrote it.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from app.capabilities.output.extract import JSONExtractionError, extract, read_whole, repairable_text
from app.capabilities.output.grammar import Grammar, GrammarError
from app.capabilities.output.repair import Repair, RepairedValue, repair
from app.capabilities.output.schema.compiled import CompiledSchema
from app.capabilities.output.schema.enum_spelling import normalise_enums
from app.capabilities.output.schema.violations import SchemaViolation
from app.domain.failures import Code, ConfigurationFailure, ConstraintFailure
from app.domain.strict_json import StrictJsonError


class EnforcementStage(StrEnum):
    """The stages, in their order."""

    EXTRACT = "extract"
    REPAIR = "repair"
    ENUM = "enum"
    SCHEMA = "schema"
    GRAMMAR = "grammar"


class StageOutcome(StrEnum):
    """How a stage ended."""

    PASSED = "passed"
    CHANGED = "changed"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class StageReport:
    """One stage as it ended; `detail` is the finder that found the value."""

    stage: EnforcementStage
    outcome: StageOutcome
    detail: str = ""


_REPAIR_SKIPPED = StageReport(EnforcementStage.REPAIR, StageOutcome.SKIPPED)
_REPAIRED = (
    StageReport(EnforcementStage.EXTRACT, StageOutcome.FAILED),
    StageReport(EnforcementStage.REPAIR, StageOutcome.CHANGED),
)
_FITTED = (
    StageReport(EnforcementStage.ENUM, StageOutcome.PASSED),
    StageReport(EnforcementStage.SCHEMA, StageOutcome.PASSED),
)
_RESPELLED = (
    StageReport(EnforcementStage.ENUM, StageOutcome.CHANGED),
    StageReport(EnforcementStage.SCHEMA, StageOutcome.PASSED),
)
_NO_GRAMMAR = StageReport(EnforcementStage.GRAMMAR, StageOutcome.SKIPPED)
_FOLLOWED = StageReport(EnforcementStage.GRAMMAR, StageOutcome.PASSED)


@dataclass(frozen=True, slots=True)
class EnforcedAnswer:
    """An answer of the promised form: its value, None where only a grammar was asked for and the text is no JSON."""

    value: Any
    repairs: tuple[Repair, ...]
    reports: tuple[StageReport, ...]


def enforce(
    text: str, *, schema: CompiledSchema | None, grammar: Grammar | None, repair_allowed: bool
) -> EnforcedAnswer:
    """The answer in the promised form.

    Raises: ConstraintFailure of the first stage that failed, with `details.stage` and `details.violations`, each of
    them a path and a message; ConfigurationFailure (CONFIG_SCHEMA_REQUIRED) when nothing was promised.
    """
    if schema is None:
        if grammar is None:
            raise ConfigurationFailure(Code.CONFIG_SCHEMA_REQUIRED, "there is neither a schema nor a grammar")
        return _follow_alone(text, grammar)
    reports: list[StageReport] = []
    value, repairs = _find(text, reports, repair_allowed=repair_allowed)
    value, respelled = _fit(value, schema, reports)
    if grammar is None:
        reports.append(_NO_GRAMMAR)
    else:
        _follow(text, grammar)
        reports.append(_FOLLOWED)
    return EnforcedAnswer(value, repairs + respelled, tuple(reports))


def enforce_if_valid(text: str, schema: CompiledSchema) -> EnforcedAnswer | None:
    """Return the answer if it holds a value that fits the schema as it is; None if more has to be done."""
    try:
        found = extract(text)
    except JSONExtractionError:
        return None
    if not schema.fits(found.value):
        return None
    extracted = StageReport(EnforcementStage.EXTRACT, StageOutcome.PASSED, found.method)
    return EnforcedAnswer(found.value, (), (extracted, _REPAIR_SKIPPED, *_FITTED, _NO_GRAMMAR))


def enforce_value(value: Any, text: str, *, schema: CompiledSchema | None, grammar: Grammar | None) -> EnforcedAnswer:
    """The value where it keeps the form by itself, with that text for the grammar: it is not looked for, nor changed.

    Raises: ConstraintFailure, as `enforcing` does.
    """
    if schema is not None and not schema.fits(value):
        raise _unfit(schema.explain(value))
    if grammar is not None:
        _follow(text, grammar)
    return EnforcedAnswer(value, (), ())


def _find(text: str, reports: list[StageReport], *, repair_allowed: bool) -> tuple[Any, tuple[Repair, ...]]:
    try:
        found = extract(text)
    except JSONExtractionError as failure:
        failure.details["stage"] = EnforcementStage.EXTRACT.value
        if not repair_allowed:
            raise
        repaired = _repaired(text, failure)
        reports += _REPAIRED
        return repaired.value, repaired.repairs
    reports += (StageReport(EnforcementStage.EXTRACT, StageOutcome.PASSED, found.method), _REPAIR_SKIPPED)
    return found.value, ()


def _repaired(text: str, failure: JSONExtractionError) -> RepairedValue:
    broken = repairable_text(text)
    if broken is None:
        raise failure
    try:
        return repair(broken)
    except StrictJsonError as fault:
        message = f"{failure.reason}; it cannot be repaired: {fault}"
        beyond = JSONExtractionError(message)
        beyond.details["stage"] = EnforcementStage.REPAIR.value
        raise beyond from None


def _fit(value: Any, schema: CompiledSchema, reports: list[StageReport]) -> tuple[Any, tuple[Repair, ...]]:
    respelled: tuple[Repair, ...] = ()
    fits = schema.fits(value)
    if not fits:
        value, respelled = normalise_enums(schema.outline, value)
        fits = bool(respelled) and schema.fits(value)
    if not fits:
        raise _unfit(schema.explain(value))
    reports += _RESPELLED if respelled else _FITTED
    return value, respelled


def _unfit(violations: tuple[SchemaViolation, ...]) -> ConstraintFailure:
    unrecognised = [violation.path for violation in violations if violation.keyword == "enum"]
    code = Code.CONSTRAINT_ENUM_UNRECOGNIZED if unrecognised else Code.CONSTRAINT_SCHEMA_INVALID
    first = unrecognised[0] if unrecognised else violations[0].path
    what = "is none of the values that the schema names" if unrecognised else "does not fit the schema"
    details = {
        "stage": (EnforcementStage.ENUM if unrecognised else EnforcementStage.SCHEMA).value,
        "violations": [violation.as_dict() for violation in violations],
    }
    return ConstraintFailure(code, f"{first} {what}", details)


def _follow(text: str, grammar: Grammar) -> None:
    try:
        accepted, position = grammar.check(text)
    except GrammarError as fault:
        raise _rejected("the text is too large to be judged by the grammar") from fault
    if accepted:
        return
    if position == len(text):
        message = "the text ends before the grammar does"
    else:
        line = text.count("\n", 0, position) + 1
        column = position - text.rfind("\n", 0, position)
        message = f"the text leaves the grammar at line {line}, column {column}"
    raise _rejected(message, position)


def _rejected(message: str, position: int | None = None) -> ConstraintFailure:
    details: dict[str, Any] = {
        "stage": EnforcementStage.GRAMMAR.value,
        "violations": [SchemaViolation("$", message).as_dict()],
    }
    if position is not None:
        details["position"] = position
    return ConstraintFailure(Code.CONSTRAINT_GRAMMAR_REJECTED, message, details)


def _follow_alone(text: str, grammar: Grammar) -> EnforcedAnswer:
    _follow(text, grammar)
    found = read_whole(text)
    skipped = tuple(
        StageReport(stage, StageOutcome.SKIPPED) for stage in EnforcementStage if stage is not EnforcementStage.GRAMMAR
    )
    return EnforcedAnswer(None if found is None else found.value, (), (*skipped, _FOLLOWED))
