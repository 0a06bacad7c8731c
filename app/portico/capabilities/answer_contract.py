"""A compiled output contract: the response format to ask for, and the validation of an answer."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property

import orjson
from pydantic import JsonValue

from portico.capabilities.output.contract_size import contract_size
from portico.capabilities.output.enforcement import (
    EnforcedAnswer,
    EnforcementStage,
    enforce,
    enforce_if_valid,
    enforce_value,
)
from portico.capabilities.output.grammar import Grammar, GrammarError, cached_grammar, is_grammar_text
from portico.capabilities.output.rules.custom import BUILT_IN_RULES
from portico.capabilities.output.rules.rule_set import RuleRegistry, RuleSet, RuleViolation
from portico.capabilities.output.schema.compiled import CompiledSchema, compile_schema, invalid_schema
from portico.capabilities.prompting.prompts.assessment import AnswerJudgementOutput
from portico.domain.contract.constrained_types import ConfidenceSource
from portico.domain.contract.request import OutputContract, SystemRequest
from portico.domain.contract.response import ValidationResult
from portico.domain.contract.rules import AnswerContent
from portico.domain.failures import (
    Code,
    ConfigurationFailure,
    ConstraintFailure,
    Failure,
    RequestFailure,
    ValidationFailure,
)
from portico.domain.journal.outcomes import AnswerValidated, Refused
from portico.domain.model_call import ResponseFormat
from portico.domain.pattern_result import PatternResult
from portico.domain.raised_exception import RaisedException, RecordedException
from portico.domain.value import replace, value

_GRAMMAR_FIELD = "output.grammar"
LARGE_CONTRACT_CHARACTERS = 2_048
"""A larger schema may not be part of what another plan step returned."""
MAX_ANSWER_CHARACTERS = 262_144
"""Length of the longest answer that is validated."""
MAX_ANSWER_NODES = 65_536
"""Brackets and commas of the largest answer with a value: each may begin another value."""


@value
class ValidatedAnswer:
    """The result of a validation. `failure` says why the answer is invalid; `pattern_result` is there all the same.

    A judge that is asked and gives no judgement leaves the answer invalid and `is_unjudged`.
    """

    pattern_result: PatternResult
    failure: Failure | None = None
    is_unjudged: bool = False
    exceptions: tuple[tuple[str, RaisedException], ...] = ()
    """What rules raised, with their names."""

    @property
    def violations(self) -> list[tuple[str, str]]:
        """Return the reasons why the answer is invalid, as pairs of path and message."""
        violations = self.failure.details.get("violations", ()) if self.failure else ()
        return [(violation["path"], violation["message"]) for violation in violations]

    def result_after_last_attempt(self, *, strict: bool) -> PatternResult:
        """Return the result. Raises: the failure of an invalid answer, if `strict` or if its format is broken."""
        if self.failure is None:
            return self.pattern_result
        if strict or not isinstance(self.failure, ValidationFailure):
            raise self.failure
        return replace(self.pattern_result, confidence=0.0)

    @property
    def validation(self) -> ValidationResult:
        """Return the validation result."""
        assert self.pattern_result.validation is not None  # noqa: S101 - every validated answer has one
        return self.pattern_result.validation

    @classmethod
    def recorded(cls, text: str, outcome: AnswerValidated) -> "ValidatedAnswer":
        """Return the answer with that text as its recorded outcome says."""
        result = _pattern_result(text, outcome.structured_output, outcome.validation)
        return cls(result, None if outcome.failure is None else outcome.failure.failure())

    def outcome(self) -> AnswerValidated:
        """Return the outcome to record."""
        failure = None if self.failure is None else Refused.by(self.failure)
        exception = RecordedException.of(self.exceptions[0][1]) if self.exceptions else None
        return AnswerValidated(self.pattern_result.structured_output, self.validation, failure, exception)

    def with_judgement(self, judgement: AnswerJudgementOutput) -> "ValidatedAnswer":
        """Return the answer with the judgement of a judge, whose score is the confidence.

        The issues of a valid answer are warnings.
        """
        issues = [_judge_violation(issue) for issue in judgement.issues if issue.strip()]
        if not judgement.valid:
            violations = issues or [_judge_violation("does not serve its intent")]
            return self._rejected("a judge found fault with the answer", violations, judgement.score)
        warnings = [*self.validation.warnings, *(issue.as_dict() for issue in issues)]
        result = self.validation.model_copy(update={"warnings": warnings})
        return ValidatedAnswer(replace(self.pattern_result, validation=result, confidence=judgement.score))

    def without_judgement(self) -> "ValidatedAnswer":
        """Return the answer as invalid because there is no judgement, or not yet."""
        rejected = self._rejected("the answer could not be judged", [_judge_violation("was not judged")], 0.0)
        return replace(rejected, is_unjudged=True)

    def _rejected(self, message: str, violations: Sequence[RuleViolation], score: float) -> "ValidatedAnswer":
        errors = [violation.as_dict() for violation in violations]
        result = self.validation.model_copy(update={"valid": False, "errors": errors})
        details = {"violations": errors, "warnings": result.warnings}
        failure = ValidationFailure(Code.VALIDATION_SEMANTIC_FAILED, message, details)
        return ValidatedAnswer(replace(self.pattern_result, validation=result, confidence=score), failure)


@value
class _CompiledContract:
    """The compiled parts of a contract."""

    schema: CompiledSchema | None
    grammar: Grammar | None
    rules: RuleSet


class AnswerContract:
    """The requirements of an answer: its format, then its rules. It is compiled when it is first needed."""

    def __init__(self, output: OutputContract, rules: RuleRegistry = BUILT_IN_RULES) -> None:
        self._rules = rules
        self.size = contract_size(output)
        """The size, which decides where the contract is compiled and answers are validated."""
        self._output = output

    def compile(self) -> None:
        """Compile the contract, whose size says whether that may be done on the event loop.

        Raises: ConfigurationFailure, RequestFailure, for a contract that no answer can keep.
        """
        self._compiled  # noqa: B018 - compiles it

    @property
    def output(self) -> OutputContract:
        """The requirements as the request states them."""
        return self._output

    @property
    def response_format(self) -> ResponseFormat:
        """Return the format that an engine is asked for."""
        return ResponseFormat(self._output.schema_, self._output.grammar)

    def probe(self) -> None:
        """Use the schema on trivial values: one that takes very long for these can never be used."""
        if self._schema is not None:
            self._schema.probe()

    def validate_quickly(self, answer: str | AnswerContent, attempt: int) -> ValidatedAnswer | None:
        """Return the answer if it is short and found to keep its format within about a millisecond, else None.

        Explaining why an answer does not keep its format can take longer than finding that it does not.
        """
        text = answer if isinstance(answer, str) else answer.text
        if not self.size.is_quick_with(text):
            return None
        if self._schema is None:
            value = None if isinstance(answer, str) else answer.value
            return self._apply_rules(text, EnforcedAnswer(value, (), ()), attempt)
        enforced = enforce_if_valid(answer, self._schema) if isinstance(answer, str) else None
        return None if enforced is None else self._apply_rules(text, enforced, attempt)

    def validate(self, answer: str | AnswerContent, attempt: int) -> ValidatedAnswer:
        """Validate the answer by all stages in their order; the first that fails ends it.

        A value is looked for in a text; an answer that has a value already is validated as it stands.
        """
        text = answer if isinstance(answer, str) else answer.text
        try:
            enforced = self._enforce_text(text) if isinstance(answer, str) else self._enforce_value(answer)
        except ConstraintFailure as failure:
            result = ValidationResult(valid=False, errors=failure.details.get("violations", []), attempts=attempt)
            return ValidatedAnswer(_pattern_result(text, None, result), failure)
        return self._apply_rules(text, enforced, attempt)

    def _apply_rules(self, text: str, enforced: EnforcedAnswer, attempt: int) -> ValidatedAnswer:
        content = AnswerContent(text, enforced.value)
        report = self._compiled.rules.validate(content)
        result = ValidationResult(
            valid=report.valid,
            errors=[violation.as_dict() for violation in report.errors],
            warnings=[violation.as_dict() for violation in report.warnings],
            repairs=[asdict(repair) for repair in enforced.repairs],
            attempts=attempt,
        )
        pattern_result = _pattern_result(text, enforced.value, result)
        failure = None if report.valid else report.failure()
        return ValidatedAnswer(pattern_result, failure, exceptions=report.exceptions)

    def _enforce_text(self, text: str) -> EnforcedAnswer:
        """Return the answer in its format; a text without a required format has none. Raises: ConstraintFailure."""
        if self._schema is None and self._grammar is None:
            return EnforcedAnswer(None, (), ())
        _check_size(text, has_value=self._schema is not None)
        return enforce(text, schema=self._schema, grammar=self._grammar, repair_allowed=self._output.repair_allowed)

    def _enforce_value(self, answer: AnswerContent) -> EnforcedAnswer:
        """Return the value if it keeps its format. Raises: ConstraintFailure."""
        _check_size(answer.text, has_value=self._schema is not None)
        return enforce_value(answer.value, answer.text, schema=self._schema, grammar=self._grammar)

    @cached_property
    def _compiled(self) -> _CompiledContract:
        output = self._output
        schema = None if output.schema_ is None else compile_schema(output.schema_)
        grammar = None if output.grammar is None else _grammar(output.grammar)
        return _CompiledContract(schema, grammar, self._rules.compile(output.rules))

    @property
    def _schema(self) -> CompiledSchema | None:
        return self._compiled.schema

    @property
    def _grammar(self) -> Grammar | None:
        return self._compiled.grammar


def too_costly_contract(output: OutputContract) -> Failure:
    """Return the failure of a contract whose compilation exceeds the limit of time or memory."""
    message = "compiling it takes too much time or memory"
    if output.schema_ is not None:
        return invalid_schema("$", message)
    if output.grammar is not None:
        details = {"field": _GRAMMAR_FIELD}
        return ConfigurationFailure(Code.CONFIG_GRAMMAR_INVALID, f"{_GRAMMAR_FIELD}: {message}", details)
    errors = [{"field": "output.rules", "message": message}]
    return RequestFailure(Code.REQUEST_INVALID, f"output.rules: {message}", {"errors": errors})


def too_costly_answer(attempt: int) -> AnswerValidated:
    """Return the outcome of a validation that exceeds the limit of time or memory."""
    message = "the answer takes too much time or memory to be checked"
    violations: list[JsonValue] = [{"path": "$", "message": message}]
    details = {"stage": EnforcementStage.SCHEMA.value, "violations": violations}
    failure = Refused(Code.CONSTRAINT_SCHEMA_INVALID, message, details)
    return AnswerValidated(None, ValidationResult(valid=False, errors=violations, attempts=attempt), failure)


def is_large_contract(output: OutputContract) -> bool:
    """Return True if the contract is too large, or not plain, for what another step returned."""
    schema = 0 if output.schema_ is None else len(orjson.dumps(output.schema_))
    return schema > LARGE_CONTRACT_CHARACTERS or not contract_size(output).is_plain


def _judge_violation(issue: str) -> RuleViolation:
    return RuleViolation("semantic", "$", issue)


def _check_size(text: str, *, has_value: bool) -> None:
    if len(text) > MAX_ANSWER_CHARACTERS:
        raise _too_large(f"it is longer than {MAX_ANSWER_CHARACTERS} characters", has_value=has_value)
    if has_value and len(text) > MAX_ANSWER_NODES and sum(map(text.count, "[{,")) > MAX_ANSWER_NODES:
        raise _too_large(f"it has more than {MAX_ANSWER_NODES} brackets and commas", has_value=has_value)


def _too_large(why: str, *, has_value: bool) -> ConstraintFailure:
    message = f"is too large to be judged: {why}"
    code, stage = Code.CONSTRAINT_GRAMMAR_REJECTED, EnforcementStage.GRAMMAR
    if has_value:
        code, stage = Code.CONSTRAINT_JSON_INVALID, EnforcementStage.EXTRACT
    violations = [{"path": "$", "message": message}]
    return ConstraintFailure(code, f"the answer {message}", {"stage": stage.value, "violations": violations})


def _pattern_result(text: str, value: JsonValue, result: ValidationResult) -> PatternResult:
    confidence = 1.0 if result.valid else 0.0
    return PatternResult(text, value, result, confidence, ConfidenceSource.VALIDATION)


def _grammar(text: str) -> Grammar:
    """Return the grammar. Raises: ConfigurationFailure (CONFIG_GRAMMAR_NOT_FOUND, CONFIG_GRAMMAR_INVALID)."""
    if not is_grammar_text(text):
        message = f"{_GRAMMAR_FIELD}: no grammar has that name"
        raise ConfigurationFailure(Code.CONFIG_GRAMMAR_NOT_FOUND, message, {"field": _GRAMMAR_FIELD})
    try:
        return cached_grammar(text)
    except GrammarError as error:
        details = {"field": _GRAMMAR_FIELD, **error.details}
        raise ConfigurationFailure(error.code, f"{_GRAMMAR_FIELD}: {error.message}", details) from error


def with_grammar(request: SystemRequest, grammars: Mapping[str, str]) -> SystemRequest:
    """Return the request with the text of the grammar that it names, so that a changed file alters no replay."""
    text = grammars.get(request.output.grammar or "")
    if text is None:
        return request
    return request.model_copy(update={"output": request.output.model_copy(update={"grammar": text})})


def needs_contract(output: OutputContract) -> bool:
    """Return whether there is anything in the output contract to compile."""
    return output.schema_ is not None or output.grammar is not None or bool(output.rules)
