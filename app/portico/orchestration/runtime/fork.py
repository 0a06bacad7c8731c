"""Fork: a new execution that begins with the first recorded steps of another one.

The inherited steps are copied as recorded, and their events are emitted again under the new execution's ids. Up to the
step of the fork the pattern asks for the same effects as the first time, so that every inherited step matches by its
fingerprint; from that step on the overrides apply. They are stored in the header, so a fork replays like any execution.

An edited result takes the place of the recorded one in the copy. A fingerprint is of what was asked, so the call
matches and does not run. Only what is read for the first time behind the inherited steps can be edited.

From the end, no steps are inherited: the new execution asks its messages after the whole transcript of one that
completed (`transcript.py`), with the settings of that one.

A fork with a session adds to that session but does not read its history: it continues the conversation of its inherited
steps, and adds the messages of the whole request, the tool rounds and the answer. It does not wait for its turn in the
session, since its times would suggest that it was at work meanwhile. Without inherited steps it reads no history
either: one more or one less step would otherwise make it another conversation.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from portico.domain.contract.constrained_types import EditedText, Name, SessionIdText, ToolReference
from portico.domain.contract.messages import Message, Origin, origin_of, system_prompt
from portico.domain.contract.quote import Quote
from portico.domain.contract.request import ExecutionHints, SystemRequest
from portico.domain.failures import Code, RequestFailure, invalid_request
from portico.domain.field_errors import invalid_fields
from portico.domain.ids import SessionId
from portico.domain.journal.events import ToolStart
from portico.domain.journal.fork import Fork, ResultEdit
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import (
    AttemptCancelled,
    AttemptFailed,
    AttemptSucceeded,
    Prepared,
    RecordedStep,
    SuspensionAnswer,
    ToolCallSuspended,
    ToolEnded,
)
from portico.domain.journal.step_key import GUARD_KEY, LIMIT_KEY, STOP_KEY, StepKey, step_number_of
from portico.domain.lifecycle import Mode
from portico.domain.value import replace
from portico.orchestration.execution.branch_settings import merge_hints
from portico.orchestration.pipeline.media import parts_by_url
from portico.orchestration.runtime.resume import status_of
from portico.ports.journal import ExecutionHistory


class ForkOverrides(BaseModel):
    """Changes from the first step that is not inherited; an absent field keeps its value."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    model: Name | None = Field(None, description="A route or engine name from GET /v1/engines.")
    hints: ExecutionHints | None = Field(None, description="Hints to change; absent hints keep their values.")
    tools: list[ToolReference] | None = Field(None, max_length=128, description="Tools to offer; [] offers none.")
    messages: list[Message] = Field(default_factory=list, description="Messages to add before the next inference.")


class ForkEdit(BaseModel):
    """Another result of a tool call in the last inherited step."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: Annotated[str, Field(max_length=256)] = Field(
        description="The `key` of the call's step in `GET /v1/executions/{request_id}/steps`, its last one."
    )
    content: EditedText = Field(description="The result that the model reads instead, of at most 1 MiB.")
    is_error: bool = Field(False, description="True if the result is an error.")


class ForkRequest(BaseModel):
    """The step at which an execution is forked, and the changes from there on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    from_step: Annotated[int, Field(ge=0, strict=True)] | Literal["end"] = Field(
        description="Number of top-level steps to inherit as recorded; `end`: continue after the last message instead."
    )
    overrides: ForkOverrides = Field(ForkOverrides(), description="Changes from the next step on.")
    edits: list[ForkEdit] = Field(
        default_factory=list,
        max_length=16,
        description="Other results of tool calls in the step `from_step - 1`. These calls do not run.",
    )
    session_id: SessionIdText | None = Field(None, description="The session that the fork adds to; none if absent.")


def merge_overrides(origin: ExecutionHeader, from_step: int, overrides: ForkOverrides) -> SystemRequest:
    """Return the request that would ask for the whole fork. Raises: RequestFailure (REQUEST_INVALID)."""
    _require_conversation(origin, overrides)
    merged = _merged(strip_identity(origin.request), (*_inherited_forks(origin, from_step), overrides))
    return _validated(merged)


def continuation(origin: ExecutionHeader, fork: ForkRequest) -> SystemRequest:
    """Return the request that asks the messages of the overrides after the end of the origin, with its settings.

    Raises: RequestFailure (REQUEST_INVALID).
    """
    overrides = fork.overrides
    if fork.edits:
        message = 'must be absent with the from_step "end", which inherits no steps'
        raise invalid_request(*((f"edits.{index}.key", message) for index in range(len(fork.edits))))
    if not overrides.messages:
        raise invalid_request(("overrides.messages", "must have at least one message"))
    _require_conversation(origin, overrides)
    merged = _merged(strip_identity(whole_request(origin)), (overrides,))
    return _validated(merged.model_copy(update={"messages": list(overrides.messages), "after": origin.request_id}))


def whole_request(header: ExecutionHeader) -> SystemRequest:
    """Return the request of an execution; of a fork, with its overrides."""
    return header.request if header.fork is None else _merged(header.request, header.fork.chain)


