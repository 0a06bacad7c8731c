"""Command line of the benchmarks: `python -m bench [scenario ...]`."""

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from bench.access import ACCESS_SCENARIOS
from bench.clients import CLIENT_SCENARIOS
from bench.code import code
from bench.context import context
from bench.flows import FLOW_SCENARIOS
from bench.framework import framework
from bench.guards import guards
from bench.hostile import HOSTILE_SCENARIOS
from bench.live_list import LIVE_LIST_SCENARIOS
from bench.local_storage import LOCAL_STORAGE_SCENARIOS
from bench.memory import memory
from bench.operation import OPERATION_SCENARIOS
from bench.orchestration import orchestration
from bench.processes import Cores
from bench.prompts import prompts
from bench.report import missed_bounds, print_table, write_results
from bench.scenarios import SCENARIOS, BenchEnvironment, Numbers, Scenario, Unmeasurable
from bench.schedules import SCHEDULE_SCENARIOS
from bench.shared_storage import SHARED_STORAGE_SCENARIOS
from bench.startup import startup
from bench.tools import tools
from bench.traces import TRACE_SCENARIOS
from bench.upstream import open_upstream
from bench.webhooks import WEBHOOK_SCENARIOS

TOTAL_SECONDS = 900
ALL_SCENARIOS: tuple[Scenario, ...] = (
    *SCENARIOS,
    framework,
    startup,
    orchestration,
    context,
    prompts,
    guards,
    memory,
    tools,
    code,
    *ACCESS_SCENARIOS,
    *OPERATION_SCENARIOS,
    *TRACE_SCENARIOS,
    *LIVE_LIST_SCENARIOS,
    *WEBHOOK_SCENARIOS,
    *SCHEDULE_SCENARIOS,
    *CLIENT_SCENARIOS,
    *FLOW_SCENARIOS,
    *HOSTILE_SCENARIOS,
    *LOCAL_STORAGE_SCENARIOS,
    *SHARED_STORAGE_SCENARIOS,
)


def main(
    scenarios: Annotated[
        list[str] | None, typer.Argument(help="Names of the scenarios to run; all by default.")
    ] = None,
    *,
    report_only: Annotated[bool, typer.Option(help="Exit with 0 even if a bound is missed.")] = False,
) -> None:
    """Run scenarios, print a table and write it as JSON. Exit with 1 if a bound is missed."""
    console = Console(stderr=True)
    chosen = [scenario for scenario in ALL_SCENARIOS if not scenarios or scenario.__name__ in scenarios]
    cores = Cores.detect()
    if not cores.measured:
        console.print(
            "[yellow]Only one core is available: load and service share it, and the numbers are not comparable."
        )
    try:
        numbers = asyncio.run(measure(chosen, cores, console))
    except RuntimeError as error:
        console.print(f"[red]Measuring failed:[/] {escape(str(error))}")
        sys.exit(2)
    print_table(numbers, Console())
    console.print(f"Results: {write_results(numbers, pinned=bool(cores.measured))}")
    if missed_bounds(numbers) and not report_only:
        sys.exit(1)


async def measure(chosen: Sequence[Scenario], cores: Cores, console: Console) -> Numbers:
    """Run the chosen scenarios one after the other, with this process on the load's core."""
    if cores.load:
        os.sched_setaffinity(0, cores.load)
    numbers: dict[str, float] = {}
    async with asyncio.timeout(TOTAL_SECONDS), open_upstream() as upstream:
        for scenario in chosen:
            console.print(f"{scenario.__name__} …")
            try:
                numbers |= await scenario(BenchEnvironment(cores, upstream))
            except Unmeasurable as error:
                console.print(f"[yellow]Left out:[/] {escape(str(error))}")
    return numbers


if __name__ == "__main__":
    typer.run(main)
