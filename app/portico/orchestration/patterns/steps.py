"""Step patterns: the code that runs each type of plan step; any pattern can be one.

A step runs in a branch of its own, with settings for its conversation, its tools and its output contract. So a pattern
that runs as a step does what it always does.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, TypeAlias

import orjson
from pydantic import BaseModel, JsonValue

from portico.capabilities.answer_contract import LARGE_CONTRACT_CHARACTERS, is_large_contract
from portico.capabilities.models.reranking import MAX_CHARACTERS, rerank
from portico.capabilities.prompting.prompt_call import Prompt
from portico.capabilities.tools.executor import is_cut
from portico.domain import strict_json
from portico.domain.contract.messages import Message, system_prompt
from portico.domain.contract.request import NamedTool, OutputContract, RedundancyOptions
from portico.domain.contract.rules import AnswerContent
from portico.domain.failures import Code, ToolFailure
from portico.domain.journal.outcomes import Retrieved
from portico.domain.plan.parsed_plan import ParsedStep
from portico.domain.plan.plan import arguments_refused, step_mismatch
from portico.domain.plan.steps import (
    InferInput,
    RedundantInput,
    RerankInput,
    RetrieveInput,
    StepInput,
    StepType,
    ToolInput,
)
from portico.domain.value import replace
from portico.orchestration.execution.branch_settings import BranchSettings
from portico.orchestration.execution.context import RunContext, call_step, perform
from portico.orchestration.execution.retrieval.search import Retrieval, RetrievalQuery
from portico.orchestration.patterns.agent_loop import agent_loop
from portico.orchestration.patterns.redundant_loop import redundant_loop
from portico.orchestration.patterns.specialized_loop import specialized_loop
from portico.orchestration.patterns.validated_answer import compiled_contract, validate_answer

StepPattern: TypeAlias = Callable[[RunContext, ParsedStep, StepInput], Awaitable[JsonValue]]
"""Runs a step on its input and returns its output. Raises: Failure."""
_VOTE: Final = frozenset({"n", "voting", "quorum", "min_confidence"})


async def infer(context: RunContext, step: ParsedStep, step_input: StepInput) -> JsonValue:
    """Return a model's text, or its value if the step has a schema."""
    return await infer_as(context, step, step_input)


async def infer_as(
    context: RunContext, step: ParsedStep, step_input: StepInput, prompt: Prompt | None = None
) -> JsonValue:
    """Return a model's text or value; if there is a prompt, it is asked that instead of the input."""
    context = context.with_settings(_inference_settings(context.settings, step, step_input))
    attempts = step.options.attempts
    if context.settings.output.schema_ is not None:
        return (await specialized_loop(context, attempts, asked=prompt)).structured_output
    answer = await agent_loop(context, attempts, asked=prompt)
    return answer if isinstance(answer, str) else answer.content


async def redundant(context: RunContext, step: ParsedStep, step_input: StepInput) -> JsonValue:
    """Return the value that won the vote."""
    options = step.options.model_dump(include=set(_VOTE), exclude_none=True)
    if isinstance(step_input, RedundantInput):
        options |= step_input.model_dump(include=set(_VOTE), exclude_none=True)
    redundancy = RedundancyOptions.model_validate(options)
    settings = replace(_inference_settings(context.settings, step, step_input), redundancy=redundancy)
    if settings.output.schema_ is None:
        raise step_mismatch(step, [{"path": "$", "message": "needs a schema"}])
    if redundancy.n > context.limits.replicas:
        raise step_mismatch(step, [{"path": "$.n", "message": f"must be at most {context.limits.replicas}"}])
    if (redundancy.quorum or 0) > redundancy.n:
        raise step_mismatch(step, [{"path": "$.quorum", "message": f"must be at most the {redundancy.n} replicas"}])
    return (await redundant_loop(context.with_settings(settings))).structured_output


async def tool(context: RunContext, step: ParsedStep, step_input: StepInput) -> JsonValue:
    """Return the text that the tool returns.

    Raises: ToolFailure if it returns an error; OrchestrationFailure if the arguments can never fit it.
    """
    assert isinstance(step_input, ToolInput)  # noqa: S101 - the input of a tool step
    result = await context.call_tool(step_input.name, step_input.arguments)
    if result.violations:
        raise arguments_refused(step, step_input.name, result.violations)
    failure = result.failure()
    if failure is not None:
        raise failure
    return result.content


async def retrieve(context: RunContext, step: ParsedStep, step_input: StepInput) -> JsonValue:
    """Return the chunks of documents that fit the query, best first; none if the search fails."""
    options = step.options
    given = step_input if isinstance(step_input, RetrieveInput) else RetrieveInput(query=str(step_input))
    max_chunks = options.max_chunks if given.max_chunks is None else given.max_chunks
    min_score = options.min_score if given.min_score is None else given.min_score
    query = RetrievalQuery(given.query, max_chunks, min_score)
    found = await perform(context, partial(Retrieval, query=query, chunk_check=context.settings.chunk_check))
    chunks = found.outcome.chunks if isinstance(found.outcome, Retrieved) else ()
    return [{"content": chunk.text, "source": chunk.source, "score": chunk.score} for chunk in chunks]


