"""Fork: a new execution that begins with the first recorded steps of another one.

The inherited steps are copied as recorded, and their events are emitted again under the new execution's ids. Up to the
step of the fork the pattern asks for the same effects as the first time, so that every inherited step matches by its
fingerprint; from that step on the overrides apply. They are stored in the header, so a fork replays like any execution.

From the end, no steps are inherited: the new execution asks its messages after the whole transcript of one that
completed (`transcript.py`), with the settings of that one.

A fork with a session adds to that session but does not read its history: it continues the conversation of its inherited
steps, and adds the messages of the whole request, the tool rounds and the answer. It does not wait for its turn in the
session, since its times would suggest that it was at work meanwhile. Without inherited steps it reads no history
either: one more or one less step would otherwise make it another conversation.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from portico.domain.contract.constrained_types import Name, SessionIdText, ToolReference
from portico.domain.contract.messages import Message, Origin, origin_of, system_prompt
from portico.domain.contract.request import ExecutionHints, SystemRequest
from portico.domain.failures import Code, RequestFailure, invalid_request
from portico.domain.field_errors import invalid_fields
from portico.domain.ids import SessionId
from portico.domain.journal.fork import Fork
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import Prepared, RecordedStep
from portico.domain.journal.step_key import GUARD_KEY, LIMIT_KEY, STOP_KEY, StepKey, step_number_of
from portico.domain.lifecycle import Mode
from portico.orchestration.execution.branch_settings import merge_hints
from portico.orchestration.runtime.resume import status_of
from portico.ports.journal import ExecutionHistory


class ForkOverrides(BaseModel):
    """Changes from the first step that is not inherited; an absent field keeps its value."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    model: Name | None = Field(None, description="A route or engine name from GET /v1/engines.")
    hints: ExecutionHints | None = Field(None, description="Hints to change; absent hints keep their values.")
    tools: list[ToolReference] | None = Field(None, max_length=128, description="Tools to offer; [] offers none.")
    messages: list[Message] = Field(default_factory=list, description="Messages to add before the next inference.")


class ForkRequest(BaseModel):
    """The step at which an execution is forked, and the changes from there on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    from_step: Annotated[int, Field(ge=0, strict=True)] | Literal["end"] = Field(
        description="Number of top-level steps to inherit as recorded; `end`: continue after the last message instead."
    )
    overrides: ForkOverrides = Field(ForkOverrides(), description="Changes from the next step on.")
    session_id: SessionIdText | None = Field(None, description="The session that the fork adds to; none if absent.")


def merge_overrides(origin: ExecutionHeader, from_step: int, overrides: ForkOverrides) -> SystemRequest:
    """Return the request that would ask for the whole fork. Raises: RequestFailure (REQUEST_INVALID)."""
    _require_conversation(origin, overrides)
    merged = _merged(strip_identity(origin.request), (*_inherited_forks(origin, from_step), overrides))
    return _validated(merged)


def continuation(origin: ExecutionHeader, overrides: ForkOverrides) -> SystemRequest:
    """Return the request that asks the messages of the overrides after the end of the origin, with its settings.

    Raises: RequestFailure (REQUEST_INVALID).
    """
    if not overrides.messages:
        errors = [{"field": "overrides.messages", "message": "must have at least one message"}]
        message = "overrides.messages: must have at least one message"
        raise RequestFailure(Code.REQUEST_INVALID, message, {"errors": errors})
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
    """Raise RequestFailure (REQUEST_INVALID) for messages to a flow, whose agents have conversations of their own."""
    if origin.mode is Mode.FLOW and overrides.messages:
        raise invalid_request(("overrides.messages", "must be absent in the fork of a flow"))


def _validated(merged: SystemRequest) -> SystemRequest:
    try:
        return SystemRequest.model_validate(merged.model_dump(by_alias=True))
    except ValidationError as error:
        errors = [{"field": "overrides.messages", "message": each.message} for each in invalid_fields(error.errors())]
    message = "overrides.messages do not continue the conversation"
    raise RequestFailure(Code.REQUEST_INVALID, message, {"errors": errors})


def strip_identity(request: SystemRequest, session_id: SessionId | None = None) -> SystemRequest:
    """Return the request without the ids and the session of the execution that it was made for."""
    own = {"request_id": None, "session_id": session_id, "trace_id": None, "if_session_busy": "reject"}
    return request.model_copy(update=own)


def fork_execution(
    fresh: ExecutionHeader, origin: ExecutionHistory, from_step: int, fork: ForkRequest, *, tools: Sequence[str] | None
) -> tuple[ExecutionHeader, list[RecordedStep]]:
    """Return the header of the fork and the steps that it inherits, those before `from_step`.

    `fresh` is the header of a new execution of the merged request; `tools` are those of the overrides that are
    registered. Raises: as `inherited_steps`.
    """
    before, overrides = origin.header, fork.overrides
    created_at, steps = _moved_to_now(before, inherited_steps(origin, from_step), fresh.created_at)
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
        ),
        inherited_messages=inherited_conversation(before, steps),
        ancestors=(*before.ancestors, before.execution_id),
    )
    return header, steps


def _inherited_forks(origin: ExecutionHeader, from_step: int) -> tuple[Fork, ...]:
    """Return the forks that the origin comes from and that change a step before `from_step`, or that step."""
    chain = () if origin.fork is None else origin.fork.chain
    return tuple(replace(each, earlier=()) for each in chain if each.from_step <= from_step)


def inherited_steps(history: ExecutionHistory, from_step: int) -> list[RecordedStep]:
    """Return the steps that were recorded before the step `from_step` started.

    Raises: RequestFailure (REQUEST_INVALID) if no such step has started: an unfinished step cannot be inherited.
    """
    last = _last_fork_point(history)
    if from_step > last:
        message = f"must be at most {last}, the last step that has started"
        errors = [{"field": "from_step", "message": message}]
        raise RequestFailure(Code.REQUEST_INVALID, f"from_step: {message}", {"errors": errors})
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
