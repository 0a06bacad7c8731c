"""Exit codes of failures: one per category, with one line on standard error."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import typer

from portico.domain.failures import Category, Failure

EXIT_CODES: Mapping[Category, int] = MappingProxyType(
    {
        Category.INFERENCE: 10,
        Category.TOOL: 11,
        Category.CONSTRAINT: 12,
        Category.VALIDATION: 13,
        Category.ORCHESTRATION: 14,
        Category.CONFIGURATION: 15,
        Category.CANCELLATION: 16,
        Category.REQUEST: 17,
        Category.ACCESS: 18,
        Category.STORAGE: 19,
    }
)
SUSPENDED = 3
"""Exit code of an execution that waits for an answer."""
_OTHER_CODES = f"0 success, 2 wrong usage, {SUSPENDED} suspended, "
EPILOG = f"Exit codes: {_OTHER_CODES}" + ", ".join(f"{code} {kind}" for kind, code in EXIT_CODES.items())


@contextmanager
def failures_as_exits() -> Iterator[None]:
    """Turn a failure into its line and its exit code; any other exception is a bug and is shown as one."""
    failures: list[Failure] = []
    try:
        yield
    except* Failure as group:  # task groups of the service wrap exceptions
        failures.extend(_flatten(group))
    for failure in failures[:1]:
        from rich.console import Console  # noqa: PLC0415 - a command that succeeds needs neither

        from portico.entrypoints.cli.display.terminal import print_failure  # noqa: PLC0415 - see above

        print_failure(Console(stderr=True), failure.code, failure.message)
        raise typer.Exit(EXIT_CODES[failure.category])


def _flatten(group: BaseExceptionGroup[Failure]) -> Iterator[Failure]:
    for inner in group.exceptions:
        if isinstance(inner, BaseExceptionGroup):
            yield from _flatten(inner)
        else:
            yield inner
