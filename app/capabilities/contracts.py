"""An output contract made ready: what is asked for, and whether an answer keeps it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import orjson
from pydantic import JsonValue

from app.capabilities.constraint.enforce import Enforced, Stage, enforcing, keeping
from app.capabilities.constraint.grammar import Grammar, GrammarError, is_grammar, known_grammar
from app.capabilities.constraint.schema import Schema, compiling
from app.capabilities.custom_rules import CUSTOM_RULES
from app.capabilities.prompting.prompts.assessment import SemanticValidationOutput
from app.capabilities.validation import Answer, Finding, RuleBook, Rules
from app.domain.boundary import OutputContract, ValidationResult
from app.domain.effects import Form
from app.domain.failures import Code, ConfigurationFailure, ConstraintFailure, Failure, ValidationFailure
from app.domain.fields import ConfidenceSource
from app.domain.pausing import Pausing, at_once
from app.domain.produced import Produced

_BOOK = RuleBook(CUSTOM_RULES)
_GRAMMAR_FIELD = "output.grammar"
LARGE_CHARACTERS = 2_048
"""From this size on a schema or grammar may take long to be made ready."""
MOST_CHARACTERS = 262_144
"""Of an answer that is judged; a longer one is not looked at."""
MOST_PLACES = 65_536
"""Of an answer that has a value: its brackets and commas, each of which may begin another one within."""


@dataclass(frozen=True, slots=True)
class Judged:
    """An answer as it was found. `failure` is why it will not do; the product is shown beside it all the same."""

    produced: Produced
    failure: Failure | None = None

    @property
    def violations(self) -> list[tuple[str, str]]:
        """What is wrong with it, as pairs of path and message."""
        found = self.failure.details.get("violations", ()) if self.failure else ()
        return [(violation["path"], violation["message"]) for violation in found]

    @property
    def result(self) -> ValidationResult:
        """The verdict."""
        assert self.produced.validation is not None  # noqa: S101 - whatever was judged has one
        return self.produced.validation

    def assessed(self, judgement: SemanticValidationOutput, *, strict: bool) -> "Judged":
        """The same with what a judge says of it, whose score is the confidence.

        The issues of a valid answer are warnings, which are errors when it is `strict`.
        """
        issues = [_by_judge(issue) for issue in judgement.issues if issue.strip()]
        if not judgement.valid or (strict and issues):
            found = issues or [_by_judge("does not serve its intent")]
            return self._refused("a judge found fault with the answer", found, judgement.score)
        warnings = [*self.result.warnings, *(issue.told() for issue in issues)]
        result = self.result.model_copy(update={"warnings": warnings})
        return Judged(replace(self.produced, validation=result, confidence=judgement.score))

    def unjudged(self) -> "Judged":
        """The same while, or where, there is no judgement: an answer that nobody vouches for."""
        return self._refused("the answer could not be judged", [_by_judge("was not judged")], 0.0)

    def _refused(self, message: str, found: Sequence[Finding], score: float) -> "Judged":
        errors = [finding.told() for finding in found]
        result = self.result.model_copy(update={"valid": False, "errors": errors})
        details = {"violations": errors, "warnings": result.warnings}
        failure = ValidationFailure(Code.VALIDATION_SEMANTIC_FAILED, message, details)
        return Judged(replace(self.produced, validation=result, confidence=score), failure)


class Contract:
    """What an answer has to keep: its form, then its rules."""

    def __init__(self, output: OutputContract, schema: Schema | None, grammar: Grammar | None, rules: Rules) -> None:
        self._output = output
        self._schema = schema
        self._grammar = grammar
        self._rules = rules

    @classmethod
    def making(cls, output: OutputContract) -> Pausing["Contract"]:
        """The contract, made ready. Raises: ConfigurationFailure, RequestFailure, for what cannot be kept."""
        schema = None if output.schema_ is None else (yield from compiling(output.schema_))
        grammar = None if output.grammar is None else (yield from _grammar(output.grammar))
        return cls(output, schema, grammar, (yield from _BOOK.making(output.rules)))

    @property
    def form(self) -> Form:
        """What an engine is asked to keep."""
        return Form(self._output.schema_, self._output.grammar)

    def judge(self, answer: str | Answer, attempt: int) -> Judged:
        """The answer by all stages in their order; the first that fails ends it.

        A text may hold a value; an answer that has one already is judged as it stands.
        """
        return at_once(self.judging(answer, attempt))

    def judging(self, answer: str | Answer, attempt: int) -> Pausing[Judged]:
        """The same as `judge`, with pauses."""
        text = answer if isinstance(answer, str) else answer.text
        try:
            enforced = yield from (self._enforced(text) if isinstance(answer, str) else self._kept(answer))
        except ConstraintFailure as failure:
            result = ValidationResult(valid=False, errors=failure.details.get("violations", []), attempts=attempt)
            return Judged(_produced(text, None, result), failure)
        judged = Answer(text, enforced.value)
        verdict = yield from self._rules.judging(judged, strict=self._output.strict_validation)
        result = ValidationResult(
            valid=verdict.valid,
            errors=[finding.told() for finding in verdict.errors],
            warnings=[finding.told() for finding in verdict.warnings],
            repairs=[asdict(repair) for repair in enforced.repairs],
            attempts=attempt,
        )
        produced = _produced(text, enforced.value, result)
        return Judged(produced, None if verdict.valid else verdict.failure())

    def _enforced(self, text: str) -> Pausing[Enforced]:
        """Raises: ConstraintFailure. A text of which no form was asked has none to keep."""
        if self._schema is None and self._grammar is None:
            return Enforced(None, (), ())
        _refuse_size(text, has_value=self._schema is not None)
        return (
            yield from enforcing(
                text, schema=self._schema, grammar=self._grammar, repair_allowed=self._output.repair_allowed
            )
        )

    def _kept(self, answer: Answer) -> Pausing[Enforced]:
        """Raises: ConstraintFailure."""
        _refuse_size(answer.text, has_value=self._schema is not None)
        return (yield from keeping(answer.value, answer.text, schema=self._schema, grammar=self._grammar))


def is_large(output: OutputContract) -> bool:
    """Whether it takes long to be made ready."""
    schema = 0 if output.schema_ is None else len(orjson.dumps(output.schema_))
    return schema + len(output.grammar or "") > LARGE_CHARACTERS


def _by_judge(issue: str) -> Finding:
    return Finding("semantic", "$", issue)


def _refuse_size(text: str, *, has_value: bool) -> None:
    if len(text) > MOST_CHARACTERS:
        raise _too_large(f"it is longer than {MOST_CHARACTERS} characters", has_value=has_value)
    if has_value and len(text) > MOST_PLACES and sum(map(text.count, "[{,")) > MOST_PLACES:
        raise _too_large(f"it has more than {MOST_PLACES} brackets and commas", has_value=has_value)


def _too_large(why: str, *, has_value: bool) -> ConstraintFailure:
    message = f"is too large to be judged: {why}"
    code, stage = Code.CONSTRAINT_GRAMMAR_REJECTED, Stage.GRAMMAR
    if has_value:
        code, stage = Code.CONSTRAINT_JSON_INVALID, Stage.EXTRACT
    violations = [{"path": "$", "message": message}]
    return ConstraintFailure(code, f"the answer {message}", {"stage": stage.value, "violations": violations})


def _produced(text: str, value: JsonValue, result: ValidationResult) -> Produced:
    share = 1.0 if result.valid else 0.0
    return Produced(text, value, result, share, ConfidenceSource.VALIDATION)


def _grammar(text: str) -> Pausing[Grammar]:
    """Raises: ConfigurationFailure (CONFIG_GRAMMAR_NOT_FOUND, CONFIG_GRAMMAR_INVALID)."""
    if not is_grammar(text):
        message = f"{_GRAMMAR_FIELD}: no grammar has that name"
        raise ConfigurationFailure(Code.CONFIG_GRAMMAR_NOT_FOUND, message, {"field": _GRAMMAR_FIELD})
    try:
        return (yield from known_grammar(text))
    except GrammarError as fault:
        details = {"field": _GRAMMAR_FIELD, **fault.details}
        raise ConfigurationFailure(fault.code, f"{_GRAMMAR_FIELD}: {fault.message}", details) from fault
