"""Grants are given with an answer, cover calls of one tool, agent and user, and end. Approvals change suspensions."""

from dataclasses import replace

import pytest

from portico.adapters.stores.grants import DatabaseGrants
from portico.domain.access.principal import AccessScope
from portico.domain.contract.response import GivenApprovals
from portico.domain.ids import ExecutionId, GrantId, RequestId, SessionId, TenantId, UserId
from portico.domain.journal.events import ApprovalGiven
from portico.ports.grants import MAX_USES, Grant, GrantedCall
from portico.ports.storage import OutdatedAnswers, SuspensionAnswers
from tests.support.examples import SUSPENSION, unnumbered
from tests.support.stored_executions import all_suspensions, answered, suspended
from tests.support.stores import StoreReplica

LOCAL, OWNER = TenantId("local"), UserId("ada")
SCOPE = AccessScope(LOCAL, OWNER)
GRANT = Grant(
    grant_id=GrantId("g-1"),
    tenant=LOCAL,
    user=OWNER,
    tool="refund",
    tool_digest="d1",
    scope="session",
    execution_id=ExecutionId("a"),
    request_id=RequestId("r-a"),
    session_id=SessionId("s"),
    agent=None,
    arguments_digest=None,
    granted_by=UserId("boss"),
    granted_at=10.0,
    expires_at=1_800_000_000.0,
)
NOW = 1_790_000_000.0
CALL = GrantedCall(LOCAL, OWNER, ExecutionId("b"), SessionId("s"), None, "refund", "d1", "x")
OTHER_CALLS = (
    replace(CALL, tenant=TenantId("blue")),
    replace(CALL, user=UserId("eve")),
    replace(CALL, session_id=SessionId("t")),
    replace(CALL, session_id=None),
    replace(CALL, agent="helper"),
    replace(CALL, tool="order"),
    replace(CALL, tool_digest="d2"),
)


async def given(here: StoreReplica, *grants: Grant) -> DatabaseGrants:
    """Store the grants with an answer."""
    await suspended(here, "a", "1", "2")
    await here.store.answer("local", "a", SuspensionAnswers([answered("1")], grants=grants))
    return DatabaseGrants(here.database)


async def test_a_grant_covers_calls_of_its_tool_agent_user_and_session_only(here: StoreReplica) -> None:
    grants = await given(here, GRANT)
    assert [await grants.use(each, NOW) for each in OTHER_CALLS] == [None] * len(OTHER_CALLS)
    assert await grants.use(CALL, NOW) == replace(GRANT, uses=1)
    assert list(await grants.grants(SCOPE, NOW)) == [replace(GRANT, uses=1)]


async def test_a_grant_of_an_execution_or_for_the_same_arguments_covers_no_more(here: StoreReplica) -> None:
    own = replace(GRANT, scope="execution", grant_id=GrantId("g-2"), session_id=None)
    same = replace(GRANT, arguments_digest="y", grant_id=GrantId("g-3"))
    grants = await given(here, own, same)
    assert await grants.use(CALL, NOW) is None
    assert (await grants.use(replace(CALL, arguments_digest="y"), NOW) or GRANT).grant_id == "g-3"
    assert (await grants.use(replace(CALL, execution_id=ExecutionId("a")), NOW) or GRANT).grant_id == "g-2"


async def test_a_grant_ends_by_time_by_uses_and_by_revocation(here: StoreReplica) -> None:
    grants = await given(here, GRANT)
    assert await grants.use(CALL, GRANT.expires_at) is None
    assert await grants.grants(SCOPE, GRANT.expires_at) == []
    for scope in (AccessScope(TenantId("blue")), AccessScope(LOCAL, UserId("eve"))):
        assert await grants.grants(scope, NOW) == []
        assert not await grants.revoke(scope, GRANT.grant_id, NOW)
    used = [await grants.use(CALL, NOW) for _ in range(MAX_USES + 1)]
    assert [each is not None for each in used] == [True] * MAX_USES + [False]
    again = await given_again(here, replace(GRANT, grant_id=GrantId("g-9")))
    assert await again.revoke(AccessScope(LOCAL), GrantId("g-9"), NOW)
    assert await again.use(CALL, NOW) is None


async def given_again(here: StoreReplica, grant: Grant) -> DatabaseGrants:
    await here.store.answer("local", "a", SuspensionAnswers([answered("2")], grants=[grant]))
    return DatabaseGrants(here.database)


async def test_an_approval_that_is_not_the_last_changes_its_suspension_and_closes_nothing(here: StoreReplica) -> None:
    await suspended(here, "a", "1")
    asked = SUSPENSION.model_copy(update={"suspension_id": "1"})
    changed = asked.model_copy(update={"approvals": GivenApprovals(needed=2, given=[])})
    events = unnumbered(ApprovalGiven("1", UserId("boss"), 1, 2))
    found = await here.store.load("local", "a")
    assert found is not None
    last = len(found.events)
    receipt = await here.store.answer("local", "a", SuspensionAnswers([], events, [changed], after=last), claim=True)
    assert (receipt.open_suspensions, receipt.commit_count) == (1, found.commit_count + 1)
    assert [each.suspension for each in await all_suspensions(here)] == [changed]
    with pytest.raises(OutdatedAnswers):
        await here.store.answer("local", "a", SuspensionAnswers([], events, [asked], after=last))
    assert [each.suspension for each in await all_suspensions(here)] == [changed]
    after = await here.store.load("local", "a")
    assert after is not None
    assert [each.event for each in after.events[last:]] == [event for _, _, event in events]
