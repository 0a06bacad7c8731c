"""What the steps of a plan do, a row for each type; any pattern can be one.

A step works on a door of its own. What stands on that door is what it works with: its conversation, its tools, the
contract that its answer has to keep. So a pattern that runs as a step does what it always does.
"""

from collections.abc import Awaitable, Callable, Mapping
from itertools import takewhile
from types import MappingProxyType
from typing import Final, TypeAlias

import orjson
from pydantic import BaseModel, JsonValue

from app.capabilities.answer_contract import LARGE_CONTRACT_CHARACTERS, is_large_contract
from app.capabilities.models.reranking import MAX_CHARACTERS, rerank
from app.capabilities.output.rules.rule_set import AnswerContent
from app.domain.contract.messages import Message
from app.domain.contract.request import NamedTool, OutputContract, PlanStep, RedundancyOptions
from app.domain.plan.plan import StepType, output_contract_of, parse_options, step_mismatch
from app.domain.plan.steps import InferInput, RedundantInput, RerankInput, StepInput, ToolInput
from app.orchestration.execution.context import RunContext
from app.orchestration.patterns.agent_loop import agent_loop
from app.orchestration.patterns.redundant_loop import redundant_loop
from app.orchestration.patterns.specialized_loop import specialized_loop
from app.orchestration.patterns.validated_answer import compiled_contract, validate_answer

StepPattern: TypeAlias = Callable[[RunContext, PlanStep, StepInput], Awaitable[JsonValue]]
"""What a type of step does: given the step and what it works on, it comes to an output, or raises a Failure."""
_VOTE: Final = frozenset({"n", "voting", "quorum", "min_confidence"})


async def infer(run: RunContext, step: PlanStep, work: StepInput) -> JsonValue:
    """A model's text; its value where a schema is asked for."""
    _ask(run, step, work)
    attempts = parse_options(step).attempts
    if run.output.schema_ is not None:
        return (await specialized_loop(run, attempts)).structured_output
    answer = await agent_loop(run, attempts)
    return answer if isinstance(answer, str) else answer.content


async def redundant(run: RunContext, step: PlanStep, work: StepInput) -> JsonValue:
    """The value that won the vote."""
    _ask(run, step, work)
    said = parse_options(step).model_dump(include=set(_VOTE), exclude_none=True)
    if isinstance(work, RedundantInput):
        said |= work.model_dump(include=set(_VOTE), exclude_none=True)
    run.redundancy = RedundancyOptions.model_validate(said)
    if run.output.schema_ is None:
        raise step_mismatch(step, [{"path": "$", "message": "needs a schema"}])
    if run.redundancy.n > run.limits.replicas:
        raise step_mismatch(step, [{"path": "$.n", "message": f"must be at most {run.limits.replicas}"}])
    if (run.redundancy.quorum or 0) > run.redundancy.n:
        raise step_mismatch(step, [{"path": "$.quorum", "message": f"must be at most the {run.redundancy.n} replicas"}])
    return (await redundant_loop(run)).structured_output


async def tool(run: RunContext, step: PlanStep, work: StepInput) -> JsonValue:
    """The text that the tool returns. Raises: ToolFailure where it returns an error."""
    assert isinstance(work, ToolInput)  # noqa: S101 - what a tool step works on
    result = await run.call_tool(work.name, work.arguments)
    failure = result.failure()
    if failure is not None:
        raise failure
    return result.content


async def rank(_run: RunContext, step: PlanStep, work: StepInput) -> JsonValue:
    """The candidates, best first."""
    assert isinstance(work, RerankInput)  # noqa: S101 - what a rerank step works on
    said, texts = parse_options(step), [each if isinstance(each, str) else each.content for each in work.candidates]
    if len(work.query) + sum(map(len, texts)) > MAX_CHARACTERS:
        raise step_mismatch(step, [{"path": "$", "message": f"must be at most {MAX_CHARACTERS} characters"}])
    top_k = said.top_k if work.top_k is None else work.top_k
    min_score = said.min_score if work.min_score is None else work.min_score
    best = [work.candidates[index] for index in rerank(work.query, texts, top_k=top_k, min_score=min_score)]
    return [each if isinstance(each, str) else each.model_dump() for each in best]


async def validate(run: RunContext, step: PlanStep, work: StepInput) -> JsonValue:
    """The value itself. Raises: ConstraintFailure, ValidationFailure where it does not keep its form or its rules."""
    assert not isinstance(work, BaseModel)  # noqa: S101 - what a validate step works on
    run.output = output_contract_of(step, work) or OutputContract()
    found = await validate_answer(run, await compiled_contract(run), as_answer(work), 1)
    if found.failure is not None:
        raise found.failure
    return work


STEP_PATTERNS: Mapping[str, StepPattern] = MappingProxyType(
    {
        StepType.INFER: infer,
        StepType.TOOL: tool,
        StepType.RERANK: rank,
        StepType.VALIDATE: validate,
        StepType.REDUNDANT: redundant,
    }
)
"""What runs a step of each type."""


def as_answer(value: JsonValue) -> AnswerContent:
    """The value as rules and schemas judge it: what it says as a text is itself, or its JSON."""
    return AnswerContent(value if isinstance(value, str) else orjson.dumps(value).decode(), value)


def _ask(run: RunContext, step: PlanStep, work: StepInput) -> None:
    """Puts on the door what the step asks, behind what the system says, and the tools and the contract it has."""
    asked = work if isinstance(work, InferInput) else InferInput(messages=[_said(run, str(work))])
    if step.input is None and is_large_contract(OutputContract.model_validate({"schema": asked.schema_})):
        raise step_mismatch(
            step, [{"path": "$.schema", "message": f"must be at most {LARGE_CONTRACT_CHARACTERS} characters"}]
        )
    system = takewhile(lambda message: message.role == "system", run.messages)
    run.messages, run.output = (*system, *asked.messages), output_contract_of(step, work) or OutputContract()
    named = parse_options(step).tools if asked.tools is None else asked.tools
    run.tools = [name for name in (run.allowed_tools if named is None else named) or () if run.may_call_tool(name)]
    choice = run.hints.tool_choice
    if not run.tools or (isinstance(choice, NamedTool) and choice.name not in run.tools):
        run.hints = run.hints.model_copy(update={"tool_choice": None})


def _said(run: RunContext, text: str) -> Message:
    """The text as a user says it: with its images where it is the request's own last message."""
    last = next((message for message in reversed(run.messages) if message.role == "user"), None)
    return last if last is not None and last.text == text else Message(role="user", content=text)
