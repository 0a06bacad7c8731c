"""SpecializedLoop, the pattern of mode `structured`: an answer that keeps its output contract, or a failure.

With `tools` it has two phases: first the agent loop gathers what it needs, then the model is asked for the answer in
its form and is offered no tools. An answer that will not do is told what is wrong with it, and the model tries again.
"""

from app.capabilities.contracts import Contract, Judged
from app.capabilities.prompting.definition import PromptId, PromptInput
from app.capabilities.prompting.prompts.constraint import StructuredAnswerInput, StructuredViolationsInput
from app.capabilities.prompting.registry import default_registry
from app.domain.events import ConstraintRepaired, ValidationEnd
from app.domain.lifecycle import State
from app.domain.messages import Message
from app.domain.produced import Produced
from app.orchestration.patterns.agent_loop import agent_loop
from app.orchestration.run import Run

VERSION = 1
"""Raised by hand with every change of effects or their order; golden journals guard it."""
TEMPERATURE = 0.3


async def specialized_loop(run: Run, attempts: int | None = None) -> Produced:
    """The answer that keeps the request's contract, within `attempts`, else those in force.

    Raises: InferenceFailure; ConstraintFailure or ValidationFailure of the last attempt, whose answer is the draft.
    """
    most = run.bounds.attempts if attempts is None else attempts
    contract = await run.work(Contract.making(run.output))
    added = run.messages
    if run.tools:
        await agent_loop(run)
        added = (_user(PromptId.STRUCTURED_ANSWER_USER, StructuredAnswerInput()),)
    if run.hints.temperature is None:
        run.hints = run.hints.model_copy(update={"temperature": TEMPERATURE})
    attempt = 1
    while True:
        reply = await run.infer(added, contract.form, tools=False)
        run.enter(State.VALIDATE, "output_ready")
        judged = await run.work(contract.judging(reply.text, attempt))
        _tell(run, judged, attempt)
        if judged.failure is None:
            return judged.produced
        run.draft(judged.produced)
        if attempt == most:
            raise judged.failure
        run.enter(State.EXECUTE, judged.failure.code.lower())
        added = (_user(PromptId.STRUCTURED_VIOLATIONS_USER, StructuredViolationsInput.of(judged.violations)),)
        attempt += 1


def _tell(run: Run, judged: Judged, attempt: int) -> None:
    result = judged.produced.validation
    if result is None:
        return
    if result.repairs:
        run.emit(ConstraintRepaired(attempt, tuple(result.repairs)))
    run.emit(ValidationEnd(attempt, result.valid, tuple(result.errors), tuple(result.warnings)))


def _user(prompt_id: PromptId, told: PromptInput) -> Message:
    return Message(role="user", content=default_registry().get_prompt(prompt_id, told))