def _merged(request: SystemRequest, changes: Sequence[Fork | ForkOverrides]) -> SystemRequest:
    for change in changes:
        update: dict[str, object] = {
            "hints": merge_hints(request.hints, change.hints),
            "messages": [*request.messages, *change.messages],
        }
        if change.model is not None:
            update["model"] = change.model
        if change.tools is not None:
            update["tools"] = list(change.tools)
        request = request.model_copy(update=update)
    return request


def _require_conversation(origin: ExecutionHeader, overrides: ForkOverrides) -> None:
    """Raise RequestFailure (REQUEST_INVALID) for messages to a flow, whose agents have conversations of their own, and
    for URLs, as nothing is fetched in the middle of an execution.
    """
    if origin.mode is Mode.FLOW and overrides.messages:
        raise invalid_request(("overrides.messages", "must be absent in the fork of a flow"))
    named = [field for field, _ in parts_by_url(overrides.messages)]
    if named:
        message = "must be absent in a fork: send the bytes as data"
        raise invalid_request(*((f"overrides.{field}", message) for field in named))


def _validated(merged: SystemRequest) -> SystemRequest:
    try:
        return SystemRequest.model_validate(merged.model_dump(by_alias=True))
    except ValidationError as error:
        errors = [{"field": "overrides.messages", "message": each.message} for each in invalid_fields(error.errors())]
    message = "overrides.messages do not continue the conversation"
    raise RequestFailure(Code.REQUEST_INVALID, message, {"errors": errors})


def strip_identity(request: SystemRequest, session_id: SessionId | None = None) -> SystemRequest:
    """Return the request without the ids and the session of the execution that it was made for."""
    own = {"request_id": None, "session_id": session_id, "trace_id": None, "if_session_busy": "reject", "run_at": None}
    return request.model_copy(update=own)


def fork_execution(
    fresh: ExecutionHeader, origin: ExecutionHistory, from_step: int, fork: ForkRequest, *, tools: Sequence[str] | None
) -> tuple[ExecutionHeader, list[RecordedStep]]:
    """Return the header of the fork and the steps that it inherits, those before `from_step`.

    `fresh` is the header of a new execution of the merged request; `tools` are those of the overrides that are
    registered. Raises: as `steps_of_fork`.
    """
    before, overrides = origin.header, fork.overrides
    created_at, steps = _moved_to_now(before, steps_of_fork(origin, from_step, fork.edits), fresh.created_at)
    header = replace(
        fresh,
        request=strip_identity(before.request, fork.session_id),
        bounds=replace(before.bounds, timeout=fresh.bounds.timeout),
        args_key=before.args_key,
        created_at=created_at,
        durability="journaled",
        pattern_version=before.pattern_version,
        agent=before.agent,
        fork=Fork(
            before.request_id,
            from_step,
            overrides.model,
            overrides.hints,
            None if tools is None else tuple(tools),
            tuple(overrides.messages),
            _inherited_forks(before, from_step),
            permissions=fresh.permissions,
            origin_permissions=before.permissions if before.fork is None else before.fork.origin_permissions,
            edits=tuple(ResultEdit(each.key, each.content, each.is_error) for each in fork.edits),
        ),
        inherited_messages=inherited_conversation(before, steps),
        ancestors=(*before.ancestors, before.execution_id),
    )
    return header, steps


def _inherited_forks(origin: ExecutionHeader, from_step: int) -> tuple[Fork, ...]:
    """Return the forks that the origin comes from and that change a step before `from_step`, or that step."""
    chain = () if origin.fork is None else origin.fork.chain
    return tuple(replace(each, earlier=()) for each in chain if each.from_step <= from_step)


def steps_of_fork(origin: ExecutionHistory, from_step: int, edits: Sequence[ForkEdit]) -> list[RecordedStep]:
    """Return the inherited steps with the edited results in the place of the recorded ones.

    What followed an edited attempt within its call is left out: a question of the tool, and its answer. Raises:
    RequestFailure (REQUEST_INVALID) as `inherited_steps`, and for an edit of anything but the result of a call in the
    last inherited step that no inherited step has read.
    """
    steps = inherited_steps(origin, from_step)
    refused = [(f"edits.{index}.key", text) for index, text in _refused_edits(origin, from_step, steps, edits)]
    if refused:
        raise invalid_request(*refused)
    edited = {StepKey(edit.key): edit for edit in edits}
    kept = [step for step in steps if step.key in edited or not step.key.is_within(*edited)] if edited else steps
    return [_edited(step, edited[step.key]) if step.key in edited else step for step in kept]


