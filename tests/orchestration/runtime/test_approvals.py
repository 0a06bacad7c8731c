"""Approvals on stored executions: random answers of several users, grants and expiries replay identically offline."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from portico.adapters.runners.log_tailer import LogTailer
from portico.adapters.stores.executions.store import DatabaseExecutionStore
from portico.adapters.stores.grants import DatabaseGrants
from portico.adapters.stores.sqlite import open_sqlite
from portico.bootstrap.service import PATTERNS
from portico.domain.access.principal import ALL, AccessScope, Principal
from portico.domain.access.tool_policy import ApprovalTerms, PolicyRule, PolicyRules
from portico.domain.contract.response import SystemResponse, ToolCallMade, ToolCallStatus
from portico.domain.failures import Code, RequestFailure
from portico.domain.ids import RequestId, TenantId, UserId
from portico.domain.lifecycle import State
from portico.orchestration.execution.execution import Execution
from portico.orchestration.executions import Executions
from portico.orchestration.runtime.launcher import Launcher
from portico.orchestration.runtime.recovery import Recovery
from portico.orchestration.runtime.resume import GivenAnswer, ResumeRequest
from portico.ports.journal import ExecutionHistory
from portico.ports.runtime import QueueTicket
from portico.ports.storage import StoredExecution
from tests.orchestration.execution.test_call_permission import DONE, Shop, calls
from tests.orchestration.execution.test_call_permission import refund as a_refund
from tests.support.harness import Harness, chat_request, replay_offline
from tests.support.seeds import seeds
from tests.support.stores import StoreReplica, in_own_task, open_replica
from tests.support.virtual_time import VirtualClock

LARGE = {"properties": {"amount": {"exclusiveMinimum": 100}}}
USERS = ("ada", "boss", "chief")


@dataclass
class Runner:
    """A runner that keeps what it is given until the test runs it."""

    bodies: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    queued: list[QueueTicket] = field(default_factory=list)
    is_draining: bool = False

    def start(self, _execution_id: str, body: Callable[[], Awaitable[None]]) -> None:
        self.bodies.append(body)

    async def queue(self, ticket: QueueTicket) -> None:
        self.queued.append(ticket)


def principal_of(user: str) -> Principal:
    return Principal(TenantId("local"), UserId(user), permissions=ALL)


@dataclass
class World:
    """A shop on a stored journal, with everything that answers its questions."""

    shop: Shop
    here: Harness
    replica: StoreReplica
    runner: Runner
    recovery: Recovery
    executions: Executions
    request_id = RequestId("q")

    async def begin(self, **fields: Any) -> None:
        """Run a request of ada's until it ends or waits."""
        drawn = self.here.execution(chat_request(tools=["refund"], **fields)).header
        header = replace(drawn, request_id=self.request_id, user=UserId("ada"), durability="journaled")
        await self.replica.journal.open(header)
        execution = Execution(header, environment=self.here.environment, journal=self.replica.journal)
        await self.here.drive(execution, PATTERNS[header.mode].run)
        self.replica.journal.close(header.execution_id)

    async def answer(self, user: str, payload: dict[str, Any], suspension_id: str | None = None) -> Code | None:
        """Answer as that user and run what goes on; return the code of a refusal."""
        given = GivenAnswer(payload=payload, suspension_id=suspension_id)
        principal = principal_of(user)
        try:
            request = ResumeRequest(answers=[given])
            await self.executions.resume(principal, self.request_id, request, subscribe=False)
        except RequestFailure as refused:
            return refused.code
        await self.go_on()
        return None

    async def expire(self) -> None:
        """Let the maintenance look for what has expired, and run what goes on."""
        await self.recovery.expire()
        while self.runner.queued:
            await self.recovery.run_ticket(self.runner.queued.pop())
        await self.go_on()

    async def go_on(self) -> None:
        while self.runner.bodies:
            await self.runner.bodies.pop()()

    async def record(self) -> ExecutionHistory:
        stored = await self.replica.store.find(principal_of("ada").own, self.request_id)
        assert stored is not None
        history = await self.replica.store.load(stored.tenant, stored.execution_id)
        assert history is not None
        return history

    async def response(self) -> SystemResponse:
        shown = await self.executions.show(principal_of("ada"), self.request_id)
        assert shown.response is not None
        return shown.response


