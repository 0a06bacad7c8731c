"""Replay of stored executions: one line per execution, for a person or a program, and the exit code for a CI job.

An execution that is named must exist and be replayable by this version. Among the newest ones, executions that still
run and those of which only the response is stored are skipped. A check for differences that compared nothing has found
nothing out, so it fails.
"""

import sys
from collections.abc import Sequence
from typing import TypeAlias

import orjson
from rich.console import Console
from rich.text import Text

from portico.domain.failures import Category, Failure, RequestFailure
from portico.domain.ids import RequestId, TenantId
from portico.domain.value import value
from portico.entrypoints.cli.display.terminal import printable
from portico.entrypoints.cli.exit_codes import EXIT_CODES
from portico.entrypoints.cli.service_parts import OpenHistoryReader
from portico.orchestration.facade import HistoryReader, ReplayReport
from portico.settings import Settings

ReplayOutcome: TypeAlias = ReplayReport | Failure | Exception
"""The report of a replay, the reason why there is none, or the bug that it met."""


@value
class ReplaySelection:
    """The executions to replay: those with these ids, or the `last` ones."""

    tenant: TenantId
    ids: Sequence[RequestId]
    last: int | None


@value
class ReplayPrinter:
    """The output on standard output, one line per execution, readable or as JSON."""

    as_json: bool

    def print(self, request_id: str, outcome: ReplayOutcome) -> None:
        """Print one line."""
        if self.as_json:
            sys.stdout.write(orjson.dumps({"request_id": request_id} | _fields(outcome)).decode() + "\n")
        else:
            verdict, style, detail = _summary(outcome)
            line = Text.assemble(f"{printable(request_id)}  ", (verdict, style), f"  {printable(detail)}")
            Console(highlight=False).print(line, soft_wrap=True)

    def print_count(self, outcomes: Sequence[ReplayOutcome]) -> None:
        """Print on standard error how many of the executions were compared."""
        line = f"{_compared(outcomes)} of {len(outcomes)} executions compared"
        Console(stderr=True, highlight=False).print(line, soft_wrap=True)


async def replay_stored(
    open_reader: OpenHistoryReader, settings: Settings, selection: ReplaySelection, printer: ReplayPrinter
) -> Sequence[ReplayOutcome]:
    """Replay and print the selected executions one after the other, and return the outcomes. Raises: Failure."""
    outcomes: list[ReplayOutcome] = []
    async with open_reader(settings) as reader:
        ids = selection.ids if selection.last is None else await reader.newest(selection.tenant, selection.last)
        for request_id in ids:
            outcomes.append(await replay_one(reader, selection.tenant, request_id))
            printer.print(request_id, outcomes[-1])
    if selection.last is not None:
        printer.print_count(outcomes)
    return outcomes


def exit_code(outcomes: Sequence[ReplayOutcome], selection: ReplaySelection, *, fail_on_difference: bool) -> int:
    """Return 0 on success. An execution that cannot be replayed always fails; if asked to, a difference fails, too.

    So does a check for differences that compared nothing.
    """
    if fail_on_difference and differs(outcomes):
        return EXIT_CODES[Category.ORCHESTRATION]
    refusals = [each for each in outcomes if isinstance(each, Failure)]
    failed = [each for each in refusals if selection.last is None or not isinstance(each, RequestFailure)]
    if failed:
        return EXIT_CODES[failed[0].category]
    return EXIT_CODES[Category.ORCHESTRATION] if fail_on_difference and not _compared(outcomes) else 0


def differs(outcomes: Sequence[ReplayOutcome]) -> bool:
    """Return whether a replay differs from its record, or raised."""
    return any(
        not each.identical if isinstance(each, ReplayReport) else not isinstance(each, Failure) for each in outcomes
    )


def _compared(outcomes: Sequence[ReplayOutcome]) -> int:
    return sum(not isinstance(each, Failure) for each in outcomes)


async def replay_one(reader: HistoryReader, tenant: TenantId, request_id: RequestId) -> ReplayOutcome:
    """Replay an execution and return the outcome, which may be a failure or a bug."""
    try:
        return await reader.replay(tenant, request_id)
    except Failure as refused:
        return refused
    except Exception as bug:  # noqa: BLE001 - a pattern that breaks on one record must not hide the outcomes of others
        return bug


def _fields(outcome: ReplayOutcome) -> dict[str, object]:
    match outcome:
        case ReplayReport():
            return outcome.model_dump(exclude_none=True)
        case Failure():
            return {"refused": outcome.code, "message": outcome.message}
        case _:
            return {"identical": False, "bug": type(outcome).__name__}


def _summary(outcome: ReplayOutcome) -> tuple[str, str, str]:
    match outcome:
        case ReplayReport(identical=True):
            return "identical", "green", f"{outcome.steps} steps"
        case ReplayReport():
            before, now = outcome.recorded or "nothing", outcome.replayed or "nothing"
            return "differs", "bold red", f"at step {outcome.step}, {outcome.field}: recorded {before}, now {now}"
        case Failure():
            return outcome.code, "yellow", outcome.message
        case _:
            return "differs", "bold red", f"the pattern raised {type(outcome).__name__}"
