"""Judges answers by form, rules and a judge that is a model, and asks again while an answer will not do.

The judge is asked aside, of what keeps its form and its rules only. It may be wrong in two ways: a refusal is told to
the model that answered, as a broken rule is; a judgement that cannot be read is not, for that model is not at fault.
"""

from collections.abc import Awaitable, Callable, Sequence

from app.capabilities.contracts import Contract, Judged
from app.capabilities.prompting.ask import Prompted
from app.capabilities.prompting.definition import PromptId
from app.capabilities.prompting.prompts.assessment import SemanticValidationInput, SemanticValidationOutput
from app.capabilities.prompting.prompts.constraint import StructuredViolationsInput
from app.capabilities.prompting.registry import default_registry
from app.capabilities.validation import Answer
from app.domain.events import ConstraintRepaired, ValidationEnd
from app.domain.failures import ConstraintFailure
from app.domain.lifecycle import State
from app.domain.messages import Message
from app.domain.produced import Produced
from app.orchestration.run import Run

Answering = Callable[[Sequence[Message]], Awaitable[str]]
"""Tells a model these messages and returns its answer."""


async def attempted(
    run: Run, contract: Contract, answer: Answering, *, first: Sequence[Message], most: int
) -> Produced:
    """The answer that keeps the contract, within so many attempts; the first is told `first`, others what was wrong.

    Raises: what answering raises; Failure as `judged`; ConstraintFailure or ValidationFailure of the last attempt,
    whose answer is the draft.
    """
    added, attempt = first, 1
    while True:
        text = await answer(added)
        run.enter(State.VALIDATE, "output_ready")
        found = await judged(run, contract, text, attempt)
        if found.failure is None:
            return found.produced
        if attempt == most:
            raise found.failure
        run.retry(found.failure)
        run.reject()
        told = StructuredViolationsInput.of(found.violations)
        text = default_registry().get_prompt(PromptId.STRUCTURED_VIOLATIONS_USER, told)
        added, attempt = (Message(role="user", content=text),), attempt + 1


async def judged(
    run: Run, contract: Contract, answer: str | Answer, attempt: int, *, draft: Callable[[Produced], None] | None = None
) -> Judged:
    """The answer as it was found. One that will not do, or that its judge has yet to speak of, is made the draft.

    Raises: ValidationFailure (VALIDATION_SEMANTIC_FAILED) where no judgement could be read; InferenceFailure where
    no judge could be asked.
    """
    found, draft = await run.work(contract.judging(answer, attempt)), draft or run.draft
    if found.result.repairs:
        run.emit(ConstraintRepaired(attempt, tuple(found.result.repairs), run.replica))
    if found.failure is None and run.output.semantic:
        draft(found.unjudged().produced)
        found = await _assessed(run, found)
    if found.failure is not None:
        draft(found.produced)
    _tell(run, found)
    return found


async def _assessed(run: Run, found: Judged) -> Judged:
    try:
        judgement = await run.ask(_question(run, found.produced))
    except ConstraintFailure as unreadable:
        unjudged = found.unjudged()
        _tell(run, unjudged)
        assert unjudged.failure is not None  # noqa: S101 - what is not judged has failed
        raise unjudged.failure from unreadable
    return found.assessed(judgement, strict=run.output.strict_validation)


def _question(run: Run, produced: Produced) -> Prompted[SemanticValidationOutput]:
    asked = next((message.text for message in reversed(run.messages) if message.role == "user"), "")
    answer = produced.content if produced.structured_output is None else produced.structured_output
    told = {"request": asked, "answer": answer}
    if isinstance(run.output.semantic, str):
        told["intent"] = run.output.semantic
    return Prompted(
        PromptId.VALIDATION_SEMANTIC_USER, SemanticValidationInput.model_validate(told), SemanticValidationOutput
    )


def _tell(run: Run, found: Judged) -> None:
    result = found.result
    run.emit(ValidationEnd(result.attempts, result.valid, tuple(result.errors), tuple(result.warnings), run.replica))
