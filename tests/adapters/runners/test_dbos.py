"""The stop of DBOS: its thread that dequeues ends first, so that no workflow is started on a closed event loop."""

import threading
from typing import Any, cast

import pytest

from portico.adapters.runners.dbos import DEQUEUE_THREAD, DbosRunner, SharedQueue, destroy
from portico.adapters.runners.fair_queue import QueueLimits
from portico.adapters.runners.task_pool import open_task_pool
from portico.ports.runtime import QueueTicket
from tests.support.postgres import own_database
from tests.support.replica_processes import wait_until
from tests.support.virtual_time import VirtualClock


class Library:
    """The part of DBOS that a stop uses, with a thread that runs until it is asked to stop."""

    def __init__(self) -> None:
        self.background_thread_stop_events = [threading.Event()]
        self.thread = threading.Thread(target=self.background_thread_stop_events[0].wait, name=DEQUEUE_THREAD)
        self.was_dequeuing: bool | None = None
        self.thread.start()

    def destroy(self, *, destroy_registry: bool) -> None:
        assert destroy_registry
        self.was_dequeuing = self.thread.is_alive()


def test_the_thread_that_dequeues_ends_before_the_library_stops() -> None:
    library = Library()
    try:
        destroy(cast(Any, library))
    finally:
        library.background_thread_stop_events[0].set()
    assert library.was_dequeuing is False


async def is_dequeuing() -> bool:
    return DEQUEUE_THREAD in {thread.name for thread in threading.enumerate()}


@pytest.fixture
def url(postgres_url: str) -> str:
    return own_database(postgres_url)


async def test_the_library_names_that_thread_as_the_stop_expects(url: str) -> None:
    async def waiting() -> int:
        return 0

    async def advance(ticket: QueueTicket) -> None:
        raise AssertionError(ticket)

    def fault(fault: Exception) -> None:
        raise fault

    limits = QueueLimits(max_waiting=5, max_running=3, max_running_per_tenant=2)
    shared = SharedQueue(url, "replica", waiting)
    async with open_task_pool(max_in_flight=3, drain_seconds=1, on_bug=lambda execution_id, bug: None) as pool:
        runner = DbosRunner(pool, limits, shared=shared, clock=VirtualClock(), on_fault=fault)
        async with runner.serving(advance):
            await wait_until(is_dequeuing)
        assert not await is_dequeuing()
