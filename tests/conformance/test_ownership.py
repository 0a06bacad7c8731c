"""Data of another tenant or another user does not exist, on both databases."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from portico.domain.access.principal import LOCAL, AccessScope
from portico.domain.contract.response import Suspension, SuspensionKind
from portico.domain.failures import Code, Failure
from portico.domain.ids import UserId
from portico.domain.journal.events import ExecutionSuspended
from portico.domain.journal.header import ExecutionHeader
from portico.domain.lifecycle import State
from portico.ports.journal import IdempotencyClaim, IdempotencyHit
from portico.ports.storage import ExecutionFilter, OtherUsers, SuspensionAnswers, SuspensionFilter
from tests.support.examples import COMPLETED, SUSPENSION, response, unnumbered
from tests.support.stored_executions import EVER, all_suspensions, answered, journaled, moved, refused, suspended
from tests.support.stores import StoreReplica

FOREIGN = (AccessScope("other"), AccessScope("local", "eve"))
"""The scopes of another tenant and of another user."""
MISSING = Code.REQUEST_NOT_FOUND


def of_user(user: str, execution_id: str, request_id: str, **changes: str | None) -> ExecutionHeader:
    return replace(journaled(execution_id, request_id, **changes), user=UserId(user))


async def ended(here: StoreReplica, header: ExecutionHeader) -> None:
    await here.journal.open(header)
    here.journal.put(header.execution_id, (), unnumbered(moved(State.COMPLETE), COMPLETED), header.request.messages)
    await here.journal.durable(header.execution_id)
    here.journal.close(header.execution_id)


async def refusal(here: StoreReplica, header: ExecutionHeader) -> Code:
    with pytest.raises(Failure) as caught:
        await here.journal.open(header)
    return caught.value.code


@pytest.mark.parametrize("scope", FOREIGN, ids=["tenant", "user"])
async def test_a_foreign_execution_does_not_exist(here: StoreReplica, scope: AccessScope) -> None:
    await suspended(here, "a")
    assert await here.store.find(scope, "r-a") is None
    assert (await here.store.executions(scope, ExecutionFilter(), limit=EVER)).items == []
    assert await all_suspensions(here, scope) == []
    assert len(await all_suspensions(here)) == 1


async def test_an_internal_id_of_another_tenant_finds_nothing(here: StoreReplica) -> None:
    await suspended(here, "a")
    assert await here.store.load("other", "a") is None
    assert await here.store.events("other", "a", limit=EVER) is None
    await refused(Code.REQUEST_RESUME_UNEXPECTED, here.store.answer("other", "a", SuspensionAnswers([answered()])))


@pytest.mark.parametrize("scope", FOREIGN, ids=["tenant", "user"])
async def test_a_foreign_session_does_not_exist(here: StoreReplica, scope: AccessScope) -> None:
    await ended(here, journaled("a", "r-a", session_id="s"))
    assert await here.conversations.session(scope, "s") is None
    assert (await here.conversations.sessions(scope, limit=EVER)).items == []
    assert await here.conversations.update(scope, "s", {"model": "m"}) is None
    assert await here.conversations.messages(scope, "s", limit=EVER) == []
    assert await here.conversations.transcript(scope, "s", "a") == ()
    assert (await here.conversations.history(scope, "s", limit=EVER)).message_count == 0
    assert await here.records.forks_of_session(scope, "s") == []
    assert await here.records.erase_session(scope, "s", with_forks=True) is None
    session = await here.conversations.session(LOCAL.own, "s")
    assert session is not None
    assert (session.message_count, session.details) == (1, {})


async def test_the_whole_tenant_is_a_scope_too(here: StoreReplica) -> None:
    for number, user in enumerate(("ada", "eve")):
        await ended(here, of_user(user, f"e-{number}", f"r-{number}", session_id=f"s-{number}"))
    tenant = AccessScope("local")
    found = (await here.store.executions(tenant, ExecutionFilter(), limit=EVER)).items
    assert [(each.request_id, each.user) for each in found] == [("r-1", "eve"), ("r-0", "ada")]
    assert [each.session_id for each in (await here.conversations.sessions(tenant, limit=EVER)).items] == ["s-1", "s-0"]
    for user, number in (("ada", 0), ("eve", 1)):
        own = AccessScope("local", user)
        assert [each.request_id for each in (await here.store.executions(own, ExecutionFilter(), limit=9)).items] == [
            f"r-{number}"
        ]
        assert [each.session_id for each in (await here.conversations.sessions(own, limit=9)).items] == [f"s-{number}"]


@pytest.mark.parametrize("busy", ["reject", "enqueue"])
@pytest.mark.parametrize("holds_turn", [True, False], ids=["busy", "idle"])
async def test_no_turn_begins_in_the_session_of_another_user(
    here: StoreReplica, there: StoreReplica, busy: str, *, holds_turn: bool
) -> None:
    first = of_user("ada", "a", "r-a", session_id="s")
    await (here.journal.open(first) if holds_turn else ended(here, first))
    foreign = of_user("eve", "b", "r-b", session_id="s", busy=busy)
    assert await refusal(there, foreign) is MISSING
    with pytest.raises(Failure) as caught:
        await there.conversations.session_of_turn(foreign.scope, "s")
    assert caught.value.code is MISSING
    assert await there.store.find(foreign.scope, "r-b") is None
    session = await here.conversations.session(first.scope, "s")
    assert session is not None
    assert session.busy is holds_turn


async def test_a_turn_does_not_wait_in_a_session_that_became_anothers(here: StoreReplica) -> None:
    gone = of_user("ada", "a", "r-a", session_id="s")
    await ended(here, of_user("eve", "b", "r-b", session_id="s"))
    with pytest.raises(Failure) as caught:
        await here.conversations.acquire_turn(gone.scope, "s", "a", limit=EVER, on_wait=lambda: None)
    assert caught.value.code is MISSING


async def test_a_request_id_is_unique_in_a_tenant(here: StoreReplica) -> None:
    await ended(here, of_user("ada", "a", "r-a"))
    assert await refusal(here, of_user("eve", "b", "r-a")) is Code.REQUEST_ID_CONFLICT
    await here.journal.open(replace(of_user("eve", "c", "r-a"), tenant="other"))


async def test_an_idempotency_key_belongs_to_a_user(here: StoreReplica, there: StoreReplica) -> None:
    claim = IdempotencyClaim("key", "digest")
    for number, user in enumerate(("local", "ada", "eve")):
        assert await here.journal.open(of_user(user, f"e-{number}", f"r-{number}"), claim) is None
    for number, user in enumerate(("local", "ada", "eve")):
        again = await there.journal.open(of_user(user, f"e-{number + 5}", f"r-{number + 5}"), claim)
        assert isinstance(again, IdempotencyHit)
        assert again.request_id == f"r-{number}"


def question(key: str, kind: SuspensionKind, at: datetime, **value: str) -> Suspension:
    return SUSPENSION.model_copy(
        update={"suspension_id": key, "kind": kind, "tool_id": f"step.{key}", "value": value, "asked_at": at}
    )


async def waiting(here: StoreReplica, header: ExecutionHeader, *asked: Suspension) -> None:
    await here.journal.open(header)
    last = ExecutionSuspended(asked, response(State.SUSPENDED))
    here.journal.put(header.execution_id, (), unnumbered(moved(State.SUSPENDED), last))
    await here.journal.durable(header.execution_id)
    here.journal.close(header.execution_id)


EARLY, LATE = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)


async def three_users_wait(here: StoreReplica) -> None:
    """Let three users each have a question and a call that waits for an approval; the last one is of another tenant."""
    for number, (tenant, user) in enumerate((("local", "ada"), ("local", "eve"), ("other", "ada"))):
        header = replace(of_user(user, f"e-{number}", f"r-{number}", session_id=f"s-{number}"), tenant=tenant)
        asked = question("1", SuspensionKind.QUESTION, EARLY), question("2", SuspensionKind.APPROVAL, LATE, tool="mail")
        await waiting(here, header, *asked)


@pytest.mark.parametrize(
    ("others", "shown"),
    [
        (OtherUsers.NONE, ["r-0/1", "r-0/2"]),
        (OtherUsers.CALLS, ["r-0/1", "r-0/2", "r-1/2"]),
        (OtherUsers.ALL, ["r-0/1", "r-0/2", "r-1/1", "r-1/2"]),
    ],
)
async def test_suspensions_of_other_users_are_listed_only_as_far_as_one_may_see_them(
    here: StoreReplica, others: OtherUsers, shown: list[str]
) -> None:
    await three_users_wait(here)
    found: list[str] = []
    after: str | None = None
    while True:
        page = await here.records.suspensions(
            AccessScope("local", "ada"), SuspensionFilter(), others, after=after, limit=1
        )
        found += [f"{each.request_id}/{each.suspension.suspension_id}" for each in page.items]
        after = page.next
        if after is None:
            break
    assert found == shown


@pytest.mark.parametrize(
    ("where", "shown"),
    [
        (SuspensionFilter(user=UserId("eve")), ["r-1/1", "r-1/2"]),
        (SuspensionFilter(session_id="s-1", kind=SuspensionKind.APPROVAL), ["r-1/2"]),
        (SuspensionFilter(request_id="r-0"), ["r-0/1", "r-0/2"]),
        (SuspensionFilter(request_id="r-2"), []),
        (SuspensionFilter(tool="mail"), ["r-0/2", "r-1/2"]),
        (SuspensionFilter(tool="step.1"), ["r-0/1", "r-1/1"]),
        (SuspensionFilter(since=LATE.timestamp()), ["r-0/2", "r-1/2"]),
        (SuspensionFilter(since=LATE.timestamp() + 1), []),
    ],
)
async def test_suspensions_are_filtered(here: StoreReplica, where: SuspensionFilter, shown: list[str]) -> None:
    await three_users_wait(here)
    page = await here.records.suspensions(AccessScope("local", "ada"), where, OtherUsers.ALL, limit=EVER)
    assert [f"{each.request_id}/{each.suspension.suspension_id}" for each in page.items] == shown
