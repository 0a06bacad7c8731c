"""A new execution that begins with the first steps of another one.

The steps are kept as they were recorded, and what they tell is told again, under the new execution's own ids. Until
the step that it forks at everything is asked for as the first time, so that each kept step is known again by its
fingerprint; from there on the overrides hold. They stand in the header, and a fork replays like any other execution.

A session that it is given hears it, and it does not hear the session: it goes on with the talk that its kept steps are
part of, and adds to the session what the whole request would add, its messages, the rounds of tools and the answer.
Refused: to wait for its turn there, for it would seem to have been at work meanwhile; and to hear what was said there
where no step is kept, for then one number more or less would make it another conversation.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.domain.contract.constrained_types import Name, SessionIdText, ToolName
from app.domain.contract.messages import Message
from app.domain.contract.request import ExecutionHints, SystemRequest
from app.domain.failures import Code, RequestFailure
from app.domain.ids import SessionId
from app.domain.journal.events import ExecutionSuspended
from app.domain.journal.fork import Fork
from app.domain.journal.header import ExecutionHeader
from app.domain.journal.outcomes import RecordedStep
from app.domain.journal.step_key import STOP_KEY, StepKey
from app.orchestration.execution.context import merge_hints
from app.ports.journal import ExecutionHistory


class ForkOverrides(BaseModel):
    """What holds from the first step that is not kept; what is absent stays as it was."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    model: Name | None = Field(None, description="A route or engine name from GET /v1/engines.")
    hints: ExecutionHints | None = Field(None, description="Tuning; hints that it does not name stay.")
    tools: list[ToolName] | None = Field(None, max_length=128, description="Tools to offer; [] none.")
    messages: list[Message] = Field(default_factory=list, description="Said before the next inference.")


class ForkRequest(BaseModel):
    """Where an execution is forked, and what is different from there on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    from_step: int = Field(ge=0, strict=True, description="How many top-level steps are kept as they were recorded.")
    overrides: ForkOverrides = Field(ForkOverrides(), description="What holds from the next step on.")
    session_id: SessionIdText | None = Field(None, description="The session that hears it; none when absent.")


def merge_overrides(origin: ExecutionHeader, asked: ForkRequest) -> SystemRequest:
    """The request as it would have to be, were it asked for whole. Raises: RequestFailure (REQUEST_INVALID)."""
    changed = strip_identity(origin.request)
    changes: tuple[Fork | ForkOverrides, ...] = (*_still_in_force(origin, asked.from_step), asked.overrides)
    for over in changes:
        given = {name: value for name in ("model", "tools") if (value := getattr(over, name)) is not None}
        given |= {"hints": merge_hints(changed.hints, over.hints), "messages": [*changed.messages, *over.messages]}
        changed = changed.model_copy(update=given)
    try:
        return SystemRequest.model_validate(changed.model_dump(by_alias=True))
    except ValidationError as error:
        faults = [{"field": "overrides.messages", "message": fault["msg"]} for fault in error.errors()]
    raise RequestFailure(Code.REQUEST_INVALID, "overrides.messages do not follow what was said", {"errors": faults})


def strip_identity(request: SystemRequest, session_id: SessionId | None = None) -> SystemRequest:
    """The request as the new execution has it, without what is the other one's own."""
    own = {"request_id": None, "session_id": session_id, "trace_id": None, "if_session_busy": "reject"}
    return request.model_copy(update=own)


def fork_execution(
    fresh: ExecutionHeader, origin: ExecutionHistory, asked: ForkRequest, *, tools: Sequence[str] | None
) -> tuple[ExecutionHeader, list[RecordedStep]]:
    """The header of the new execution, and the steps that it begins with.

    `fresh` is the header that it would have otherwise; `tools` are those of the overrides that may be offered. Raises:
    as `kept`.
    """
    before, over = origin.header, asked.overrides
    began_at, rows = _rebased(before, inherited_steps(origin, asked.from_step), fresh.created_at)
    named = None if tools is None else tuple(tools)
    earlier = _still_in_force(before, asked.from_step)
    header = replace(
        fresh,
        request=strip_identity(before.request, asked.session_id),
        bounds=replace(before.bounds, timeout=fresh.bounds.timeout),
        args_key=before.args_key,
        created_at=began_at,
        durability="journaled",
        fork=Fork(before.request_id, asked.from_step, over.model, over.hints, named, tuple(over.messages), earlier),
    )
    return header, rows


def _still_in_force(origin: ExecutionHeader, from_step: int) -> tuple[Fork, ...]:
    """The forks that the origin comes from, one by one, and that changed what comes before that step, or at it."""
    before = () if origin.fork is None else origin.fork.chain
    return tuple(replace(each, earlier=()) for each in before if each.from_step <= from_step)


def inherited_steps(record: ExecutionHistory, from_step: int) -> list[RecordedStep]:
    """The steps of that record which were recorded before this one began.

    Raises: RequestFailure (REQUEST_INVALID) when no such step began: what may have been left undone is not kept.
    """
    numbers = (StepKey(key).step_number for key in _begun(record))
    last = max((number for number in numbers if number is not None), default=0)
    if from_step > last:
        what = f"must be at most {last}, the last step that began"
        errors = [{"field": "from_step", "message": what}]
        raise RequestFailure(Code.REQUEST_INVALID, f"from_step: {what}", {"errors": errors})
    rows: list[RecordedStep] = []
    for key, row in record.steps.items():
        number = StepKey(key).step_number
        if number is not None and number >= from_step:
            break
        if key != STOP_KEY:
            rows.append(row)
    return rows


def _rebased(origin: ExecutionHeader, rows: Sequence[RecordedStep], now: float) -> tuple[float, list[RecordedStep]]:
    """When it would have begun, had the last of the steps ended now, and the steps at their times then.

    So no step seems to have taken as long as lies between the two executions.
    """
    shift = now - max([origin.created_at, *(row.at for row in rows)])
    return origin.created_at + shift, [replace(row, at=row.at + shift) for row in rows]


def _begun(record: ExecutionHistory) -> Iterator[str]:
    """The keys of all that began: what has an outcome, what was told of, and what waits for an answer."""
    yield from record.steps
    for item in record.events:
        yield item.anchor
        if isinstance(item.event, ExecutionSuspended):
            yield from (each.suspension_id for each in item.event.suspensions)
