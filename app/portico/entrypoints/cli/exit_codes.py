"""Exit codes of failures: one per category, with one line on standard error."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import typer
from rich.console import Console
from rich.text import Text

from portico.domain.contract.final_answer import FinalAnswer
from portico.domain.failures import Category, Code, Failure

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
        print_failure(Console(stderr=True), failure.code, failure.message)
        raise typer.Exit(EXIT_CODES[failure.category])


def _flatten(group: BaseExceptionGroup[Failure]) -> Iterator[Failure]:
    for inner in group.exceptions:
        if isinstance(inner, BaseExceptionGroup):
            yield from _flatten(inner)
        else:
            yield inner


def print_failure(console: Console, code: Code, message: str) -> None:
    """Print the line that describes the failure."""
    console.print(Text.assemble((code, "bold red"), f": {printable(message)}"), soft_wrap=True)


def print_degradation(console: Console, answer: FinalAnswer) -> None:
    """Print the line that warns of a degraded answer: the reason, the limit that was reached, and what is missing."""
    metadata = answer.metadata
    missing = metadata.get("missing_fields")
    without = f"without {', '.join(map(str, missing))}" if isinstance(missing, list) and missing else None
    facts = [metadata.get("reason"), metadata.get("limit"), without]
    summary = ", ".join(str(fact) for fact in facts if fact)
    console.print(Text.assemble(("degraded answer", "bold yellow"), f": {printable(summary)}"), soft_wrap=True)


def printable(text: str) -> str:
    """Return the text with every character that could control a terminal replaced by its escape sequence."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
