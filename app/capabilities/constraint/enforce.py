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

from app.capabilities.constraint.enums import normalise
from app.capabilities.constraint.extract import JSONExtractionError, extracting, read_whole, repairable
from app.capabilities.constraint.grammar import Grammar, GrammarError
from app.capabilities.constraint.repair import Repair, Repaired, repairing
from app.capabilities.constraint.schema import Schema
from app.capabilities.constraint.strict_json import UnacceptableError
from app.capabilities.constraint.violations import Violation
from app.domain.failures import Code, ConfigurationFailure, ConstraintFailure
from app.domain.pausing import Pausing


class Stage(StrEnum):
    """The stages, in their order."""

    EXTRACT = "extract"
    REPAIR = "repair"
    ENUM = "enum"
    SCHEMA = "schema"
    GRAMMAR = "grammar"


class Outcome(StrEnum):
    """How a stage ended."""

    PASSED = "passed"
    CHANGED = "changed"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class StageReport:
    """One stage as it ended; `detail` is the finder that found the value."""

    stage: Stage
    outcome: Outcome
    detail: str = ""


_REPAIR_SKIPPED = StageReport(Stage.REPAIR, Outcome.SKIPPED)
_REPAIRED = (StageReport(Stage.EXTRACT, Outcome.FAILED), StageReport(Stage.REPAIR, Outcome.CHANGED))
_FITTED = (StageReport(Stage.ENUM, Outcome.PASSED), StageReport(Stage.SCHEMA, Outcome.PASSED))
_RESPELLED = (StageReport(Stage.ENUM, Outcome.CHANGED), StageReport(Stage.SCHEMA, Outcome.PASSED))
_NO_GRAMMAR = StageReport(Stage.GRAMMAR, Outcome.SKIPPED)
_FOLLOWED = StageReport(Stage.GRAMMAR, Outcome.PASSED)


@dataclass(frozen=True, slots=True)
class Enforced:
    """An answer of the promised form: its value, None where only a grammar was asked for and the text is no JSON."""

    value: Any
    repairs: tuple[Repair, ...]
    reports: tuple[StageReport, ...]


def enforcing(text: str, *, schema: Schema | None, grammar: Grammar | None, repair_allowed: bool) -> Pausing[Enforced]:
    """The answer in the promised form.

    Raises: ConstraintFailure of the first stage that failed, with `details.stage` and `details.violations`, each of
    them a path and a message; ConfigurationFailure (CONFIG_SCHEMA_REQUIRED) when nothing was promised.
    """
    if schema is None:
        if grammar is None:
            raise ConfigurationFailure(Code.CONFIG_SCHEMA_REQUIRED, "there is neither a schema nor a grammar")
        return (yield from _follow_alone(text, grammar))
    reports: list[StageReport] = []
    value, repairs = yield from _find(text, reports, repair_allowed=repair_allowed)
    value, respelled = yield from _fit(value, schema, reports)
    if grammar is None:
        reports.append(_NO_GRAMMAR)
    else:
        yield from _follow(text, grammar)
        reports.append(_FOLLOWED)
    return Enforced(value, repairs + respelled, tuple(reports))


def keeping(value: Any, text: str, *, schema: Schema | None, grammar: Grammar | None) -> Pausing[Enforced]:
    """The value where it keeps the form by itself, with that text for the grammar: it is not looked for, nor changed.

    Raises: ConstraintFailure, as `enforcing` does.
    """
    if schema is not None and not (yield from schema.fitting(value)):
        raise _unfit((yield from schema.explaining(value)))
    if grammar is not None:
        yield from _follow(text, grammar)
    return Enforced(value, (), ())


def _find(text: str, reports: list[StageReport], *, repair_allowed: bool) -> Pausing[tuple[Any, tuple[Repair, ...]]]:
    try:
        found = yield from extracting(text)
    except JSONExtractionError as failure:
        failure.details["stage"] = Stage.EXTRACT.value
        if not repair_allowed:
            raise
        repaired = yield from _repaired(text, failure)
        reports += _REPAIRED
        return repaired.value, repaired.repairs
    reports += (StageReport(Stage.EXTRACT, Outcome.PASSED, found.method), _REPAIR_SKIPPED)
    return found.value, ()


def _repaired(text: str, failure: JSONExtractionError) -> Pausing[Repaired]:
    broken = yield from repairable(text)
    if broken is None:
        raise failure
    try:
        return (yield from repairing(broken))
    except UnacceptableError as fault:
        message = f"{failure.reason}; it cannot be repaired: {fault}"
        beyond = JSONExtractionError(message)
        beyond.details["stage"] = Stage.REPAIR.value
        raise beyond from None


def _fit(value: Any, schema: Schema, reports: list[StageReport]) -> Pausing[tuple[Any, tuple[Repair, ...]]]:
    respelled: tuple[Repair, ...] = ()
    fits = yield from schema.fitting(value)
    if not fits:
        value, respelled = yield from normalise(schema.outline, value)
        fits = bool(respelled) and (yield from schema.fitting(value))
    if not fits:
        raise _unfit((yield from schema.explaining(value)))
    reports += _RESPELLED if respelled else _FITTED
    return value, respelled


def _unfit(violations: tuple[Violation, ...]) -> ConstraintFailure:
    unrecognised = [violation.path for violation in violations if violation.keyword == "enum"]
    code = Code.CONSTRAINT_ENUM_UNRECOGNIZED if unrecognised else Code.CONSTRAINT_SCHEMA_INVALID
    first = unrecognised[0] if unrecognised else violations[0].path
    what = "is none of the values that the schema names" if unrecognised else "does not fit the schema"
    details = {
        "stage": (Stage.ENUM if unrecognised else Stage.SCHEMA).value,
        "violations": [violation.told() for violation in violations],
    }
    return ConstraintFailure(code, f"{first} {what}", details)


def _follow(text: str, grammar: Grammar) -> Pausing[None]:
    try:
        accepted, position = yield from grammar.checking(text)
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
    details: dict[str, Any] = {"stage": Stage.GRAMMAR.value, "violations": [Violation("$", message).told()]}
    if position is not None:
        details["position"] = position
    return ConstraintFailure(Code.CONSTRAINT_GRAMMAR_REJECTED, message, details)


def _follow_alone(text: str, grammar: Grammar) -> Pausing[Enforced]:
    yield from _follow(text, grammar)
    found = read_whole(text)
    skipped = tuple(StageReport(stage, Outcome.SKIPPED) for stage in Stage if stage is not Stage.GRAMMAR)
    return Enforced(None if found is None else found.value, (), (*skipped, _FOLLOWED))
