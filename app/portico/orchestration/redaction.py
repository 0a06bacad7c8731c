"""Redaction of what is read: records as a principal sees them that may not view the full history.

Stores have everything as it was. What may repeat the output of a tool, a document or an earlier turn is redacted for
such a principal in every form in which it leaves the service, events included. A text or a value that a model wrote
as the answer stands as it is: it was streamed to the one who asked. So do the arguments of the calls that the client
runs, which are part of the answer. Which parts of an answer are repeated instead is recorded with it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Protocol, Self, TypeVar

from pydantic import BaseModel, JsonValue

from portico.capabilities.context.redaction import Redactor
from portico.domain.access.principal import Permission, Principal
from portico.domain.contract.final_answer import FinalAnswer
from portico.domain.contract.messages import Message, ToolCall
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import (
    REDACTED,
    GivenApprovals,
    PlanReport,
    StepReport,
    Suspension,
    SuspensionKind,
    SystemError,
    SystemResponse,
    ToolCallMade,
)
from portico.domain.journal.events import (
    ConstraintRepaired,
    Event,
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionSuspended,
    LiveDelta,
    LiveEvent,
    StoredEvent,
    ToolContent,
    ToolProgress,
    ValidationEnd,
)
from portico.domain.value import replace
from portico.orchestration.flow.snapshot import AgentRecord, FlowSnapshot, PendingCall
from portico.orchestration.runtime.branch_transcripts import BranchConversation
from portico.orchestration.runtime.handle import ExecutionHandle
from portico.orchestration.runtime.recorded_turns import EndedCall, RecordedTurns
from portico.orchestration.runtime.step_list import StepView
from portico.ports.events import Subscription

_SHOWN_KINDS: Final = frozenset({SuspensionKind.CLIENT_TOOL, SuspensionKind.AUTHORIZATION})
"""Kinds whose question is shown as it is: what the client itself runs, and what the configuration says."""


class Question(Protocol):
    """Suspension with a value that asks for something."""

    @property
    def value(self) -> JsonValue:
        """The question."""

    @property
    def kind(self) -> SuspensionKind:
        """The kind of the question."""

    def model_copy(self, *, update: Mapping[str, Any]) -> Self:
        """Return the suspension with other fields."""


Q = TypeVar("Q", bound=Question)
M = TypeVar("M", bound=BaseModel | None)
ItemT = TypeVar("ItemT", StoredEvent, LiveDelta, StoredEvent | LiveDelta)


def sees_all(principal: Principal) -> bool:
    """Return True if nothing is redacted for the principal."""
    return principal.permissions.allows(Permission.VIEW_FULL_HISTORY)


def redacted_messages(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages redacted."""
    return Redactor().messages(messages)


def redacted_session(messages: Sequence[Message], responses: Iterable[SystemResponse]) -> Sequence[Message]:
    """Return the messages of a session redacted, but for the arguments of calls that the client runs, which these
    responses tell.
    """
    made = [(call.id, call.name, call.arguments) for each in responses for call in each.tool_calls_made if call.client]
    both = zip(redacted_messages(messages), messages, strict=True)
    return [_with_calls(*each, lambda call: (call.id, call.name, call.arguments) in made) for each in both]


def redacted_branch(branch: BranchConversation, client_tools: Collection[str]) -> BranchConversation:
    """Return the conversation redacted, but for the arguments of calls of these tools."""
    both = zip(redacted_messages(branch.messages), branch.messages, strict=True)
    messages = tuple([_with_calls(*each, lambda call: call.name in client_tools) for each in both])
    return replace(branch, messages=messages)


