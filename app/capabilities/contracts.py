"""An output contract made ready: what is asked for, and whether an answer keeps it."""

from dataclasses import asdict, dataclass

from pydantic import JsonValue

from app.capabilities.constraint.enforce import enforcing
from app.capabilities.constraint.grammar import Grammar, is_grammar, known_grammar
from app.capabilities.constraint.schema import Schema, compiling
from app.capabilities.validation import Answer, RuleBook, Rules
from app.domain.boundary import ConfidenceSource, OutputContract, ValidationResult
from app.domain.effects import Form
from app.domain.failures import Code, ConfigurationFailure, ConstraintFailure, Failure
from app.domain.pausing import Pausing, at_once
from app.domain.produced import Produced

_BOOK = RuleBook()
MOST_CHARACTERS = 262_144
"""Of an answer that is judged; a longer one is not looked at."""


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

    def judge(self, text: str, attempt: int) -> Judged:
        """The answer by all stages in their order; the first that fails ends it."""
        return at_once(self.judging(text, attempt))

    def judging(self, text: str, attempt: int) -> Pausing[Judged]:
        """The same as `judge`, with pauses."""
        try:
            _refuse_length(text)
            enforced = yield from enforcing(
                text, schema=self._schema, grammar=self._grammar, repair_allowed=self._output.repair_allowed
            )
        except ConstraintFailure as failure:
            result = ValidationResult(valid=False, errors=failure.details.get("violations", []), attempts=attempt)
            return Judged(_produced(text, None, result), failure)
        answer = Answer(text, enforced.value)
        verdict = yield from self._rules.judging(answer, strict=self._output.strict_validation)
        result = ValidationResult(
            valid=verdict.valid,
            errors=[finding.told() for finding in verdict.errors],
            warnings=[finding.told() for finding in verdict.warnings],
            repairs=[asdict(repair) for repair in enforced.repairs],
            attempts=attempt,
        )
        produced = _produced(text, enforced.value, result)
        return Judged(produced, None if verdict.valid else verdict.failure())


def _refuse_length(text: str) -> None:
    if len(text) > MOST_CHARACTERS:
        message = f"is longer than {MOST_CHARACTERS} characters"
        violations = [{"path": "$", "message": message}]
        raise ConstraintFailure(
            Code.CONSTRAINT_JSON_INVALID, f"the answer {message}", {"stage": "extract", "violations": violations}
        )


def _produced(text: str, value: JsonValue, result: ValidationResult) -> Produced:
    share = 1.0 if result.valid else 0.0
    return Produced(text, value, result, share, ConfidenceSource.VALIDATION)


def _grammar(text: str) -> Pausing[Grammar]:
    """Raises: ConfigurationFailure (CONFIG_GRAMMAR_NOT_FOUND, CONFIG_GRAMMAR_INVALID)."""
    if not is_grammar(text):
        raise ConfigurationFailure(Code.CONFIG_GRAMMAR_NOT_FOUND, "output.grammar: no grammar has that name")
    return (yield from known_grammar(text))
