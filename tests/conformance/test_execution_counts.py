"""Conformance of the counts of executions by time, state and duration."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import bindparam, update

from portico.adapters.stores.database import Statement, execute
from portico.adapters.stores.erasure import DatabaseRecords
from portico.adapters.stores.schema import executions
from portico.domain.access.principal import LOCAL, AccessScope
from portico.domain.ids import TenantId, UserId
from portico.domain.lifecycle import Mode, State
from portico.ports.storage import CountSelection, ExecutionCount
from tests.support.stored_executions import journaled
from tests.support.stores import StoreReplica

BEGIN = 1_700_000_040
"""A time on the minute."""
WHOLE = AccessScope(LOCAL.tenant)
SELECTION = CountSelection(float(BEGIN), float(BEGIN + 180), 60)
COLUMNS = ("created_at", "started_at", "entered_at", "state", "model", "provider", "mode", "agent", "user_id", "tenant")
PLACE = Statement(
    lambda _: (
        update(executions)
        .where(executions.c.execution_id == bindparam("the_execution_id"))
        .values({name: bindparam(f"the_{name}", type_=executions.c[name].type) for name in COLUMNS})
    )
)


async def place(here: StoreReplica, created_at: float, seconds: float | None, state: State, **more: Any) -> None:
    """Store an execution that was created then, and ran for so many seconds until it entered its state."""
    number = await here.database.read(lambda: execute(ALL, {}))
    digits = f"{int(created_at * 1_000):012x}"
    execution_id = f"{digits[:8]}-{digits[8:]}-7000-8000-{len(number):012x}"
    await here.journal.open(journaled(execution_id, f"r-{len(number)}"))
    values = {
        "created_at": created_at,
        "started_at": None if seconds is None else created_at,
        "entered_at": created_at + (seconds or 0.0),
        "state": state,
        "model": "small",
        "provider": "one",
        "mode": "chat",
        "agent": None,
        "user_id": "local",
        "tenant": "local",
        **more,
    }
    row = {f"the_{name}": value for name, value in values.items()} | {"the_execution_id": execution_id}
    await here.database.write(lambda: execute(PLACE, row), idempotent=True)


ALL = Statement(lambda _: executions.select())


async def counted(here: StoreReplica, scope: AccessScope = WHOLE, **changes: Any) -> list[ExecutionCount]:
    return list(await DatabaseRecords(here.database).counts(scope, replace(SELECTION, **changes)))


async def test_executions_count_in_the_bucket_of_their_creation_with_their_state_now(here: StoreReplica) -> None:
    for at in (0.0, 59.999, 60.0, 60.5):
        await place(here, BEGIN + at, 5.0, State.COMPLETE)
    await place(here, BEGIN + 179.999, None, State.INIT)
    for outside in (-0.001, 180.0):
        await place(here, BEGIN + outside, 5.0, State.COMPLETE)
    assert await counted(here) == [
        ExecutionCount(BEGIN, State.COMPLETE, 4, 2),
        ExecutionCount(BEGIN + 60, State.COMPLETE, 4, 2),
        ExecutionCount(BEGIN + 120, State.INIT, None, 1),
    ]


@pytest.mark.parametrize(
    ("seconds", "state", "duration_class"),
    [
        (0.0, State.COMPLETE, 0),
        (0.25, State.ERROR, 1),
        (1.0, State.CANCELLED, 2),
        (1.5, State.COMPLETE, 3),
        (3_600.0, State.COMPLETE, 9),
        (9_999.0, State.COMPLETE, 10),
        (5.0, State.EXECUTE, None),
        (5.0, State.SUSPENDED, None),
        (None, State.CANCELLED, None),
    ],
)
async def test_only_what_ran_to_an_end_has_a_duration(
    here: StoreReplica, seconds: float | None, state: State, duration_class: int | None
) -> None:
    await place(here, float(BEGIN), seconds, state)
    assert await counted(here) == [ExecutionCount(BEGIN, state, duration_class, 1)]


async def test_counts_stay_in_their_scope_and_follow_the_filters(here: StoreReplica) -> None:
    await place(here, float(BEGIN), 5.0, State.COMPLETE)
    await place(here, float(BEGIN), 5.0, State.COMPLETE, user_id="eve", agent="support", model="large", mode="plan")
    await place(here, float(BEGIN), 5.0, State.COMPLETE, tenant="other")
    for scope, number in (
        (WHOLE, 2),
        (LOCAL.own, 1),
        (AccessScope(LOCAL.tenant, UserId("bob")), 0),
        (AccessScope(TenantId("other")), 1),
    ):
        assert sum(each.number for each in await counted(here, scope)) == number
    filters: list[tuple[dict[str, Any], int]] = [
        ({"agent": "support"}, 1),
        ({"model": "large"}, 1),
        ({"model": "one"}, 2),
        ({"mode": Mode.CHAT}, 1),
        ({"mode": Mode.PLAN, "agent": "support", "model": "large"}, 1),
        ({"mode": Mode.FLOW}, 0),
        ({"width": 3_600, "since": float(BEGIN - BEGIN % 3_600), "until": float(BEGIN - BEGIN % 3_600 + 3_600)}, 2),
    ]
    for changes, number in filters:
        assert sum(each.number for each in await counted(here, **changes)) == number