def redacted_response(response: SystemResponse) -> SystemResponse:
    """Return the response redacted, but for the parts of its answer that a model wrote as such."""
    final_answer, plan, error = response.final_answer, response.plan, response.error
    is_text_repeated = "text" in response.repeated
    update: dict[str, Any] = {
        "messages": _answer_messages(response),
        "tool_calls_made": [_call_made(call) for call in response.tool_calls_made],
        "suspensions": redacted_suspensions(response.suspensions),
        "validation_result": _with_redacted(response.validation_result, "errors", "warnings", "repairs"),
        "vote": _with_redacted(response.vote, "candidates", "tally", "fields"),
        "plan": None if plan is None else _plan(plan),
        "final_answer": None
        if final_answer is None
        else _final_answer(final_answer, is_text_repeated=is_text_repeated),
        "error": None if error is None else redacted_error(error),
        "reasoning": None
        if response.reasoning is None
        else [_with_redacted(each, "text") for each in response.reasoning],
    }
    if is_text_repeated:
        update["content"] = Redactor().value(response.content)
    if "value" in response.repeated:
        update |= _redacted_value(response)
    return response.model_copy(update=update)


def redacted_error(error: SystemError) -> SystemError:
    """Return the error redacted."""
    return _with_redacted(error, "message", "details")


def redacted_suspensions(suspensions: Sequence[Q]) -> list[Q]:
    """Return the suspensions with their questions redacted, but for those that are shown as they are."""
    return [each if each.kind in _SHOWN_KINDS else _redacted_question(each) for each in suspensions]


def _redacted_question(suspension: Q) -> Q:
    update: dict[str, Any] = {"value": Redactor().value(suspension.value)}
    if isinstance(suspension, Suspension) and suspension.approvals is not None:
        update["approvals"] = _approvals(suspension.approvals)
    return suspension.model_copy(update=update)


def redacted_request(request: SystemRequest) -> SystemRequest:
    """Return the request with its messages, the inputs of its plan and the input of its flow redacted."""
    update: dict[str, Any] = {"messages": list(redacted_messages(request.messages))}
    if request.plan is not None and request.plan.steps is not None:
        steps = [step.model_construct(**Redactor().value(step.model_dump())) for step in request.plan.steps]
        update["plan"] = request.plan.model_copy(update={"steps": steps})
    if request.flow is not None:
        update["flow"] = request.flow.model_copy(update={"input": Redactor().value(request.flow.input)})
    return request.model_copy(update=update)


def redacted_step(step: StepView, client_tools: Collection[str] = ()) -> StepView:
    """Return the step with what was asked and answered redacted, but for the arguments of calls of `client_tools`.

    The exception of its code is left out. An agent that is called as a tool has tools of its own, which may have the
    same names.
    """
    redactor, asked, answered = Redactor(), step.request, step.outcome
    request, outcome = redactor.value(asked), redactor.value(answered)
    is_outermost = bool(client_tools) and step.key.count("/") < 2
    if is_outermost and isinstance(answered, dict) and step.kind == "attempt":
        outcome = _with_client_calls(outcome, answered, client_tools)
    if is_outermost and isinstance(asked, dict):
        if asked.get("kind") in _SHOWN_KINDS:
            request = asked
        elif isinstance(asked.get("messages"), list):
            both = zip(request["messages"], asked["messages"], strict=True)
            request = {**request, "messages": [_with_client_calls(*each, client_tools) for each in both]}
    return step.model_copy(update={"request": request, "outcome": outcome, "exception": None})


def redacted_snapshot(snapshot: FlowSnapshot) -> FlowSnapshot:
    """Return the snapshot with its state, its questions and the conversations of its agents redacted."""
    redactor = Redactor()
    return snapshot.model_copy(
        update={
            "state": tuple([(key, redactor.value(value)) for key, value in snapshot.state]),
            "suspensions": tuple(redacted_suspensions(snapshot.suspensions)),
            "agents": {node: _agent(record, redactor) for node, record in snapshot.agents.items()},
        }
    )


def redacted_turns(turns: RecordedTurns) -> RecordedTurns:
    """Return the turns with their request and responses redacted, and the arguments and results of their calls."""
    client_tools = {tool.name for tool in turns.header.request.client_tools}
    shown = [
        replace(turn, calls=tuple([_ended_call(each, client_tools) for each in turn.calls])) for turn in turns.turns
    ]
    rests = [replace(rest, response=redacted_response(rest.response)) for rest in turns.rests]
    header = replace(turns.header, request=redacted_request(turns.header.request))
    return replace(turns, header=header, turns=tuple(shown), rests=tuple(rests))