@pytest.fixture
async def replica(clock: VirtualClock, tmp_path: Path) -> AsyncIterator[StoreReplica]:
    async with (
        in_own_task(open_sqlite(tmp_path / "portico.db")) as database,
        in_own_task(open_replica(database, clock)) as opened,
    ):
        yield opened


def world(clock: VirtualClock, replica: StoreReplica, *replies: Any, rules: PolicyRules) -> World:
    shop, runner = Shop(), Runner()
    here = shop.harness(clock, *replies, rules=rules)
    grants = DatabaseGrants(replica.database)
    here.environment = replace(
        here.environment, journal=replica.journal, conversations=replica.conversations, grants=grants
    )
    launcher = Launcher(here.environment, runner, PATTERNS)
    recovery = Recovery(replica.store, launcher, clock)
    tailer = LogTailer(replica.store, here.bus)
    executions = Executions(here.environment, replica.store, launcher=launcher, recovery=recovery, event_tailer=tailer)
    return World(shop, here, replica, runner, recovery, executions)


def rules_of(**terms: Any) -> PolicyRules:
    return PolicyRules(
        approve=(
            PolicyRule("refund", LARGE, terms=ApprovalTerms(2, 100, "deny")),
            PolicyRule("refund", terms=ApprovalTerms(1, 60, **terms)),
        )
    )


async def test_an_approval_that_is_not_given_in_time_denies_the_call_and_the_execution_goes_on(
    clock: VirtualClock, replica: StoreReplica
) -> None:
    it = world(clock, replica, calls(a_refund(10)), DONE, rules=rules_of(on_expiry="deny"))
    await it.begin()
    assert (await it.response()).suspensions[0].on_expiry == "deny"
    await clock.sleep(59)
    await it.expire()
    assert (await it.response()).state is State.SUSPENDED
    await clock.sleep(2)
    assert await it.answer("boss", {"decision": "approve"}) is Code.REQUEST_RESUME_MISMATCH
    await it.expire()
    response = await it.response()
    [call] = response.tool_calls_made
    assert (response.state, call.result) == (State.COMPLETE, "not approved: nobody answered in time")
    assert call.decision is not None
    assert (call.decision.verdict, call.decision.by, it.shop.acts) == ("expired", [], [])
    replay_offline(await it.record(), PATTERNS[response.mode].run)


async def test_by_default_an_execution_whose_approval_expires_is_cancelled(
    clock: VirtualClock, replica: StoreReplica
) -> None:
    it = world(clock, replica, calls(a_refund(10)), DONE, rules=rules_of())
    await it.begin()
    await clock.sleep(61)
    await it.expire()
    assert ((await it.response()).state, it.shop.acts) == (State.CANCELLED, [])


