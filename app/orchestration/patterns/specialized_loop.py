"""SpecializedLoop, the pattern of mode `structured`: an answer that keeps its output contract, or a failure.

With `tools` it has two phases: first the model talks and gathers what it needs, then it is asked for the answer in
its form and is offered no tools. An answer that will not do is told what is wrong with it, and the model tries again.
"""

from collections.abc import Collection, Sequence

from app.capabilities.prompting.definition import PromptId
from app.capabilities.prompting.prompts.output_format import StructuredAnswerInput
from app.capabilities.prompting.registry import default_registry
from app.domain.contract.messages import Message
from app.domain.pattern_result import PatternResult
from app.orchestration.execution.context import RunContext
from app.orchestration.execution.pattern import BoundInputs, Pattern, UpperBound
from app.orchestration.patterns.agent_loop import ToolLoop
from app.orchestration.patterns.validated_answer import answer_until_valid, compiled_contract

VERSION = 1
"""Raised by hand with every change of effects or their order; golden journals guard it."""
TEMPERATURE = 0.3


async def specialized_loop(run: RunContext, attempts: int | None = None) -> PatternResult:
    """The answer that keeps the request's contract, within `attempts`, else those in force.

    Raises: as `Talk.answer`; ConstraintFailure or ValidationFailure of the last attempt, whose answer is the draft.
    """
    contract = await compiled_contract(run)
    first = run.messages
    if run.tools:
        await ToolLoop(run).answer(first)
        asked = default_registry().get_prompt(PromptId.STRUCTURED_ANSWER_USER, StructuredAnswerInput())
        first = (Message(role="user", content=asked),)
    if run.hints.temperature is None:
        run.hints = run.hints.model_copy(update={"temperature": TEMPERATURE})

    async def answer(added: Sequence[Message]) -> str:
        return (await run.infer(added, contract.response_format, tools=False)).text

    most = run.limits.attempts if attempts is None else attempts
    return await answer_until_valid(run, contract, answer, first=first, most=most)


def answers_bound(
    inputs: BoundInputs, tools: Collection[str], attempts: int, *, judgements: int = 0, model: str | None = None
) -> UpperBound:
    """Return the bound of the tool rounds, if there are tools, and of the answers of all attempts."""
    gathering = inputs.limits.tool_rounds + 1 if tools else 0
    return inputs.inferences(gathering + attempts * (1 + judgements), model).then(inputs.tool_rounds(tools))


def upper_bound(inputs: BoundInputs) -> UpperBound:
    """Return the bound of a structured answer."""
    attempts = inputs.limits.attempts
    answers = answers_bound(inputs, inputs.tools, attempts, judgements=inputs.judgements)
    return answers.then(inputs.transitions(attempts))


PATTERN = Pattern(specialized_loop, VERSION, upper_bound, required_output=("schema", "grammar"))
