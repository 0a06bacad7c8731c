"""The stages that enforce an output format: extract → repair → enum normalisation → schema → grammar.

    value found? ── no ──► repair allowed, and possible? ── no ──► CONSTRAINT_JSON_INVALID
         │ yes ◄──────────────────── yes ──┘
    fits the schema? ── no ──► fits with enum values respelled? ── no ──► CONSTRAINT_ENUM_UNRECOGNIZED, _SCHEMA_INVALID
         │ yes ◄──────────────────── yes ──┘
    follows the grammar? ── no ──► CONSTRAINT_GRAMMAR_REJECTED

A value that fits the schema is not respelled. A value that does not fit gets all reasons at once; if one of them
concerns an enumeration, that is the failed stage. If only a grammar is required, the text is the answer: it has a value
if all of it is JSON, and no other stage runs. The grammar is applied to the text as the model wrote it.
"""

from enum import StrEnum
from typing import Any

from portico.capabilities.output.extract import JSONExtractionError, extract, read_whole, repairable_text
from portico.capabilities.output.grammar import Grammar, GrammarError
from portico.capabilities.output.repair import Repair, RepairedValue, repair
from portico.capabilities.output.schema.compiled import CompiledSchema
from portico.capabilities.output.schema.enum_normalisation import normalise_enums
from portico.capabilities.output.schema.violations import SchemaViolation
from portico.domain.failures import Code, ConfigurationFailure, ConstraintFailure
from portico.domain.strict_json import StrictJsonError
from portico.domain.value import value


class EnforcementStage(StrEnum):
    """The stages, in their order."""

    EXTRACT = "extract"
    REPAIR = "repair"
    ENUM = "enum"
    SCHEMA = "schema"
    GRAMMAR = "grammar"


class StageOutcome(StrEnum):
    """The outcome of a stage."""

    PASSED = "passed"
    CHANGED = "changed"
    SKIPPED = "skipped"
    FAILED = "failed"


@value
class StageReport:
    """The outcome of one stage; `detail` is the method that found the value."""

    stage: EnforcementStage
    outcome: StageOutcome
    detail: str = ""


_REPAIR_SKIPPED = StageReport(EnforcementStage.REPAIR, StageOutcome.SKIPPED)
_REPAIRED = (
    StageReport(EnforcementStage.EXTRACT, StageOutcome.FAILED),
    StageReport(EnforcementStage.REPAIR, StageOutcome.CHANGED),
)
_FITS = (
    StageReport(EnforcementStage.ENUM, StageOutcome.PASSED),
    StageReport(EnforcementStage.SCHEMA, StageOutcome.PASSED),
)
_FITS_RESPELLED = (
    StageReport(EnforcementStage.ENUM, StageOutcome.CHANGED),
    StageReport(EnforcementStage.SCHEMA, StageOutcome.PASSED),
)
_NO_GRAMMAR = StageReport(EnforcementStage.GRAMMAR, StageOutcome.SKIPPED)
_GRAMMAR_PASSED = StageReport(EnforcementStage.GRAMMAR, StageOutcome.PASSED)


@value
class EnforcedAnswer:
    """An answer in the required format. Its value is None if only a grammar is required and the text is not JSON."""

    value: Any
    repairs: tuple[Repair, ...]
    reports: tuple[StageReport, ...]


def enforce(
    text: str, *, schema: CompiledSchema | None, grammar: Grammar | None, repair_allowed: bool
) -> EnforcedAnswer:
    """Return the answer in the required format.

    Raises: ConstraintFailure of the first stage that failed, with `details.stage` and `details.violations`, each a path
    and a message; ConfigurationFailure (CONFIG_SCHEMA_REQUIRED) if no format is required.
    """
    if schema is None:
        if grammar is None:
            raise ConfigurationFailure(Code.CONFIG_SCHEMA_REQUIRED, "there is neither a schema nor a grammar")
        return _match_grammar_only(text, grammar)
    reports: list[StageReport] = []
    value, repairs = _extract_or_repair(text, reports, repair_allowed=repair_allowed)
    value, respelled = _fit_schema(value, schema, reports)
    if grammar is None:
        reports.append(_NO_GRAMMAR)
    else:
        _match_grammar(text, grammar)
        reports.append(_GRAMMAR_PASSED)
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
    return EnforcedAnswer(found.value, (), (extracted, _REPAIR_SKIPPED, *_FITS, _NO_GRAMMAR))


