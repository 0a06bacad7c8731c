"""Recovery: which stored executions are queued, claimed, released, or ended."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

import pytest

from portico.bootstrap.service import PATTERNS
from portico.domain.failures import Code, StorageFailure
from portico.domain.journal.events import StoredEvent
from portico.domain.lifecycle import State
from portico.orchestration.runtime.launcher import Launcher
from portico.orchestration.runtime.recovery import Recovery
from portico.orchestration.runtime.resume import status_of
from portico.ports.journal import ExecutionHistory
from portico.ports.runtime import QueueTicket, ReservedPlace
from portico.ports.storage import RecoveryTicket, StoredExecution
from tests.support.harness import Harness, chat_request, make_harness, scripted_engine
from tests.support.virtual_time import VirtualClock

ORPHAN = RecoveryTicket("e-1", "local", None, epoch=3)
OWNED = RecoveryTicket("e-2", "local", "replica-2", epoch=1)
NEWER_RELEASE = StorageFailure(Code.STORAGE_SNAPSHOT_INVALID, "a stored execution was written by a later version")


@dataclass
class FakeStore:
    """A store that finds the given tickets and lets one history be claimed."""

    tickets: Sequence[RecoveryTicket] = ()
    claimable: ExecutionHistory | StorageFailure | None = None
    claims: list[tuple[str, int]] = field(default_factory=list)
    released: list[tuple[str, int]] = field(default_factory=list)

    async def orphaned(self, alive: Collection[str]) -> Sequence[RecoveryTicket]:
        return [each for each in self.tickets if each.owner not in alive]

    async def expired(self) -> Sequence[RecoveryTicket]:
        return self.tickets

    async def find_all(self, tenant: str, execution_ids: Sequence[str]) -> Sequence[StoredExecution]:
        return []

    async def cancel_requested(self) -> Sequence[RecoveryTicket]:
        return self.tickets

    async def claim(self, execution_id: str, epoch: int, *, cancel: bool = False) -> ExecutionHistory | None:
        self.claims.append((execution_id, epoch))
        if isinstance(self.claimable, StorageFailure):
            raise self.claimable
        return self.claimable

    async def release(self, execution_id: str, epoch: int) -> None:
        self.released.append((execution_id, epoch))


@dataclass
class FakeRunner:
    """A runner that keeps what it is given until the test runs it."""

    queued: list[QueueTicket] = field(default_factory=list)
    started: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    is_draining: bool = False

    def start(self, _execution_id: str, body: Callable[[], Awaitable[None]]) -> None:
        self.started.append(body)

    def reserve(self) -> ReservedPlace:
        raise AssertionError("recovery writes nothing before it starts")

    async def admit(self) -> None:
        raise AssertionError("recovery queues what was admitted before")

    async def queue(self, ticket: QueueTicket) -> None:
        self.queued.append(ticket)


def harness(clock: VirtualClock) -> Harness:
    return make_harness(clock, scripted_engine(clock, "a", {"text": "first"}, {"text": "second"}))


def recovery_of(here: Harness, store: FakeStore, runner: FakeRunner) -> Recovery:
    return Recovery(store, Launcher(here.environment, runner, PATTERNS), here.environment.clock)


def stored_events(here: Harness) -> list[StoredEvent]:
    """Return the events that were published, without deltas."""
    return [item for item in here.log.items if isinstance(item, StoredEvent)]


async def interrupted(clock: VirtualClock) -> ExecutionHistory:
    """Return the history of a chat whose process died after PREPARE."""
    _, history = await harness(clock).run(chat_request())
    prepared = next(index for index, item in enumerate(history.events) if item.event.type == "inference.start")
    steps = {key: step for key, step in history.steps.items() if key == "prepare"}
    return replace(history, steps=steps, events=history.events[:prepared], commit_count=1, epoch=2)


async def test_an_unowned_execution_is_queued_when_it_is_found_a_second_time(clock: VirtualClock) -> None:
    runner = FakeRunner()
    recovery = recovery_of(harness(clock), FakeStore([ORPHAN]), runner)
    assert await recovery.recover(alive=(), gone=()) == 0
    assert await recovery.recover(alive=(), gone=()) == 1
    assert runner.queued == [QueueTicket("local", "e-1", 3)]


async def test_an_execution_that_was_claimed_in_between_starts_counting_again(clock: VirtualClock) -> None:
    store, runner = FakeStore([ORPHAN]), FakeRunner()
    recovery = recovery_of(harness(clock), store, runner)
    await recovery.recover(alive=(), gone=())
    store.tickets = [replace(ORPHAN, epoch=4)]
    assert await recovery.recover(alive=(), gone=()) == 0


@pytest.mark.parametrize("gone", [None, ["replica-2"]])
async def test_executions_of_a_dead_owner_are_queued_at_once(clock: VirtualClock, gone: Collection[str] | None) -> None:
    runner = FakeRunner()
    assert await recovery_of(harness(clock), FakeStore([OWNED]), runner).recover(alive=(), gone=gone) == 1
    assert runner.queued == [QueueTicket("local", "e-2", 1)]


async def test_executions_of_a_live_owner_are_left_alone(clock: VirtualClock) -> None:
    recovery = recovery_of(harness(clock), FakeStore([OWNED]), FakeRunner())
    assert [await recovery.recover(alive=["replica-2"], gone=()) for _ in range(2)] == [0, 0]


async def test_a_claimed_execution_continues_after_its_last_recorded_step(clock: VirtualClock) -> None:
    history, here = await interrupted(clock), harness(clock)
    store = FakeStore(claimable=history)
    await recovery_of(here, store, FakeRunner()).run_ticket(QueueTicket("local", history.header.execution_id, 1))
    assert store.claims == [(history.header.execution_id, 1)]
    events = stored_events(here)
    first = len(history.events) + 1
    assert [item.sequence_number for item in events] == list(range(first, first + len(events)))
    assert "stage.end" not in {item.event.type for item in events[:-4]}
    assert status_of(replace(history, events=[*history.events, *events])).state is State.COMPLETE


async def test_a_claimed_execution_that_a_client_cancelled_ends_before_it_does_anything(clock: VirtualClock) -> None:
    history, here = await interrupted(clock), harness(clock)
    store = FakeStore(claimable=replace(history, cancel_requested=True))
    await recovery_of(here, store, FakeRunner()).run_ticket(QueueTicket("local", history.header.execution_id, 1))
    events = stored_events(here)
    assert "inference.start" not in {item.event.type for item in events}
    status = status_of(replace(history, events=[*history.events, *events]))
    assert (status.state, status.last_error) == (State.CANCELLED, Code.CANCELLED_SIGNAL)


async def test_an_execution_that_another_replica_claimed_is_not_run(clock: VirtualClock) -> None:
    here, runner = harness(clock), FakeRunner()
    await recovery_of(here, FakeStore(claimable=None), runner).run_ticket(QueueTicket("local", "e-1", 3))
    assert (runner.started, here.log.items) == ([], [])


async def test_an_execution_of_a_newer_pattern_is_released_and_not_queued_again(clock: VirtualClock) -> None:
    history = await interrupted(clock)
    newer = replace(history, header=replace(history.header, pattern_version=99))
    ticket = RecoveryTicket(history.header.execution_id, "local", None, epoch=1)
    store, runner = FakeStore([ticket], claimable=newer), FakeRunner()
    recovery = recovery_of(harness(clock), store, runner)
    await recovery.recover(alive=(), gone=None)
    await recovery.run_ticket(runner.queued.pop())
    assert store.released == [(history.header.execution_id, newer.epoch)]
    assert await recovery.recover(alive=(), gone=None) == 0


async def test_an_execution_of_a_newer_release_is_left_unchanged(clock: VirtualClock) -> None:
    store, runner = FakeStore([ORPHAN], claimable=NEWER_RELEASE), FakeRunner()
    recovery = recovery_of(harness(clock), store, runner)
    assert [await recovery.expire() for _ in range(2)] == [1, 1]
    assert (store.claims, runner.started) == ([("e-1", 3)], [])


@pytest.mark.parametrize(("sweep", "code"), [("expire", "CANCELLED_TIMEOUT"), ("process_cancels", "CANCELLED_SIGNAL")])
async def test_an_execution_that_waits_is_ended_by_expiry_and_by_a_cancel(
    clock: VirtualClock, sweep: str, code: str
) -> None:
    history, here, runner = await interrupted(clock), harness(clock), FakeRunner()
    recovery = recovery_of(here, FakeStore([ORPHAN], claimable=history), runner)
    assert await getattr(recovery, sweep)() == 1
    await runner.started.pop()()
    status = status_of(replace(history, events=[*history.events, *stored_events(here)]))
    assert (status.state, status.last_error) == (State.CANCELLED, Code(code))
