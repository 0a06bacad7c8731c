"""Judges answers by form, rules and a judge that is a model, and asks again while an answer will not do.

The judge is asked aside, of what keeps its form and its rules only. It may be wrong in two ways: a refusal is told to
the model that answered, as a broken rule is; a judgement that cannot be read is not, for that model is not at fault.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from app.capabilities.answer_contract import AnswerContract, ValidatedAnswer, compiles_quickly
from app.capabilities.output.rules.rule_set import AnswerContent
from app.capabilities.prompting.definition import PromptId
from app.capabilities.prompting.prompt_call import PromptCall
from app.capabilities.prompting.prompts.assessment import SemanticValidationInput, SemanticValidationOutput
from app.capabilities.prompting.prompts.output_format import StructuredViolationsInput
from app.capabilities.prompting.registry import default_registry
from app.domain.contract.messages import Message
from app.domain.failures import ConstraintFailure
from app.domain.journal.events import ConstraintRepaired, ValidationEnd
from app.domain.lifecycle import State
from app.domain.pattern_result import PatternResult
from app.orchestration.execution.context import RunContext

AnswerSource = Callable[[Sequence[Message]], Awaitable[str]]
"""Tells a model these messages and returns its answer."""


async def answer_until_valid(
    run: RunContext, contract: AnswerContract, answer: AnswerSource, *, first: Sequence[Message], most: int
) -> PatternResult:
    """The answer that keeps the contract, within so many attempts; the first is told `first`, others what was wrong.

    Raises: what answering raises; Failure as `judged`; ConstraintFailure or ValidationFailure of the last attempt,
    whose answer is the draft.
    """
    added, attempt = first, 1
    while True:
        text = await answer(added)
        run.transition_to(State.VALIDATE, "output_ready")
        found = await validate_answer(run, contract, text, attempt)
        if found.failure is None:
            return found.pattern_result
        if attempt == most:
            raise found.failure
        run.announce_retry(found.failure)
        run.reject_answer()
        told = StructuredViolationsInput.from_pairs(found.violations)
        text = default_registry().get_prompt(PromptId.STRUCTURED_VIOLATIONS_USER, told)
        added, attempt = (Message(role="user", content=text),), attempt + 1


async def compiled_contract(run: RunContext) -> AnswerContract:
    """Return the compiled contract of the output in force. Raises: ConfigurationFailure, RequestFailure."""
    compile_output = partial(AnswerContract.compile, run.output)
    return compile_output() if compiles_quickly(run.output) else await run.compute(compile_output)


async def validate_answer(
    run: RunContext,
    contract: AnswerContract,
    answer: str | AnswerContent,
    attempt: int,
    *,
    draft: Callable[[PatternResult], None] | None = None,
) -> ValidatedAnswer:
    """The answer as it was found. One that will not do, or that its judge has yet to speak of, is made the draft.

    Raises: ValidationFailure (VALIDATION_SEMANTIC_FAILED) where no judgement could be read; InferenceFailure where
    no judge could be asked.
    """
    draft = draft or run.set_partial_result
    found = contract.validate_quickly(answer, attempt)
    if found is None:
        found = await run.compute(partial(contract.validate, answer, attempt))
    if found.validation.repairs:
        run.emit(ConstraintRepaired(attempt, tuple(found.validation.repairs), run.replica))
    if found.failure is None and run.output.semantic:
        draft(found.without_judgement().pattern_result)
        found = await _assessed(run, found)
    if found.failure is not None:
        draft(found.pattern_result)
    _tell(run, found)
    return found


async def _assessed(run: RunContext, found: ValidatedAnswer) -> ValidatedAnswer:
    try:
        judgement = await run.ask(_question(run, found.pattern_result))
    except ConstraintFailure as unreadable:
        unjudged = found.without_judgement()
        _tell(run, unjudged)
        assert unjudged.failure is not None  # noqa: S101 - what is not judged has failed
        raise unjudged.failure from unreadable
    return found.with_judgement(judgement, strict=run.output.strict_validation)


def _question(run: RunContext, produced: PatternResult) -> PromptCall[SemanticValidationOutput]:
    asked = next((message.text for message in reversed(run.messages) if message.role == "user"), "")
    answer = produced.content if produced.structured_output is None else produced.structured_output
    told = {"request": asked, "answer": answer}
    if isinstance(run.output.semantic, str):
        told["intent"] = run.output.semantic
    return PromptCall(
        PromptId.VALIDATION_SEMANTIC_USER, SemanticValidationInput.model_validate(told), SemanticValidationOutput
    )


def _tell(run: RunContext, found: ValidatedAnswer) -> None:
    result = found.validation
    run.emit(ValidationEnd(result.attempts, result.valid, tuple(result.errors), tuple(result.warnings), run.replica))
