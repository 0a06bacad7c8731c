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

from app.capabilities.contracts import LARGE_CHARACTERS, Contract, is_large
from app.capabilities.reranking import MOST_CHARACTERS, rerank
from app.capabilities.validation import Answer
from app.domain.boundary import NamedTool, OutputContract, PlanStep, RedundancyOptions
from app.domain.messages import Message
from app.domain.plan import StepType, contract, keys, mismatch
from app.domain.steps import Ballot, Calling, Conversation, Ranking, Work
from app.orchestration.patterns.agent_loop import agent_loop
from app.orchestration.patterns.judging import judged
from app.orchestration.patterns.redundant_loop import redundant_loop
from app.orchestration.patterns.specialized_loop import specialized_loop
from app.orchestration.run import Run

StepPattern: TypeAlias = Callable[[Run, PlanStep, Work], Awaitable[JsonValue]]
"""What a type of step does: given the step and what it works on, it comes to an output, or raises a Failure."""
_VOTE: Final = frozenset({"n", "voting", "quorum", "min_confidence"})


async def infer(run: Run, step: PlanStep, work: Work) -> JsonValue:
    """A model's text; its value where a schema is asked for."""
    _ask(run, step, work)
    attempts = keys(step).attempts
    if run.output.schema_ is not None:
        return (await specialized_loop(run, attempts)).structured_output
    answer = await agent_loop(run, attempts)
    return answer if isinstance(answer, str) else answer.content


async def redundant(run: Run, step: PlanStep, work: Work) -> JsonValue:
    """The value that won the vote."""
    _ask(run, step, work)
    said = keys(step).model_dump(include=set(_VOTE), exclude_none=True)
    if isinstance(work, Ballot):
        said |= work.model_dump(include=set(_VOTE), exclude_none=True)
    run.redundancy = RedundancyOptions.model_validate(said)
    if run.output.schema_ is None:
        raise mismatch(step, [{"path": "$", "message": "needs a schema"}])
    if run.redundancy.n > run.bounds.replicas:
        raise mismatch(step, [{"path": "$.n", "message": f"must be at most {run.bounds.replicas}"}])
    if (run.redundancy.quorum or 0) > run.redundancy.n:
        raise mismatch(step, [{"path": "$.quorum", "message": f"must be at most the {run.redundancy.n} replicas"}])
    return (await redundant_loop(run)).structured_output


async def tool(run: Run, step: PlanStep, work: Work) -> JsonValue:
    """The text that the tool returns. Raises: ToolFailure where it returns an error."""
    assert isinstance(work, Calling)  # noqa: S101 - what a tool step works on
    result = await run.call_tool(work.name, work.arguments)
    failure = result.failure()
    if failure is not None:
        raise failure
    return result.content


async def rank(_run: Run, step: PlanStep, work: Work) -> JsonValue:
    """The candidates, best first."""
    assert isinstance(work, Ranking)  # noqa: S101 - what a rerank step works on
    said, texts = keys(step), [each if isinstance(each, str) else each.content for each in work.candidates]
    if len(work.query) + sum(map(len, texts)) > MOST_CHARACTERS:
        raise mismatch(step, [{"path": "$", "message": f"must be at most {MOST_CHARACTERS} characters"}])
    top_k = said.top_k if work.top_k is None else work.top_k
    min_score = said.min_score if work.min_score is None else work.min_score
    best = [work.candidates[index] for index in rerank(work.query, texts, top_k=top_k, min_score=min_score)]
    return [each if isinstance(each, str) else each.model_dump() for each in best]


async def validate(run: Run, step: PlanStep, work: Work) -> JsonValue:
    """The value itself. Raises: ConstraintFailure, ValidationFailure where it does not keep its form or its rules."""
    assert not isinstance(work, BaseModel)  # noqa: S101 - what a validate step works on
    run.output = contract(step, work) or OutputContract()
    found = await judged(run, await run.work(Contract.making(run.output)), as_answer(work), 1)
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


def as_answer(value: JsonValue) -> Answer:
    """The value as rules and schemas judge it: what it says as a text is itself, or its JSON."""
    return Answer(value if isinstance(value, str) else orjson.dumps(value).decode(), value)


def _ask(run: Run, step: PlanStep, work: Work) -> None:
    """Puts on the door what the step asks, behind what the system says, and the tools and the contract it has."""
    asked = work if isinstance(work, Conversation) else Conversation(messages=[_said(run, str(work))])
    if step.input is None and is_large(OutputContract.model_validate({"schema": asked.schema_})):
        raise mismatch(step, [{"path": "$.schema", "message": f"must be at most {LARGE_CHARACTERS} characters"}])
    system = takewhile(lambda message: message.role == "system", run.messages)
    run.messages, run.output = (*system, *asked.messages), contract(step, work) or OutputContract()
    named = keys(step).tools if asked.tools is None else asked.tools
    run.tools = [name for name in (run.named if named is None else named) or () if run.may_call(name)]
    choice = run.hints.tool_choice
    if not run.tools or (isinstance(choice, NamedTool) and choice.name not in run.tools):
        run.hints = run.hints.model_copy(update={"tool_choice": None})


def _said(run: Run, text: str) -> Message:
    """The text as a user says it: with its images where it is the request's own last message."""
    last = next((message for message in reversed(run.messages) if message.role == "user"), None)
    return last if last is not None and last.text == text else Message(role="user", content=text)