async def rank(_context: RunContext, step: ParsedStep, step_input: StepInput) -> JsonValue:
    """Return the candidates, best first."""
    assert isinstance(step_input, RerankInput)  # noqa: S101 - the input of a rerank step
    options = step.options
    texts = [each if isinstance(each, str) else each.content for each in step_input.candidates]
    if len(step_input.query) + sum(map(len, texts)) > MAX_CHARACTERS:
        raise step_mismatch(step, [{"path": "$", "message": f"must be at most {MAX_CHARACTERS} characters"}])
    top_k = options.top_k if step_input.top_k is None else step_input.top_k
    min_score = options.min_score if step_input.min_score is None else step_input.min_score
    order = rerank(step_input.query, texts, top_k=top_k, min_score=min_score)
    best = [step_input.candidates[index] for index in order]
    return [each if isinstance(each, str) else each.model_dump() for each in best]


async def validate(context: RunContext, step: ParsedStep, step_input: StepInput) -> JsonValue:
    """Return the value itself. Raises: ConstraintFailure, ValidationFailure if it breaks its format or its rules."""
    assert not isinstance(step_input, BaseModel)  # noqa: S101 - the input of a validate step
    output = step.contract_for(step_input) or OutputContract()
    context = context.with_settings(replace(context.settings, output=output))
    contract = await compiled_contract(context)
    validated = await validate_answer(context, contract, as_answer(step_input), 1)
    if validated.failure is not None:
        raise validated.failure
    return step_input


async def run_module_step(context: RunContext, step: ParsedStep, step_input: StepInput) -> JsonValue:
    """Return the output of the function behind a type of a module.

    Raises: ToolFailure if it fails; OrchestrationFailure if the input or an option does not fit it.
    """
    assert not isinstance(step_input, BaseModel)  # noqa: S101 - the input of a step of such a type
    result = await call_step(context, step.type, {**step.own_options, "input": step_input})
    if result.violations:
        found = [(path.removeprefix("arguments."), message) for path, message in result.violations]
        raise step_mismatch(step, [{"path": f"$.{path}", "message": message} for path, message in found])
    failure = result.failure()
    if failure is not None:
        raise failure
    if is_cut(result.content):
        message = "the output of the step is longer than limits.tool_result_bytes"
        raise ToolFailure(Code.TOOL_EXECUTION_FAILED, message, condition="not idempotent")
    try:
        output: JsonValue = strict_json.loads(result.content.encode())
    except strict_json.StrictJsonError:  # the text of a person who answered in place of the function
        return result.content
    return output


STEP_PATTERNS: Mapping[str, StepPattern] = MappingProxyType(
    {
        StepType.INFER: infer,
        StepType.TOOL: tool,
        StepType.RETRIEVE: retrieve,
        StepType.RERANK: rank,
        StepType.VALIDATE: validate,
        StepType.REDUNDANT: redundant,
    }
)
"""The code that runs a step of each built-in type."""


def as_answer(value: JsonValue) -> AnswerContent:
    """Return the value as rules and schemas see it; its text is the value itself or its JSON."""
    return AnswerContent(value if isinstance(value, str) else orjson.dumps(value).decode(), value)


def _inference_settings(settings: BranchSettings, step: ParsedStep, step_input: StepInput) -> BranchSettings:
    """Return the settings with the step's messages behind the system messages, its tools and its output contract."""
    if isinstance(step_input, InferInput):
        asked = step_input
    else:
        asked = InferInput(messages=[_user_message(settings, str(step_input))])
    contract = OutputContract.model_validate({"schema": asked.schema_})
    if step.input is None and is_large_contract(contract):
        message = f"must be at most {LARGE_CONTRACT_CHARACTERS} characters, not recursive, and have plain keywords"
        raise step_mismatch(step, [{"path": "$.schema", "message": message}])
    named = step.options.tools if asked.tools is None else asked.tools
    wanted = (settings.allowed_tools if named is None else named) or ()
    tools = [name for name in wanted if settings.allows_tool(name)]
    hints, choice = settings.hints, settings.hints.tool_choice
    if not tools or (isinstance(choice, NamedTool) and choice.name not in tools):
        hints = hints.model_copy(update={"tool_choice": None})
    output = step.contract_for(step_input) or OutputContract()
    return replace(
        settings, messages=(*system_prompt(settings.messages), *asked.messages), tools=tools, hints=hints, output=output
    )


def _user_message(settings: BranchSettings, text: str) -> Message:
    """Return the text as a user message: the last message of the request, with its images, if that is its text."""
    last = next((message for message in reversed(settings.messages) if message.role == "user"), None)
    return last if last is not None and last.text == text else Message(role="user", content=text)