def _refused_edits(
    origin: ExecutionHistory, from_step: int, steps: Sequence[RecordedStep], edits: Sequence[ForkEdit]
) -> Iterator[tuple[int, str]]:
    """Yield the edits that are refused, by their index, with the reason."""
    by_key = {step.key: place for place, step in enumerate(steps)}
    client_calls = {each.anchor for each in origin.events if isinstance(each.event, ToolStart) and each.event.client}
    seen: set[str] = set()
    for index, edit in enumerate(edits):
        key, place = StepKey(edit.key), by_key.get(StepKey(edit.key))
        if edit.key in seen:
            yield index, "is given twice"
        elif origin.header.mode is Mode.FLOW:
            yield index, "must be absent in the fork of a flow"
        elif not from_step:
            yield index, "must be absent with the from_step 0, which inherits no call"
        elif place is None or key.step_number != from_step - 1 or not _ends_call(steps[place], client_calls):
            yield index, f"must be the key of the last attempt at a tool call in step {from_step - 1}"
        elif any(not step.key.is_within(_round_of(key)) for step in steps[place:]):
            yield index, "its result was read by another step that the fork inherits"
        seen.add(edit.key)


def _ends_call(step: RecordedStep, client_calls: Collection[str]) -> bool:
    """Return True if the outcome of the step is the result of a tool call, or leads to it by a question of the tool."""
    match step.outcome:
        case ToolEnded(retry=retry):
            return not retry
        case ToolCallSuspended(state=state):
            return state is None
        case SuspensionAnswer():
            return step.key in client_calls
        case _:
            return False


def _round_of(attempt: StepKey) -> StepKey:
    """Return the key of the tool round that an attempt at a call belongs to."""
    return attempt.parent.parent.parent


def _edited(step: RecordedStep, edit: ForkEdit) -> RecordedStep:
    if isinstance(step.outcome, SuspensionAnswer):
        payload: JsonValue = {"result": edit.content, "is_error": edit.is_error}
        return replace(step, outcome=SuspensionAnswer(payload))
    assert isinstance(step.outcome, ToolEnded | ToolCallSuspended)  # noqa: S101 - no other outcome is edited
    code = Code.TOOL_EXECUTION_FAILED if edit.is_error else None
    return replace(step, outcome=ToolEnded(edit.content, edit.is_error, code, step.outcome.duration_ms))


def own_quote(quote: Quote, origin: ExecutionHistory, from_step: int, fork: ForkRequest) -> Quote:
    """Return the quote of the whole request of a fork without the inferences and calls that the fork inherits.

    Raises: as `steps_of_fork`.
    """
    outcomes = [step.outcome for step in steps_of_fork(origin, from_step, fork.edits)]
    attempts = sum(isinstance(each, AttemptSucceeded | AttemptFailed | AttemptCancelled) for each in outcomes)
    calls = sum(isinstance(each, ToolEnded | ToolCallSuspended) for each in outcomes)
    own = {"inferences": max(0, quote.inferences - attempts), "tool_calls": max(0, quote.tool_calls - calls)}
    return quote.model_copy(update=own)


def inherited_steps(history: ExecutionHistory, from_step: int) -> list[RecordedStep]:
    """Return the steps that were recorded before the step `from_step` started.

    Raises: RequestFailure (REQUEST_INVALID) if no such step has started: an unfinished step cannot be inherited.
    """
    last = _last_fork_point(history)
    if from_step > last:
        raise invalid_request(("from_step", f"must be at most {last}, the last step that has started"))
    steps: list[RecordedStep] = []
    for key, step in history.steps.items():
        number = StepKey(key).step_number
        if number is not None and number >= from_step:
            break
        if key not in {STOP_KEY, LIMIT_KEY} and not StepKey(key).is_within(GUARD_KEY):
            steps.append(step)
    return steps


def _last_fork_point(history: ExecutionHistory) -> int:
    """Return the number of the last step that has started; before a time limit, if one ended the pattern."""
    numbers = [step_number_of(key) for key in history.steps]
    after_limit = numbers[list(history.steps).index(LIMIT_KEY) :] if LIMIT_KEY in history.steps else []
    return min([status_of(history).fork_points, *(number for number in after_limit if number is not None)])


def inherited_conversation(origin: ExecutionHeader, steps: Iterable[RecordedStep]) -> tuple[Message, ...]:
    """Return the messages with which the conversation of the origin began, before those of its request.

    They are those that the origin inherited, or those of its session as the inherited PREPARE found them, without what
    was chosen for that execution: skills and retrieved context.
    """
    prepared = next((step.outcome for step in steps if isinstance(step.outcome, Prepared)), None)
    if origin.inherited_messages or prepared is None or not prepared.prior_message_count:
        return origin.inherited_messages
    own, chosen = origin.request.messages, {Origin.SKILL, Origin.RETRIEVED}
    prompt, agents_own = len(system_prompt(own)), 0 if origin.agent is None else len(origin.agent.messages)
    messages = tuple([message for message in prepared.messages if origin_of(message) not in chosen])
    return messages[agents_own + prompt : len(messages) - (len(own) - prompt)]


def _moved_to_now(
    origin: ExecutionHeader, steps: Sequence[RecordedStep], now: float
) -> tuple[float, list[RecordedStep]]:
    """Return the creation time and the steps, shifted so that the last step ended now.

    Otherwise a step would seem to have taken all the time between the two executions.
    """
    shift = now - max([origin.created_at, *(step.at for step in steps)])
    return origin.created_at + shift, [replace(step, at=step.at + shift) for step in steps]