def redact_handle(handle: ExecutionHandle) -> ExecutionHandle:
    """Let the handle show its response and its events redacted."""
    handle.show_as(redacted_response, RedactedSubscription)
    return handle


class RedactedSubscription:
    """Implements `ports.events.Subscription` over another one, whose events it redacts."""

    def __init__(self, whole: Subscription) -> None:
        self._whole = whole

    async def next(self) -> Sequence[StoredEvent | LiveDelta]:
        return [_redacted_item(item) for item in await self._whole.next()]

    def notify(self, callback: Callable[[], None] | None) -> None:
        self._whole.notify(callback)

    def take(self) -> Sequence[StoredEvent | LiveDelta]:
        return [_redacted_item(item) for item in self._whole.take()]

    @property
    def ended(self) -> bool:
        return self._whole.ended

    @property
    def overflowed(self) -> bool:
        return self._whole.overflowed

    def close(self) -> None:
        self._whole.close()


def redacted_events(events: Sequence[StoredEvent]) -> list[StoredEvent]:
    """Return the stored events redacted."""
    return [_redacted_item(item) for item in events]


def _redacted_item(item: ItemT) -> ItemT:
    """Return the item with its event redacted; as it is if that has only ids, counts and the answer."""
    redact = _REDACTED.get(type(item.event))
    return item if redact is None else item._replace(event=redact(item.event))


def _with_response(event: Any) -> Any:
    return replace(event, response=redacted_response(event.response))


def _suspended(event: ExecutionSuspended) -> ExecutionSuspended:
    suspensions = tuple(redacted_suspensions(event.suspensions))
    return ExecutionSuspended(suspensions, redacted_response(event.response))


def _content(event: ToolContent) -> ToolContent:
    redactor = Redactor()
    arguments = event.arguments if event.client else redactor.value(event.arguments)
    return replace(event, arguments=arguments, result=redactor.value(event.result))


def _progress(event: ToolProgress) -> ToolProgress:
    return replace(event, message=Redactor().text(event.message))


def redacted_progress(progress: M) -> M:
    """Return the view of a call's progress with its message redacted; None for none."""
    return _with_redacted(progress, "message")


def _validation(event: ValidationEnd) -> ValidationEnd:
    redactor = Redactor()
    errors, warnings = redactor.value(event.errors), redactor.value(event.warnings)
    return replace(event, errors=tuple(errors), warnings=tuple(warnings))


def _repaired(event: ConstraintRepaired) -> ConstraintRepaired:
    return replace(event, repairs=tuple(Redactor().value(event.repairs)))


_REDACTED: Mapping[type[Event | LiveEvent], Callable[[Any], Any]] = MappingProxyType(
    {
        ExecutionCompleted: _with_response,
        ExecutionFailed: _with_response,
        ExecutionCancelled: _with_response,
        ExecutionSuspended: _suspended,
        ToolContent: _content,
        ToolProgress: _progress,
        ValidationEnd: _validation,
        ConstraintRepaired: _repaired,
    }
)
"""The events that have contents beside ids, counts and the answer."""


def _with_redacted(model: M, *names: str) -> M:
    """Return the model with these fields redacted; None for none."""
    if model is None:
        return model
    redactor = Redactor()
    return model.model_copy(update={name: redactor.value(getattr(model, name)) for name in names})


def _redacted_value(response: SystemResponse) -> dict[str, Any]:
    """Return the value of the answer redacted, with the flag that says so if that changed it."""
    value = Redactor().value(response.structured_output)
    if value == response.structured_output:
        return {}
    flags = sorted({*response.metadata.flags, REDACTED})
    return {"structured_output": value, "metadata": response.metadata.model_copy(update={"flags": flags})}


def _plan(plan: PlanReport) -> PlanReport:
    steps = [_step_report(step) for step in plan.steps]
    return plan.model_copy(update={"steps": steps, "trace": _with_redacted(plan.trace, "rationale")})


