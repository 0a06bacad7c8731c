"""AgentLoop, the pattern of mode `chat`: infer, run the tools asked for, repeat until text.

Where the request has rules or a judge for that text, it is judged, and what is wrong with it is told to the model.
"""

from collections.abc import Collection, Iterator, Sequence

from app.capabilities.models.catalogue import EngineCatalogue
from app.domain.contract.messages import Message
from app.domain.contract.request import SystemRequest
from app.domain.failures import Code, OrchestrationFailure
from app.domain.journal.header import EffectiveLimits
from app.domain.pattern_result import PatternResult
from app.orchestration.execution.context import RunContext
from app.orchestration.execution.pattern import BoundInputs, FieldError, Pattern, UpperBound
from app.orchestration.patterns.validated_answer import answer_until_valid, compiled_contract

VERSION = 1
"""Raised by hand with every change of effects or their order; golden journals guard it."""


async def agent_loop(run: RunContext, attempts: int | None = None) -> PatternResult | str:
    """The model's text, within `attempts`, else those in force. `tool_rounds` is for all of them together.

    Raises: as `Talk.answer`; ValidationFailure of the last attempt, whose answer is the draft.
    """
    talk = ToolLoop(run)
    if not run.output.rules and not run.output.semantic:
        return await talk.answer(run.messages)
    most = run.limits.attempts if attempts is None else attempts
    contract = await compiled_contract(run)
    return await answer_until_valid(run, contract, talk.answer, first=run.messages, most=most)


class ToolLoop:
    """A conversation in which the model may call tools."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._rounds = run.limits.tool_rounds

    async def answer(self, added: Sequence[Message]) -> str:
        """The text that the model comes to when it is told these messages.

        Raises: InferenceFailure; OrchestrationFailure (ORCHESTRATION_ITERATION_LIMIT) when it asks for one more round
        than all answers together may take.
        """
        reply = await self._run.infer(added)
        while reply.tool_calls:
            if self._rounds == 0:
                raise OrchestrationFailure(
                    Code.ORCHESTRATION_ITERATION_LIMIT,
                    "the model asked for another tool round",
                    {"tool_rounds": self._run.limits.tool_rounds},
                )
            self._rounds -= 1
            results = await self._run.call_tools(reply.tool_calls)
            reply = await self._run.infer([result.message() for result in results])
        return reply.text


def admit(request: SystemRequest, _limits: EffectiveLimits, _catalogue: EngineCatalogue) -> Iterator[FieldError]:
    """Yield the parts of the output contract that do not apply to a plain text."""
    output = request.output
    for name, value in (("schema", output.schema_), ("grammar", output.grammar)):
        if value is not None:
            yield FieldError(f"output.{name}", "is enforced in mode structured, not in mode chat")
    if not output.repair_allowed:
        yield FieldError("output.repair_allowed", "has no effect in mode chat")
    for index, rule in enumerate(output.rules):
        if not isinstance(rule, str) and rule.path is not None:
            yield FieldError(f"output.rules.{index}.path", "needs mode structured: in mode chat the answer is a text")


def text_bound(inputs: BoundInputs, tools: Collection[str], attempts: int, judgements: int = 0) -> UpperBound:
    """Return the bound of all tool rounds and of the texts of all attempts, with so many judgements of each."""
    count = inputs.limits.tool_rounds + attempts * (1 + judgements)
    return inputs.inferences(count).then(inputs.tool_rounds(tools))


def upper_bound(inputs: BoundInputs) -> UpperBound:
    """Return the bound of a chat; without rules and a judge there is one attempt and no validation."""
    output, attempts = inputs.request.output, inputs.limits.attempts
    validates = bool(output.rules or output.semantic)
    texts = text_bound(inputs, inputs.tools, attempts if validates else 1, inputs.judgements)
    return texts.then(inputs.transitions(attempts, validates=validates))


PATTERN = Pattern(agent_loop, VERSION, upper_bound, admit=admit, offers_all_tools=True)
