"""AgentLoop, the pattern of mode `chat`: infer, run the tools that the model asks for, repeat until it answers in text.

If the request has rules or a judge, the text is validated, and the model learns what is wrong with it.
"""

from collections.abc import Collection, Iterator, Sequence

from portico.capabilities.models.catalogue import EngineCatalogue
from portico.capabilities.prompting.prompt_call import Asked
from portico.domain.contract.messages import ToolResult
from portico.domain.contract.request import SystemRequest
from portico.domain.failures import Code, OrchestrationFailure
from portico.domain.journal.header import EffectiveLimits
from portico.domain.model_call import Reply
from portico.domain.pattern_result import PatternResult
from portico.orchestration.execution.context import RunContext, end_round
from portico.orchestration.execution.pattern import BoundInputs, FieldError, Pattern, UpperBound
from portico.orchestration.patterns.validated_answer import answer_until_valid, compiled_contract

VERSION = 1
"""Raised by hand with every change of effects or their order; golden journals guard it."""


async def agent_loop(
    context: RunContext, attempts: int | None = None, *, asked: Asked | None = None
) -> PatternResult | str:
    """Return the model's text, within `attempts` or the limit in force; all attempts share the limit of tool rounds.

    Calls that are left to the client are a result without validation. The model is asked the messages of the settings,
    or what is given instead.

    Raises: as `ToolLoop.answer`; ValidationFailure of the last attempt, whose answer is the partial result.
    """
    tool_loop, output = ToolLoop(context), context.settings.output
    asked = context.settings.messages if asked is None else asked
    if not output.rules and not output.semantic:
        return await tool_loop.answer(asked)
    limit = context.limits.attempts if attempts is None else attempts
    contract = await compiled_contract(context)
    return await answer_until_valid(context, contract, tool_loop.answer, asked=asked, limit=limit)


class ToolLoop:
    """A conversation in which the model may call tools."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._rounds = 0

    async def answer(self, asked: Asked) -> str | PatternResult:
        """Return the text that the model answers to this, or the result that leaves calls to the client.

        Raises: InferenceFailure; OrchestrationFailure (ORCHESTRATION_ITERATION_LIMIT) if the model asks for more tool
        rounds than all answers together may take.
        """
        reply = await self._context.infer(asked)
        while reply.tool_calls:
            most = self._context.limits.tool_rounds
            if self._rounds >= most:
                raise OrchestrationFailure(
                    Code.ORCHESTRATION_ITERATION_LIMIT,
                    "the model asked for another tool round",
                    {"tool_rounds": most},
                )
            self._rounds += 1
            results = await self._context.call_tools(reply.tool_calls)
            if len(results) < len(reply.tool_calls):
                return self._left_to_client(reply, results)
            reply = await self._context.infer([result.message() for result in results])
        return reply.text

    def _left_to_client(self, reply: Reply, results: Sequence[ToolResult]) -> PatternResult:
        """Return the result that ends with this reply; the client is left with the calls that have no result here."""
        end_round(self._context, results)
        ended = {result.call.id for result in results}
        calls = tuple(call for call in reply.tool_calls if call.id not in ended)
        return PatternResult(reply.text or None, client_calls=calls)


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


PATTERN = Pattern(agent_loop, VERSION, upper_bound, admit=admit, offers_all_tools=True, takes_client_tools=True)
