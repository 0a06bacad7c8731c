"""Telling stored executions again: what each came to, for a person or a program, and the exit code for a CI job.

What is named must be there, and be a record that this version can tell again. Of the newest ones those that still run,
or of which nothing but the answer is kept, are passed over.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TypeAlias

import orjson
from rich.console import Console
from rich.text import Text

from app.domain.failures import Category, Failure, RequestFailure
from app.domain.ids import RequestId, TenantId
from app.entrypoints.cli.exit_codes import EXIT_CODES, printable
from app.orchestration.facade import HistoryReader, ReplayReport
from app.settings import Settings

OpenHistoryReader: TypeAlias = Callable[[Settings], AbstractAsyncContextManager[HistoryReader]]
ReplayOutcome: TypeAlias = ReplayReport | Failure | Exception
"""What a replay finds, why it cannot be done, or the bug of ours that it ran into."""


@dataclass(frozen=True, slots=True)
class ReplaySelection:
    """Which executions: those of these ids, or the `last` ones."""

    tenant: TenantId
    ids: Sequence[RequestId]
    last: int | None


@dataclass(frozen=True, slots=True)
class ReplayPrinter:
    """Where it is told: a line each, on standard output, readable or as JSON."""

    as_json: bool

    def print(self, request_id: str, outcome: ReplayOutcome) -> None:
        """One line."""
        if self.as_json:
            sys.stdout.write(orjson.dumps({"request_id": request_id} | _fields(outcome)).decode() + "\n")
        else:
            word, style, more = _words(outcome)
            line = Text.assemble(f"{printable(request_id)}  ", (word, style), f"  {printable(more)}")
            Console(highlight=False).print(line, soft_wrap=True)


async def replay_stored(
    open_archive: OpenHistoryReader, settings: Settings, chosen: ReplaySelection, report: ReplayPrinter
) -> Sequence[ReplayOutcome]:
    """Tells the chosen executions again, one after the other, and what each came to. Raises: Failure."""
    told: list[ReplayOutcome] = []
    async with open_archive(settings) as archive:
        ids = chosen.ids if chosen.last is None else await archive.newest(chosen.tenant, chosen.last)
        for request_id in ids:
            told.append(await _told(archive, chosen.tenant, request_id))
            report.print(request_id, told[-1])
    return told


def exit_code(told: Sequence[ReplayOutcome], chosen: ReplaySelection, *, fail_on_difference: bool) -> int:
    """0 where all is well: what differs counts when it is to, what cannot be told again always."""
    differs = any(isinstance(each, Exception) and not isinstance(each, Failure) for each in told)
    differs |= any(isinstance(each, ReplayReport) and not each.identical for each in told)
    if differs and fail_on_difference:
        return EXIT_CODES[Category.ORCHESTRATION]
    refusals = [each for each in told if isinstance(each, Failure)]
    failed = [each for each in refusals if chosen.last is None or not isinstance(each, RequestFailure)]
    return EXIT_CODES[failed[0].category] if failed else 0


async def _told(archive: HistoryReader, tenant: TenantId, request_id: RequestId) -> ReplayOutcome:
    try:
        return await archive.replay(tenant, request_id)
    except Failure as refused:
        return refused
    except Exception as bug:  # noqa: BLE001 - a pattern that breaks on one record must not hide what the others come to
        return bug


def _fields(outcome: ReplayOutcome) -> dict[str, object]:
    match outcome:
        case ReplayReport():
            return outcome.model_dump(exclude_none=True)
        case Failure():
            return {"refused": outcome.code, "message": outcome.message}
        case _:
            return {"identical": False, "bug": type(outcome).__name__}


def _words(outcome: ReplayOutcome) -> tuple[str, str, str]:
    match outcome:
        case ReplayReport(identical=True):
            return "identical", "green", f"{outcome.steps} steps"
        case ReplayReport():
            before, now = outcome.recorded or "nothing", outcome.replayed or "nothing"
            return "differs", "bold red", f"at step {outcome.step}: recorded {before}, now {now}"
        case Failure():
            return outcome.code, "yellow", outcome.message
        case _:
            return "differs", "bold red", f"it breaks: {type(outcome).__name__}"
