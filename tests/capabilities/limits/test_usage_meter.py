"""Usage meter: totals of processes and executions, each stored as often as it changes and counted once."""

from collections import Counter

import pytest

from portico.capabilities.limits.usage_meter import ExecutionUsage, UsageMeter
from portico.domain.failures import Code, StorageFailure
from portico.domain.journal.header import ExecutionHeader
from portico.ports.limits import UsageCounts
from portico.ports.runtime import Clock
from tests.support.harness import Harness, chat_request, make_harness, scripted_engine
from tests.support.limits import RecordedUsage
from tests.support.virtual_time import VirtualClock

HOUR = 3_600.0
ONE = {"input_tokens": 10, "output_tokens": 2, "cost": 0.5}


@pytest.fixture
def harness(clock: VirtualClock) -> Harness:
    return make_harness(clock, scripted_engine(clock, "a"))


@pytest.fixture
def stored() -> RecordedUsage:
    return RecordedUsage()


def header(harness: Harness, clock: Clock) -> ExecutionHeader:
    return harness.execution(chat_request(), created_at=clock.now()).header


def begun(meter: UsageMeter, execution: ExecutionHeader, *, journaled: bool = False) -> ExecutionUsage:
    meter.begin(execution, lambda: journaled)
    usage = meter.of(execution.execution_id)
    assert usage is not None
    return usage


async def test_executions_in_memory_add_to_one_total(
    harness: Harness, clock: VirtualClock, stored: RecordedUsage
) -> None:
    meter = UsageMeter(stored, "process")
    for _ in range(3):
        execution = header(harness, clock)
        usage = begun(meter, execution)
        for _ in range(2):
            usage.add("m", clock.now(), **ONE)
        await meter.flush()
        meter.end(execution.execution_id)
        await meter.flush()
    by_model = {key.model: counts for key, counts in stored.process.items()}
    assert by_model == {"": UsageCounts(executions=3), "m": UsageCounts(3, 60, 12, 3.0)}
    assert stored.executions == {}
    writes = stored.writes
    await meter.flush()
    assert stored.writes == writes == 6


async def test_an_execution_that_goes_on_elsewhere_is_counted_once(
    harness: Harness, clock: VirtualClock, stored: RecordedUsage
) -> None:
    """The first owner dies between two writes; the next one replays what is recorded and adds an attempt."""
    execution = header(harness, clock)
    first = UsageMeter(stored, "first")
    usage, at = begun(first, execution, journaled=True), clock.now()
    usage.add("m", at, **ONE)
    await first.flush()
    usage.add("m", at, **ONE)
    second = UsageMeter(stored, "second")
    usage = begun(second, execution, journaled=True)
    await second.flush()
    assert stored.total == UsageCounts(2, 10, 2, 0.5)
    for _ in range(3):
        usage.add("m", at, **ONE)
    second.end(execution.execution_id)
    usage = begun(second, execution, journaled=True)
    for _ in range(3):
        usage.add("m", at, **ONE)
    await second.flush()
    assert stored.total == UsageCounts(2, 30, 6, 1.5)
    assert {key.source for key in stored.executions} == {execution.execution_id}


async def test_an_execution_that_ends_in_memory_while_its_totals_are_stored_is_counted_once(
    harness: Harness, clock: VirtualClock, stored: RecordedUsage
) -> None:
    meter, execution = UsageMeter(stored, "process"), header(harness, clock)
    begun(meter, execution).add("m", clock.now(), **ONE)

    async def end() -> None:
        meter.end(execution.execution_id)

    stored.on_write = end
    for _ in range(3):
        await meter.flush()
        assert stored.total == UsageCounts(2, 10, 2, 0.5)
    assert stored.executions == {}


async def test_totals_that_could_not_be_stored_are_stored_later(
    harness: Harness, clock: VirtualClock, stored: RecordedUsage
) -> None:
    meter, in_memory, journaled = UsageMeter(stored, "process"), header(harness, clock), header(harness, clock)
    for execution, is_journaled in ((in_memory, False), (journaled, True)):
        begun(meter, execution, journaled=is_journaled).add("m", clock.now(), **ONE)

    async def fail() -> None:
        raise StorageFailure(Code.STORAGE_UNAVAILABLE, "the database does not answer")

    working, stored.on_write = stored.on_write, fail
    with pytest.raises(StorageFailure):
        await meter.flush()
    for execution in (in_memory, journaled):
        meter.end(execution.execution_id)
    with pytest.raises(StorageFailure):
        await meter.flush()
    stored.on_write = working
    await meter.flush()
    assert stored.total == UsageCounts(4, 20, 4, 1.0)
    assert {key.source for key in stored.executions} == {journaled.execution_id}


async def test_an_execution_that_becomes_journaled_keeps_its_own_totals(
    harness: Harness, clock: VirtualClock, stored: RecordedUsage
) -> None:
    meter, execution, is_journaled = UsageMeter(stored, "process"), header(harness, clock), False
    meter.begin(execution, lambda: is_journaled)
    usage = meter.of(execution.execution_id)
    assert usage is not None
    usage.add("m", clock.now(), **ONE)
    await meter.flush()
    own = dict(stored.executions)
    is_journaled = True
    usage.add("m", clock.now(), **ONE)
    committed = meter.counts_of(execution.execution_id)
    await stored.write({}, committed)
    meter.confirm(execution.execution_id)
    meter.end(execution.execution_id)
    writes = stored.writes
    await meter.flush()
    assert stored.writes == writes
    assert set(own.values()) == {UsageCounts(executions=1), UsageCounts(1, 10, 2, 0.5)}
    assert stored.executions == committed
    assert stored.process == {}
    assert meter.counts_of(execution.execution_id) == {}


async def test_attempts_are_counted_in_the_hour_in_which_they_ended(
    harness: Harness, clock: VirtualClock, stored: RecordedUsage
) -> None:
    meter, execution = UsageMeter(stored, "process"), header(harness, clock)
    usage, began = begun(meter, execution), clock.now()
    usage.add("m", began, **ONE)
    usage.add("m", began + HOUR, **ONE)
    await meter.flush()
    meter.end(execution.execution_id)
    meter.end("unknown")
    later = header(harness, clock)
    usage = begun(meter, later)
    usage.add("m", began + HOUR, **ONE)
    await meter.flush()
    hour = int(began // HOUR)
    tokens = Counter[int]()
    for key, counts in [*stored.process.items(), *stored.executions.items()]:
        tokens[key.hour] += counts.input_tokens
    assert tokens == {hour: 10, hour + 1: 20}