def enforce_value(value: Any, text: str, *, schema: CompiledSchema | None, grammar: Grammar | None) -> EnforcedAnswer:
    """Return the value if it keeps the format without changes; the grammar is applied to the text.

    Raises: ConstraintFailure, as `enforce` does.
    """
    if schema is not None and not schema.fits(value):
        raise _schema_failure(schema.explain(value))
    if grammar is not None:
        _match_grammar(text, grammar)
    return EnforcedAnswer(value, (), ())


def _extract_or_repair(
    text: str, reports: list[StageReport], *, repair_allowed: bool
) -> tuple[Any, tuple[Repair, ...]]:
    try:
        found = extract(text)
    except JSONExtractionError as failure:
        failure.details["stage"] = EnforcementStage.EXTRACT.value
        if not repair_allowed:
            raise
        repaired = _repair_text(text, failure)
        reports += _REPAIRED
        return repaired.value, repaired.repairs
    reports += (StageReport(EnforcementStage.EXTRACT, StageOutcome.PASSED, found.method), _REPAIR_SKIPPED)
    return found.value, ()


def _repair_text(text: str, failure: JSONExtractionError) -> RepairedValue:
    broken = repairable_text(text)
    if broken is None:
        raise failure
    try:
        return repair(broken)
    except StrictJsonError as error:
        message = f"{failure.reason}; it cannot be repaired: {error}"
        beyond = JSONExtractionError(message)
        beyond.details["stage"] = EnforcementStage.REPAIR.value
        raise beyond from None


def _fit_schema(value: Any, schema: CompiledSchema, reports: list[StageReport]) -> tuple[Any, tuple[Repair, ...]]:
    respelled: tuple[Repair, ...] = ()
    fits = schema.fits(value)
    if not fits:
        value, respelled = normalise_enums(schema.outline, value)
        fits = bool(respelled) and schema.fits(value)
    if not fits:
        raise _schema_failure(schema.explain(value))
    reports += _FITS_RESPELLED if respelled else _FITS
    return value, respelled


def _schema_failure(violations: tuple[SchemaViolation, ...]) -> ConstraintFailure:
    unrecognised = [violation.path for violation in violations if violation.keyword == "enum"]
    code = Code.CONSTRAINT_ENUM_UNRECOGNIZED if unrecognised else Code.CONSTRAINT_SCHEMA_INVALID
    first = unrecognised[0] if unrecognised else violations[0].path
    problem = "is none of the values that the schema names" if unrecognised else "does not fit the schema"
    details = {
        "stage": (EnforcementStage.ENUM if unrecognised else EnforcementStage.SCHEMA).value,
        "violations": [violation.as_dict() for violation in violations],
    }
    return ConstraintFailure(code, f"{first} {problem}", details)


def _match_grammar(text: str, grammar: Grammar) -> None:
    try:
        accepted, position = grammar.check(text)
    except GrammarError as error:
        raise _grammar_failure("the text is too large to be judged by the grammar") from error
    if accepted:
        return
    if position == len(text):
        message = "the text ends before the grammar does"
    else:
        line = text.count("\n", 0, position) + 1
        column = position - text.rfind("\n", 0, position)
        message = f"the text leaves the grammar at line {line}, column {column}"
    raise _grammar_failure(message, position)


def _grammar_failure(message: str, position: int | None = None) -> ConstraintFailure:
    details: dict[str, Any] = {
        "stage": EnforcementStage.GRAMMAR.value,
        "violations": [SchemaViolation("$", message).as_dict()],
    }
    if position is not None:
        details["position"] = position
    return ConstraintFailure(Code.CONSTRAINT_GRAMMAR_REJECTED, message, details)


def _match_grammar_only(text: str, grammar: Grammar) -> EnforcedAnswer:
    _match_grammar(text, grammar)
    found = read_whole(text)
    skipped = tuple(
        StageReport(stage, StageOutcome.SKIPPED) for stage in EnforcementStage if stage is not EnforcementStage.GRAMMAR
    )
    return EnforcedAnswer(None if found is None else found.value, (), (*skipped, _GRAMMAR_PASSED))
