"""Validated answers: checks an answer against its contract and asks again while it is invalid.

An answer that keeps its format and its rules may be judged by a model, in a side question. If the judge rejects it, the
model that answered learns why, as it does of a broken rule. If the judgement cannot be read, that is not the fault of
the model that answered, so it is not asked again.
"""

from collections.abc import Awaitable, Callable

from portico.capabilities.answer_contract import AnswerContract, ValidatedAnswer
from portico.capabilities.prompting.definition import PromptId
from portico.capabilities.prompting.prompt_call import Asked, Prompt, PromptCall
from portico.capabilities.prompting.prompts.assessment import AnswerJudgementInput, AnswerJudgementOutput
from portico.domain.contract.rules import AnswerContent
from portico.domain.failures import ConstraintFailure
from portico.domain.journal.events import ConstraintRepaired, ValidationEnd
from portico.domain.lifecycle import State
from portico.domain.pattern_result import PatternResult
from portico.orchestration.execution.branch_settings import BranchSettings
from portico.orchestration.execution.context import RunContext

AnswerSource = Callable[[Asked], Awaitable[str | PatternResult]]
"""Asks a model this and returns its answer, or the result that ends the pattern without one."""


async def answer_until_valid(
    context: RunContext, contract: AnswerContract, answer: AnswerSource, *, asked: Asked, limit: int
) -> PatternResult:
    """Return the first valid answer among `limit` attempts; from the second on, the model learns what was wrong.

    Unless the context is strict, an answer of the last attempt that has its format is returned even if it is invalid.
    Raises: what `answer` raises; as `validate_answer`; ConstraintFailure or ValidationFailure of the last attempt.
    """
    attempt = 1
    while True:
        text = await answer(asked)
        if isinstance(text, PatternResult):
            return text
        context.transition_to(State.VALIDATE, "output_ready")
        validated = await validate_answer(context, contract, text, attempt)
        if validated.failure is None or validated.is_unjudged or attempt == limit:
            return validated.result_after_last_attempt(strict=context.settings.is_strict)
        context.announce_retry(validated.failure)
        asked, attempt = Prompt.of_violations(list(validated.violations)), attempt + 1


async def compiled_contract(context: RunContext) -> AnswerContract:
    """Return the contract of the output in force, compiled if it is small and plain; a worker compiles any other.

    Raises: ConfigurationFailure, RequestFailure.
    """
    contract = AnswerContract(context.settings.output)
    if contract.size.compiles_quickly:
        contract.compile()
    elif contract.size.is_plain:
        await context.compute(contract.compile)
    return contract


async def validate_answer(
    context: RunContext,
    contract: AnswerContract,
    answer: str | AnswerContent,
    attempt: int,
    *,
    validated: ValidatedAnswer | None = None,
    set_partial_result: Callable[[PatternResult], None] | None = None,
) -> ValidatedAnswer:
    """Return the answer validated, if it is not yet, and judged. One that is being judged is made the partial result.

    So is an invalid one, without its value unless rejected answers are shown.

    Raises: InferenceFailure if no judge could be asked.
    """
    set_partial_result = set_partial_result or context.set_partial_result
    validated = validated or await context.validate(contract, answer, attempt)
    if validated.validation.repairs:
        repairs = tuple(validated.validation.repairs)
        context.emit(ConstraintRepaired(attempt, repairs, context.settings.replica))
    if validated.failure is None and context.settings.output.semantic:
        set_partial_result(validated.without_judgement().pattern_result)
        validated = await _judge(context, validated)
    if validated.failure is not None:
        result = validated.pattern_result
        set_partial_result(result.without_value() if context.settings.is_strict else result)
    _emit_validation(context, validated)
    return validated


async def _judge(context: RunContext, validated: ValidatedAnswer) -> ValidatedAnswer:
    try:
        judgement = await context.ask(_judge_question(context.settings, validated.pattern_result))
    except ConstraintFailure as unreadable:
        unjudged = validated.without_judgement()
        assert unjudged.failure is not None  # noqa: S101 - an answer without a judgement has failed
        unjudged.failure.__cause__ = unreadable
        return unjudged
    return validated.with_judgement(judgement)


def _judge_question(settings: BranchSettings, result: PatternResult) -> PromptCall[AnswerJudgementOutput]:
    answer = result.content if result.structured_output is None else result.structured_output
    fields = {"request": settings.last_user_text, "answer": answer}
    if isinstance(settings.output.semantic, str):
        fields["intent"] = settings.output.semantic
    return PromptCall(
        PromptId.ANSWER_JUDGEMENT_USER, AnswerJudgementInput.model_validate(fields), AnswerJudgementOutput
    )


def _emit_validation(context: RunContext, validated: ValidatedAnswer) -> None:
    result, replica = validated.validation, context.settings.replica
    context.emit(ValidationEnd(result.attempts, result.valid, tuple(result.errors), tuple(result.warnings), replica))