def _step_report(step: StepReport) -> StepReport:
    error = None if step.error is None else redacted_error(step.error)
    return step.model_copy(update={"output": Redactor().value(step.output), "error": error})


def _final_answer(answer: FinalAnswer, *, is_text_repeated: bool) -> FinalAnswer:
    texts = ("answer_text",) if is_text_repeated else ()
    return _with_redacted(answer, *texts, "notes", "metadata")


def _call_made(call: ToolCallMade) -> ToolCallMade:
    redactor = Redactor()
    arguments = call.arguments if call.client else redactor.value(call.arguments)
    shown: dict[str, Any] = {"arguments": arguments, "result": redactor.value(call.result)}
    if call.decision is not None:
        by = [each.model_copy(update={"reason": redactor.value(each.reason)}) for each in call.decision.by]
        shown["decision"] = call.decision.model_copy(update={"by": by})
    return call.model_copy(update=shown | {"asked_arguments": redactor.value(call.asked_arguments)})


def _approvals(approvals: GivenApprovals) -> GivenApprovals:
    """Return the approvals with the comments and the changed arguments redacted."""
    redactor = Redactor()
    given = [each.model_copy(update={"reason": redactor.value(each.reason)}) for each in approvals.given]
    return approvals.model_copy(update={"given": given, "arguments": redactor.value(approvals.arguments)})


def _answer_messages(response: SystemResponse) -> list[Message]:
    """Return the messages of the response redacted, but for the arguments of the calls that the client runs."""
    whole = {call.id: call.arguments for call in response.tool_calls_made if call.client}
    messages = list(redacted_messages(response.messages))
    return [_with_arguments(each, whole) if each.tool_calls else each for each in messages] if whole else messages


def _with_arguments(message: Message, whole: Mapping[str, Any]) -> Message:
    """Return the message with these arguments of its calls, by id."""
    calls = [
        call.model_copy(update={"arguments": whole.get(call.id, call.arguments)}) for call in message.tool_calls or ()
    ]
    return message.model_copy(update={"tool_calls": calls})


def _with_calls(shown: Message, whole: Message, is_client_call: Callable[[ToolCall], bool]) -> Message:
    """Return the redacted message with the calls that the client runs as they were made."""
    made = whole.tool_calls or ()
    if not any(map(is_client_call, made)):
        return shown
    both = zip(shown.tool_calls or (), made, strict=True)
    return shown.model_copy(update={"tool_calls": [call if is_client_call(call) else each for each, call in both]})


def _with_client_calls(
    shown: dict[str, Any], whole: Mapping[str, Any], client_tools: Collection[str]
) -> dict[str, Any]:
    """Return what is shown of a reply or a message, with the arguments of calls of these tools as they were made."""
    if not whole.get("tool_calls"):
        return shown
    both = zip(shown["tool_calls"], whole["tool_calls"], strict=True)
    return {**shown, "tool_calls": [made if made["name"] in client_tools else call for call, made in both]}


def _ended_call(ended: EndedCall, client_tools: Collection[str]) -> EndedCall:
    redactor, call = Redactor(), ended.call
    if call.name not in client_tools:
        call = call.model_copy(update={"arguments": redactor.value(call.arguments)})
    return replace(ended, call=call, result=redactor.value(ended.result))


def _agent(record: AgentRecord, redactor: Redactor) -> AgentRecord:
    return record.model_copy(
        update={
            "preamble": redactor.text(record.preamble),
            "messages": redactor.messages(record.messages),
            "calls": tuple([_pending(call, redactor) for call in record.calls]),
        }
    )


def _pending(pending: PendingCall, redactor: Redactor) -> PendingCall:
    arguments = redactor.value(pending.call.arguments)
    suspensions = [] if pending.suspension is None else redacted_suspensions([pending.suspension])
    return pending.model_copy(
        update={
            "call": pending.call.model_copy(update={"arguments": arguments}),
            "result": redactor.value(pending.result),
            "suspension": suspensions[0] if suspensions else None,
        }
    )
