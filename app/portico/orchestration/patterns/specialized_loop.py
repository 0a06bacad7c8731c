"""SpecializedLoop, the pattern of mode `structured`: an answer that keeps its output contract, or a failure.

With tools it has two phases: first the model talks and gathers what it needs, then it is asked for the answer in its
response format and is offered no tools. The model learns what is wrong with an invalid answer and tries again.
"""

from collections.abc import Collection

from portico.capabilities.prompting.definition import EmptyInput, PromptId
from portico.capabilities.prompting.prompt_call import Asked, Prompt
from portico.domain.lifecycle import State
from portico.domain.pattern_result import CLIENT_CALLS, PatternResult
from portico.domain.value import replace
from portico.orchestration.execution.context import RunContext
from portico.orchestration.execution.pattern import BoundInputs, Pattern, UpperBound
from portico.orchestration.patterns.agent_loop import ToolLoop
from portico.orchestration.patterns.validated_answer import answer_until_valid, compiled_contract

VERSION = 1
"""Raised by hand with every change of effects or their order; golden journals guard it."""
TEMPERATURE = 0.3


async def specialized_loop(
    context: RunContext, attempts: int | None = None, *, asked: Asked | None = None
) -> PatternResult:
    """Return the answer that keeps the output contract, within `attempts` or the limit in force.

    Calls that are left to the client are a result without validation. The model is asked the messages of the settings,
    or what is given instead.

    Raises: as `ToolLoop.answer`; ConstraintFailure or ValidationFailure of the last attempt, whose answer is the
    partial result.
    """
    contract = await compiled_contract(context)
    asked = context.settings.messages if asked is None else asked
    if context.settings.tools or context.settings.client_tools:
        gathered = await ToolLoop(context).answer(asked)
        if isinstance(gathered, PatternResult):
            context.transition_to(State.VALIDATE, CLIENT_CALLS)
            return gathered
        asked = Prompt(PromptId.STRUCTURED_ANSWER_USER, EmptyInput())
    settings = context.settings
    if settings.hints.temperature is None:
        hints = settings.hints.model_copy(update={"temperature": TEMPERATURE})
        context = context.with_settings(replace(settings, hints=hints))

    async def answer(asked: Asked) -> str:
        return (await context.infer(asked, contract.response_format, tools=False)).text

    limit = context.limits.attempts if attempts is None else attempts
    return await answer_until_valid(context, contract, answer, asked=asked, limit=limit)


def answers_bound(
    inputs: BoundInputs, tools: Collection[str], attempts: int, *, judgements: int = 0, model: str | None = None
) -> UpperBound:
    """Return the bound of the tool rounds, if there are tools, and of the answers of all attempts."""
    gathering = inputs.limits.tool_rounds + 1 if tools or inputs.request.client_tools else 0
    return inputs.inferences(gathering + attempts * (1 + judgements), model).then(inputs.tool_rounds(tools))


def upper_bound(inputs: BoundInputs) -> UpperBound:
    """Return the bound of a structured answer."""
    attempts = inputs.limits.attempts
    answers = answers_bound(inputs, inputs.tools, attempts, judgements=inputs.judgements)
    return answers.then(inputs.transitions(attempts))


PATTERN = Pattern(
    specialized_loop, VERSION, upper_bound, required_output=("schema", "grammar"), takes_client_tools=True
)
