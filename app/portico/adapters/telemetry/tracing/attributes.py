"""Attributes of spans: the semantic conventions for generative AI, and our own where they have none.

No attribute holds a message, an argument, a result or a stop sequence unless content is captured.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import orjson

from portico.adapters.telemetry.genai import ModelName
from portico.adapters.telemetry.tracing.span_draft import OTHER_ERROR, Attributes
from portico.domain.contract.messages import Message, ToolCall
from portico.domain.contract.request import ExecutionHints
from portico.domain.failures import Code
from portico.domain.journal import events
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import AttemptFailed, AttemptSucceeded, Outcome
from portico.domain.lifecycle import Mode
from portico.domain.model_call import RULES
from portico.domain.tools import agent_of
from portico.domain.value import value

MAX_CONTENT: Final = 16 * 1024
"""Characters of one captured text; a collector refuses batches of more than a few megabytes."""
_CUT_MARK: Final = "… [cut]"
_OPERATION: Final = "gen_ai.operation.name"
_HINTS: Final = ("max_tokens", "temperature", "top_p", "seed")
_HINT_OPTIONS: Final = ("top_k",)
_WORKFLOWS: Final = frozenset({Mode.PLAN, Mode.FLOW})
_EVENT_FIELDS: Final = (
    "from_state",
    "to_state",
    "fsm_event",
    "provider",
    "model",
    "attempt",
    "retry_count",
    "error_code",
)
"""Fields of our events that span events show; every other one may hold content."""
_SHOWN_FIELDS: Final[Mapping[type[Any], Sequence[tuple[str, str]]]] = MappingProxyType(
    {
        kind: [(name, f"portico.{name}") for name in _EVENT_FIELDS if name in fields]
        for kind, fields in events.EVENT_FIELDS.items()
    }
)


@value
class EngineFacts:
    """Facts about a configured engine: the names of its model, and the address of its server if it has one."""

    model: ModelName
    address: str | None = None
    port: int | None = None


_UNKNOWN_ENGINE: Final = EngineFacts(ModelName("_OTHER", ""))


@value
class CallFacts:
    """Facts about a model call that no event has. `first_chunk_at` is in Unix seconds, of a streamed one."""

    hints: ExecutionHints
    is_streamed: bool
    first_chunk_at: float | None = None


def execution_name(header: ExecutionHeader) -> str:
    """Return the name of the span of an execution."""
    if header.mode in _WORKFLOWS:
        return f"invoke_workflow {_workflow(header)}"
    agent = header.request.agent
    return "invoke_agent" if agent is None else f"invoke_agent {agent}"


def execution_start(header: ExecutionHeader, *, capture_content: bool) -> Attributes:
    """Return the attributes of an execution that are known from its start."""
    request, output = header.request, header.request.output
    is_structured = output.schema_ is not None or header.mode in {Mode.STRUCTURED, Mode.REDUNDANT}
    found: Attributes = {
        "portico.request_id": header.request_id,
        "portico.mode": header.mode,
        "portico.channel": header.channel,
        "gen_ai.output.type": "json" if is_structured else "text",
    }
    if header.mode in _WORKFLOWS:
        found |= {_OPERATION: "invoke_workflow", "gen_ai.workflow.name": _workflow(header)}
    else:
        found[_OPERATION] = "invoke_agent"
        if request.agent is not None:
            found["gen_ai.agent.name"] = request.agent
    if request.session_id is not None:
        found["gen_ai.conversation.id"] = request.session_id
    if capture_content and request.messages:
        found["gen_ai.input.messages"] = _text([_message(each) for each in request.messages])
    return found


def execution_end(event: events.TerminalEvent) -> Attributes:
    """Return the attributes of an execution that are known at its end."""
    usage = event.response.token_usage
    return {
        "portico.state": event.response.state,
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
    }


def nested_agent(tool_name: str) -> tuple[str, Attributes]:
    """Return the name and the attributes of the run of an agent that a call asked for."""
    agent = agent_of(tool_name) or tool_name
    return f"invoke_agent {agent}", {_OPERATION: "invoke_agent", "gen_ai.agent.name": agent}


def inference_start(event: events.InferenceStart, engines: Mapping[str, EngineFacts]) -> Attributes:
    """Return the attributes of a provider attempt that are known from its start."""
    address = event.provider if event.deployment is None else f"{event.provider}/{event.deployment}"
    engine = engines.get(address, _UNKNOWN_ENGINE)
    found: Attributes = {
        _OPERATION: "chat",
        "gen_ai.provider.name": engine.model.provider,
        "gen_ai.request.model": event.model,
        "portico.provider": event.provider,
    }
    if event.deployment is not None:
        found["portico.deployment"] = event.deployment
    if engine.address is not None:
        found["server.address"] = engine.address
        if engine.port is not None:
            found["server.port"] = engine.port
    if event.temperature is not None:
        found["gen_ai.request.temperature"] = event.temperature
    return found


def inference_call(facts: CallFacts, started_at: float, *, capture_content: bool) -> Attributes:
    """Return the attributes of a provider attempt that only its call shows."""
    hints = facts.hints
    found: Attributes = {"gen_ai.request.stream": facts.is_streamed}
    if facts.first_chunk_at is not None:
        found["gen_ai.response.time_to_first_chunk"] = max(0.0, facts.first_chunk_at - started_at)
    found |= {f"gen_ai.request.{name}": value for name in _HINTS if (value := getattr(hints, name)) is not None}
    for name in _HINT_OPTIONS:
        value = hints.options.get(name)
        if isinstance(value, int | float):
            found[f"gen_ai.request.{name}"] = value
    if capture_content and hints.stop is not None:
        found["gen_ai.request.stop_sequences"] = [hints.stop] if isinstance(hints.stop, str) else list(hints.stop)
    return found


def inference_end(event: events.InferenceEnd, outcome: Outcome | None, *, capture_content: bool) -> Attributes:
    """Return the attributes of a provider attempt that are known at its end."""
    found: Attributes = {
        "gen_ai.response.finish_reasons": [event.finish_reason],
        "gen_ai.usage.input_tokens": event.tokens_in,
        "gen_ai.usage.output_tokens": event.tokens_out,
    }
    if event.tokens_cached:
        found["gen_ai.usage.cache_read.input_tokens"] = event.tokens_cached
    if event.tokens_cache_written:
        found["gen_ai.usage.cache_write.input_tokens"] = event.tokens_cache_written
    if event.tokens_reasoning:
        found["gen_ai.usage.reasoning.output_tokens"] = event.tokens_reasoning
    if isinstance(outcome, AttemptSucceeded):
        reply = outcome.reply
        if reply.model:
            found["gen_ai.response.model"] = reply.model
        if capture_content:
            answer = Message(role="assistant", content=reply.text, tool_calls=list(reply.tool_calls) or None)
            found["gen_ai.output.messages"] = _text([_message(answer)])
    return found


def inference_error(event: events.InferenceEnd, outcome: Outcome | None) -> str | None:
    """Return the code of a provider attempt that did not succeed."""
    if isinstance(outcome, AttemptFailed):
        return RULES[outcome.reason].code
    match event.finish_reason:
        case "error":
            return OTHER_ERROR
        case "content_filter":
            return Code.INFERENCE_CONTENT_FILTERED
        case "cancelled":
            return Code.CANCELLED_SIGNAL
        case _:
            return None


def tool_start(event: events.ToolStart, arguments: ToolCall | None) -> Attributes:
    """Return the attributes of a tool call that are known from its start; `arguments` only if content is captured."""
    found: Attributes = {
        _OPERATION: "execute_tool",
        "gen_ai.tool.name": event.tool_name,
        "gen_ai.tool.call.id": event.tool_call_id,
        "gen_ai.tool.type": "function" if agent_of(event.tool_name) is None else "extension",
    }
    if event.client:
        found["portico.tool.client"] = True
    if arguments is not None:
        found["gen_ai.tool.call.arguments"] = _text(arguments.arguments)
    return found


def tool_result(content: str) -> Attributes:
    """Return the result of a tool call."""
    return {"gen_ai.tool.call.result": _cut(content)}


def step_attributes(event: events.StepEnd) -> Attributes:
    """Return the attributes of a plan step."""
    found: Attributes = {
        "portico.step.type": event.step_type,
        "portico.step.attempt": event.attempt,
        "portico.step.status": event.status,
    }
    return found if event.pass_number is None else {**found, "portico.pass": event.pass_number}


def pass_attributes(event: events.PassEnd) -> Attributes:
    """Return the attributes of a pass over a plan."""
    found: Attributes = {"portico.pass": event.pass_number, "portico.pass.converged": event.converged}
    if event.completeness is not None:
        found["portico.pass.completeness"] = event.completeness
    if event.coherence is not None:
        found["portico.pass.coherence"] = event.coherence
    return found


def vote_attributes(event: events.VoteDecided) -> Attributes:
    """Return the attributes of a vote."""
    found: Attributes = {
        "portico.vote.replicas": event.replicas,
        "portico.vote.voted": event.voted,
        "portico.vote.failed": event.failed,
        "portico.vote.stopped_early": event.stopped_early,
    }
    if event.confidence is not None:
        found["portico.vote.confidence"] = event.confidence
    return found


def retrieval_attributes(event: events.RetrievalStart) -> Attributes:
    """Return the attributes of a search of the memory."""
    return {_OPERATION: "retrieval", "gen_ai.retrieval.top_k": event.top_k}


def plan_attributes() -> Attributes:
    """Return the attributes of the planning."""
    return {_OPERATION: "plan"}


def event_attributes(event: events.Event) -> Attributes:
    """Return the attributes of a span event."""
    return {shown: value for name, shown in _SHOWN_FIELDS[type(event)] if (value := getattr(event, name)) is not None}


def _workflow(header: ExecutionHeader) -> str:
    return "plan" if header.request.flow is None else header.request.flow.name


def _message(message: Message) -> dict[str, object]:
    """Return the message in the form of the conventions: a role, and parts."""
    parts: list[object] = [{"type": "text", "content": message.text}] if message.text else []
    if message.role == "tool":
        parts = [{"type": "tool_call_response", "id": message.tool_call_id, "response": message.text}]
    parts += [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls or ()
    ]
    return {"role": message.role, "parts": parts}


def _text(value: Sequence[object] | Mapping[str, object]) -> str:
    return _cut(orjson.dumps(value).decode())


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CONTENT else text[:MAX_CONTENT] + _CUT_MARK
