"""Stored executions in every state, for tests of the stores."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from portico.domain.access.principal import LOCAL, AccessScope
from portico.domain.failures import Code, RequestFailure
from portico.domain.journal.events import Event, ExecutionSuspended, LifecycleTransition
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import RecordedStep, SuspensionAnswer
from portico.domain.lifecycle import State
from portico.ports.storage import OpenSuspension, OtherUsers, SuspensionFilter
from tests.support.examples import (
    SUSPENSION,
    header,
    response,
    unnumbered,
)
from tests.support.stores import StoreReplica

EVER = 10_000


def journaled(
    execution_id: str,
    request_id: str = "r-1",
    tenant: str = "local",
    session_id: str | None = None,
    busy: str = "reject",
) -> ExecutionHeader:
    """A header of an execution that is committed step by step."""
    plain = header(execution_id, request_id, tenant)
    request = plain.request.model_copy(update={"session_id": session_id, "if_session_busy": busy})
    return replace(plain, durability="journaled", request=request)


def moved(to: State) -> LifecycleTransition:
    return LifecycleTransition(State.EXECUTE, to, 1, "because")


async def begun(here: StoreReplica, execution_id: str, request_id: str = "r-1", *events: Event) -> None:
    """An execution with these events in one durable commit."""
    await here.journal.open(journaled(execution_id, request_id))
    here.journal.put(execution_id, (), unnumbered(*events))
    await here.journal.durable(execution_id)


async def suspended(here: StoreReplica, execution_id: str = "a", *questions: str) -> None:
    """An execution that waits for the answers to these questions, and is closed here."""
    asked = tuple(SUSPENSION.model_copy(update={"suspension_id": each}) for each in questions or ("1",))
    last = ExecutionSuspended(asked, response(State.SUSPENDED))
    await begun(here, execution_id, f"r-{execution_id}", moved(State.SUSPENDED), last)
    here.journal.close(execution_id)


def answered(key: str = "1") -> RecordedStep:
    return RecordedStep(key, "f" * 32, SuspensionAnswer({"decision": "approve"}), 1.0)


async def refused(code: Code, work: object) -> None:
    with pytest.raises(RequestFailure) as caught:
        await work
    assert caught.value.code is code


async def all_suspensions(here: StoreReplica, scope: AccessScope = LOCAL.own) -> Sequence[OpenSuspension]:
    """Return the open suspensions of that user."""
    return (await here.records.suspensions(scope, SuspensionFilter(), OtherUsers.NONE, limit=EVER)).items
