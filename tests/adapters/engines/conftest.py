"""Says at the end of a run what was done with recorded traffic."""

import pytest

from tests.adapters.engines.recorded_report import lines


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    told = list(lines(terminalreporter.stats))
    if told:
        terminalreporter.section("recorded traffic")
        for line in told:
            terminalreporter.write_line(line)
