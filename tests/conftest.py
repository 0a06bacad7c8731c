"""Fixtures of all tests: virtual time, a clock that follows it, repeatable randomness and a PostgreSQL server."""

from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import settings

from tests.adapters.engines.recorded_report import lines
from tests.support.entropy import SeededEntropy
from tests.support.postgres import own_database, postgres_server
from tests.support.task_stacks import format_task_stacks, watch
from tests.support.virtual_time import VirtualClock, VirtualTimeLoop

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


DATABASES_ON_POSTGRES = {"postgres", "dbos"}
"""Values of test parameters that need the server."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need a PostgreSQL server, so that a run can leave them out."""
    for item in items:
        if isinstance(item, pytest.Function) and _needs_postgres(item):
            item.add_marker(pytest.mark.postgres)


def _needs_postgres(test: pytest.Function) -> bool:
    values = test.callspec.params.values() if hasattr(test, "callspec") else ()
    return "postgres_url" in test.fixturenames or any(
        isinstance(value, str) and value in DATABASES_ON_POSTGRES for value in values
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report where each task waits if the test did not end in time: its own stack shows the event loop only."""
    report = yield
    if call.excinfo is not None and str(call.excinfo.value).startswith("Timeout "):
        report.sections.append(("Tasks", format_task_stacks()))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report how much recorded traffic was decoded: the process that collects all results reads only this conftest."""
    report = list(lines(terminalreporter.stats))
    if report:
        terminalreporter.section("recorded traffic")
        for line in report:
            terminalreporter.write_line(line)


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], AbstractEventLoop]]:
    return {"virtual": lambda: watch(VirtualTimeLoop())}


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres_server() as server:
        yield server.url


@pytest.fixture(params=["sqlite", "postgres"])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/portico.db"
    return own_database(request.getfixturevalue("postgres_url"))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def real_time() -> AsyncIterator[None]:
    """Let time run at its real speed, for programs that are no part of the loop."""
    loop = get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    with loop.in_real_time():
        yield


@pytest.fixture
def entropy() -> SeededEntropy:
    return SeededEntropy(0)
