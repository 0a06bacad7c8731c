"""An agent without the service: one inference with its tool calls is one step, on an engine of the caller's.

The calls of a reply run one after the other, in their order. A call that waits for an answer keeps back the groups of
calls behind it; an answer lets the reply go on without another inference.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import anyio
from pydantic import BaseModel, JsonValue

from portico.capabilities.models.format_enforcement import choose_enforcement, prepare_call, submitted_reply
from portico.capabilities.models.replies import normalise_reply
from portico.capabilities.prompting.prompt_call import Prompt
from portico.capabilities.prompting.registry import default_registry
from portico.capabilities.tools.executor import ToolExecutor
from portico.capabilities.tools.registry import ToolRegistry
from portico.domain.contract.messages import Message
from portico.domain.contract.request import ExecutionHints
from portico.domain.contract.response import NO_USAGE, SuspensionKind, TokenUsage
from portico.domain.failures import Code
from portico.domain.ids import IdempotencyKey
from portico.domain.journal.outcomes import ToolCallSuspended
from portico.domain.journal.suspensions import (
    APPROVAL_DECISIONS,
    UNKNOWN_OUTCOME_DECISIONS,
    UNKNOWN_OUTCOME_TEXT,
    Approve,
    GiveUp,
    Happened,
    RunAgain,
    answer_text,
    denial_text,
)
from portico.domain.model_call import RULES, EngineCall, Reply
from portico.domain.tools import OfferedTool, concurrent_groups
from portico.domain.value import replace, value
from portico.orchestration.flow.agent_answer import (
    MAX_REPAIRS,
    NOT_SUBMITTED,
    AgentAnswer,
    rejection,
    response_format,
    submission,
    submit_definition,
    written_answer,
)
from portico.orchestration.flow.context import Context
from portico.orchestration.flow.errors import AgentError, Missing, NotFound
from portico.orchestration.flow.nodes import AgentNode
from portico.orchestration.flow.snapshot import AgentRecord, FlowSuspension, PendingCall
from portico.ports.model import Engine, EngineError
from portico.ports.tool import Tool

Stored = TypeVar("Stored", bound=BaseModel)
_NO_KEY = IdempotencyKey("")
MAX_TOOL_ROUNDS = 20
RESULT_BYTES = 262_144
CALL_SECONDS = 600.0
"""Time limit of a tool that has none of its own."""


@value
class AgentStep:
    """The end of one step of an agent: its record, and its output once it has one."""

    record: AgentRecord
    output: str | None = None
    usage: TokenUsage = NO_USAGE


class LocalAgent:
    """An agent node on engines of the caller's. It changes no record but returns another one.

    Raises: NotFound for a tool of which only the name is known.
    """

    def __init__(self, node: AgentNode, engines: Mapping[str, Engine], context: Context) -> None:
        self._node = node
        self._context = context
        self._engines = engines
        self._registry = ToolRegistry(*(self._tool(tool) for tool in node.config.tools))
        self._executor = ToolExecutor(self._registry, _LoopClock(), _NoEntropy(), RESULT_BYTES)

    async def infer(self, record: AgentRecord, task: str) -> AgentStep:
        """Ask the model once, and run the tool calls of its reply. Raises: AgentError; NotFound."""
        if not record.is_working:
            message = Message(role="user", content=task)
            record = _updated(record, messages=(*record.messages, message), is_working=True)
        reply = await self._ask(record)
        record = _updated(record, messages=(*record.messages, reply.message(record.model)))
        if not self._node.config.tools:
            step = self._judge(record, written_answer(self._node, reply.text))
        elif not reply.tool_calls:
            step = self._judge(record, NOT_SUBMITTED)
        elif record.tool_rounds == MAX_TOOL_ROUNDS:
            refusal = f"the model asked for more than {MAX_TOOL_ROUNDS} tool rounds"
            raise AgentError(self._node.key, Code.ORCHESTRATION_ITERATION_LIMIT, refusal)
        else:
            calls = tuple(PendingCall(call=call) for call in reply.tool_calls)
            step = await self.run_calls(_updated(record, calls=calls, tool_rounds=record.tool_rounds + 1))
        return replace(step, usage=reply.usage)

    async def run_calls(self, record: AgentRecord) -> AgentStep:
        """Run the calls that wait for nothing, and end the reply once all have results. Raises: AgentError."""
        calls = list(record.calls)
        answer, answered = submission(self._node, [each.call for each in calls])
        running = calls[: len(calls) - len(answered)]
        offered = {tool.name: tool for tool in self._registry.offer(self._registry.names())[0]}
        names = [each.call.name for each in running]
        unsafe = frozenset(name for name, tool in offered.items() if tool.unsafe)
        for group in concurrent_groups(names, unsafe):
            for index in group:
                if calls[index].result is None and calls[index].suspension is None:
                    calls[index] = await self._run(calls[index], offered.get(names[index]))
            if any(calls[index].suspension for index in group):
                return AgentStep(_updated(record, calls=tuple(calls)))
        texts = [*(each.result or "" for each in calls[: len(running)]), *answered]
        results = [
            Message(role="tool", content=text, tool_call_id=each.call.id, name=each.call.name[:64])
            for each, text in zip(calls, texts, strict=True)
        ]
        record = _updated(record, messages=(*record.messages, *results), calls=())
        return AgentStep(record) if answer is None else self._judge(record, answer)

    def answer(self, call: PendingCall, payload: JsonValue) -> PendingCall:
        """Return the call with the answer to its question, which is valid for its kind."""
        assert call.suspension is not None  # noqa: S101 - only a call that waits is answered
        answered = _updated(call, suspension=None)
        match call.suspension.kind:
            case SuspensionKind.APPROVAL:
                decision = APPROVAL_DECISIONS.validate_python(payload)
                if isinstance(decision, Approve):
                    arguments = call.call.arguments if decision.arguments is None else decision.arguments
                    approved = call.call.model_copy(update={"arguments": arguments})
                    return _updated(answered, is_approved=True, call=approved)
                return _updated(answered, result=denial_text(decision))
            case SuspensionKind.UNKNOWN_OUTCOME:
                match UNKNOWN_OUTCOME_DECISIONS.validate_python(payload):
                    case Happened(result=result):
                        return _updated(answered, result=answer_text(result))
                    case RunAgain():
                        return _updated(answered, is_approved=True)
                    case GiveUp():
                        return _updated(answered, result=UNKNOWN_OUTCOME_TEXT)
            case _:
                return _updated(answered, result=answer_text(payload))

    def _judge(self, record: AgentRecord, answer: AgentAnswer) -> AgentStep:
        """Return the end of the task, or the next attempt at its answer, of which the model learns what is wrong.

        Raises: AgentError (CONSTRAINT_SCHEMA_INVALID) if no attempt is left.
        """
        if answer.output is not None:
            return AgentStep(_updated(record, is_working=False, rejections=0, tool_rounds=0), answer.output)
        if record.rejections == MAX_REPAIRS:
            raise AgentError(self._node.key, Code.CONSTRAINT_SCHEMA_INVALID, rejection(answer.violations))
        record = _updated(record, rejections=record.rejections + 1)
        if record.messages[-1].role == "tool":
            return AgentStep(record)
        correction = Prompt.of_violations(answer.violations).messages(default_registry())
        return AgentStep(_updated(record, messages=(*record.messages, *correction)))

    async def _ask(self, record: AgentRecord) -> Reply:
        engine = self._engines.get(record.model)
        if engine is None:
            raise NotFound(f"{self._node.key}: there is no engine named {record.model}; give it to with_engines")
        has_tools = bool(self._node.config.tools)
        tools = [*self._registry.definitions(self._registry.names()), submit_definition(self._node)]
        preamble = Message(role="system", content=record.preamble)
        call = EngineCall(
            [preamble, *record.messages],
            tools if has_tools else (),
            ExecutionHints(),
            schema=None if has_tools else response_format(self._node).schema,
        )
        enforcement = choose_enforcement(call, engine.profile)
        try:
            reply = await engine.attempt(
                prepare_call(call, engine.profile, enforcement, default_registry()), _Unread(), stream=False
            )
            return normalise_reply(
                submitted_reply(reply, enforcement), record.messages, f"{self._node.key}{len(record.messages)}"
            )
        except EngineError as error:
            raise AgentError(self._node.key, RULES[error.reason].code, error.message) from error

    async def _run(self, pending: PendingCall, offered: OfferedTool | None) -> PendingCall:
        """Return the call with its result, or with the question it waits for."""
        call = pending.call
        value: JsonValue = {"tool": call.name, "arguments": call.arguments}
        if offered is not None and offered.approval and not pending.is_approved:
            return self._suspended(pending, SuspensionKind.APPROVAL, value)
        outcome = await self._executor.attempt(
            call, key=_NO_KEY, attempt=0, seconds_left=CALL_SECONDS, flow=self._context
        )
        if isinstance(outcome, ToolCallSuspended):
            return self._suspended(pending, SuspensionKind.QUESTION, outcome.value)
        if offered is not None and offered.unsafe and outcome.code is Code.TOOL_TIMEOUT:
            return self._suspended(pending, SuspensionKind.UNKNOWN_OUTCOME, value)
        return _updated(pending, result=outcome.content)

    def _suspended(self, pending: PendingCall, kind: SuspensionKind, value: JsonValue) -> PendingCall:
        key, call = self._node.key, pending.call
        suspension = FlowSuspension(
            suspension_id=f"{key}::{call.id}", kind=kind, node=key, tool_id=f"{key}::{call.name}", value=value
        )
        return _updated(pending, suspension=suspension)

    def _tool(self, tool: str | Tool) -> Tool:
        if isinstance(tool, str):
            raise NotFound(f"{self._node.key}: only the service knows the tool {tool}; give the tool itself")
        return tool


class _Unread:
    """A receiver of progress that nothing reads."""

    def text(self, piece: str) -> None: ...

    def reasoning(self, piece: str) -> None: ...

    def usage(self, usage: TokenUsage) -> None: ...


class _LoopClock:
    """The clock of the event loop; the time of day is known in the service only. Raises: Missing."""

    def now(self) -> float:
        raise Missing("the time of day is known in the service only")

    def monotonic(self) -> float:
        return anyio.current_time()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        raise Missing("timers exist in the service only")


class _NoEntropy:
    """Randomness exists in the service only. Raises: Missing."""

    def uuid7(self) -> str:
        raise Missing("ids are made in the service only")

    def token(self, size: int) -> str:
        raise Missing("randomness exists in the service only")

    def random_below(self, bound: int) -> int:
        raise Missing("randomness exists in the service only")


def _updated(stored: Stored, **fields: Any) -> Stored:
    return stored.model_copy(update=fields)