class InterruptedStore(DatabaseExecutionStore):
    """A store that lets something happen once, behind the next look at an execution."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def find(
        self, scope: AccessScope, request_id: RequestId, *, with_header: bool = False
    ) -> StoredExecution | None:
        found = await super().find(scope, request_id, with_header=with_header)
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return found


async def test_an_edit_while_a_second_user_answers_is_not_approved_unseen(
    clock: VirtualClock, replica: StoreReplica
) -> None:
    store = InterruptedStore(replica.database, clock, replica.name, replica.sink)
    it = world(clock, replace(replica, store=store), calls(a_refund(500)), DONE, rules=rules_of())
    await it.begin()
    assert await it.answer("boss", {"decision": "approve"}) is None
    store.meanwhile = partial(it.answer, "ada", {"decision": "approve", "arguments": {"amount": 400}})
    assert await it.answer("chief", {"decision": "approve"}) is None
    [open_question] = (await it.executions.show(principal_of("ada"), it.request_id)).suspensions
    assert open_question.approvals is not None
    assert [each.user for each in open_question.approvals.given] == ["chief"]
    assert (open_question.approvals.arguments, it.shop.acts) == (None, [])
    assert await it.answer("boss", {"decision": "approve"}) is None
    assert it.shop.acts == [500]


async def test_a_grant_ends_after_twenty_uses(clock: VirtualClock, replica: StoreReplica) -> None:
    rounds = [calls(a_refund(1)), *[calls(a_refund(2 + number)) for number in range(21)], DONE]
    it = world(clock, replica, *rounds, rules=rules_of())
    it.here.limits = replace(it.here.limits, tool_rounds=30)
    await it.begin()
    assert await it.answer("boss", {"decision": "approve", "grant": {"for": "execution", "seconds": 60}}) is None
    response = await it.response()
    assert (response.state, len(it.shop.acts)) == (State.SUSPENDED, 21)
    assert [call.decision.verdict for call in response.tool_calls_made if call.decision] == [
        "approved",
        *["granted"] * 20,
    ]


@pytest.mark.parametrize("seed", seeds(200))
async def test_random_answers_of_several_users_replay_identically(
    clock: VirtualClock, replica: StoreReplica, seed: int
) -> None:
    draw = Random(seed)
    amounts = [[draw.choice((10, 20, 50, 200, 300)) for _ in range(draw.randint(1, 3))] for _ in range(3)]
    replies = [calls(*map(a_refund, each)) for each in amounts]
    rules = rules_of(on_expiry=draw.choice(("cancel", "deny")), grants=draw.random() < 0.8)
    it = world(clock, replica, *replies, DONE, rules=rules)
    session = {"session_id": "s"} if draw.random() < 0.5 else {}
    await it.begin(**session)
    for _ in range(60):
        response = await it.response()
        await check_replay(it)
        if response.state is not State.SUSPENDED:
            break
        await random_step(it, clock, draw)
    response = await it.response()
    assert response.state in {State.COMPLETE, State.CANCELLED}
    check_acts(it, response)


async def random_step(it: World, clock: VirtualClock, draw: Random) -> None:
    """Let time pass, or one user answer an open question."""
    if draw.random() < 0.15:
        await clock.sleep(draw.choice((30, 70, 110)))
        return await it.expire()
    ada = principal_of("ada")
    view = await it.executions.show(ada, it.request_id)
    payload: dict[str, Any] = {"decision": "approve" if draw.random() < 0.9 else "deny"}
    if payload["decision"] == "approve" and draw.random() < 0.4:
        payload["arguments"] = {"amount": draw.choice((15, 50, 150, 300))}
    if payload["decision"] == "approve" and draw.random() < 0.3:
        payload["grant"] = {
            "for": draw.choice(("execution", "session")),
            "seconds": 60,
            "match": draw.choice(("tool", "arguments")),
        }
    await it.answer(draw.choice(USERS), payload, draw.choice(view.suspensions).suspension_id)
    return None


async def check_replay(it: World) -> None:
    principal = principal_of("ada")
    assert (await it.executions.replay(principal, it.request_id)).identical


def check_acts(it: World, response: SystemResponse) -> None:
    """Check that what was done is what users had approved, large amounts two of them."""
    done: list[ToolCallMade] = [call for call in response.tool_calls_made if call.status is ToolCallStatus.DONE]
    assert sorted(it.shop.acts) == sorted(call.arguments["amount"] for call in done)
    for call in done:
        assert call.decision is not None
        users = {each.user for each in call.decision.by}
        assert call.decision.verdict in {"approved", "granted"}
        asked = call.arguments if call.asked_arguments is None else call.asked_arguments
        assert len(users) >= (2 if max(call.arguments["amount"], asked["amount"]) > 100 else 1)
