"""Backup and restoration at the command line: what was done, in lines for a person."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from portico.bootstrap.backup import Restored, make_backup, newest_executions, restore_backup, settings_of_backup
from portico.domain.failures import Category
from portico.entrypoints.cli.exit_codes import EXIT_CODES
from portico.entrypoints.cli.replay import ReplayOutcome, ReplayPrinter, differs, replay_one
from portico.entrypoints.cli.service_parts import OpenHistoryReader
from portico.settings import Settings


def print_backup(settings: Settings, target: Path) -> None:
    """Make a backup, and print its name, size and number of executions. Raises: Failure."""
    made = make_backup(settings, target)
    sys.stdout.write(f"{target}  {made.size} bytes  {made.executions} executions\n")


async def verify_backup(open_reader: OpenHistoryReader, settings: Settings, target: Path, count: int) -> int:
    """Replay the newest executions of a backup, one line each, and return the exit code. Raises: Failure."""
    printer, outcomes = ReplayPrinter(as_json=False), list[ReplayOutcome]()
    async with open_reader(settings_of_backup(settings, target)) as reader:
        for tenant, request_id in newest_executions(target, count):
            outcomes.append(await replay_one(reader, tenant, request_id))
            printer.print(request_id, outcomes[-1])
    printer.print_count(outcomes)
    return EXIT_CODES[Category.ORCHESTRATION] if differs(outcomes) else 0


def print_restored(settings: Settings, backup: Path, *, replace: bool, resume: bool) -> None:
    """Restore a backup, and print what is back and what became of it. Raises: Failure."""
    restored = restore_backup(settings, backup, replace=replace, resume=resume)
    for line in _lines(restored, resume=resume):
        sys.stdout.write(f"{line}\n")


def _lines(restored: Restored, *, resume: bool) -> Sequence[str]:
    at = restored.taken_at
    made = "an unknown time" if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
    ran = "What ran or was queued goes on." if resume else f"{restored.cancelled} executions that ran are cancelled."
    return (
        f"The state of {made} is restored.",
        ran,
        f"{restored.open_suspensions} suspensions are open; some may have been answered since.",
        f"{restored.valid_keys} keys are valid; keys that were revoked since, and data deleted since, are back.",
    )
