"""Output of an execution: its events, its answer, and what stands in the way of an answer."""

import sys

import typer
from rich.console import Console
from rich.text import Text

from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import SystemResponse
from portico.domain.lifecycle import State
from portico.domain.value import value
from portico.entrypoints.cli.display.live_view import LiveView, write_answer
from portico.entrypoints.cli.display.plan_tree import PlanTreeView
from portico.entrypoints.cli.display.suspension_prompt import Ask, describe_suspension
from portico.entrypoints.cli.display.terminal import print_degradation, print_failure
from portico.entrypoints.cli.exit_codes import EXIT_CODES, SUSPENDED


@value
class OutputOptions:
    """Options of the output: the answer goes to standard output, as text or JSON.

    Streamed tokens go to standard output too, or with JSON to standard error. With `quiet` no event is shown; a
    failure, a warning and what an execution waits for still go to standard error. `ask` asks the person at the terminal
    the questions of a suspended execution; without it the execution stays suspended.
    """

    stream: bool
    as_json: bool
    quiet: bool = False
    ask: Ask | None = None

    def view(self, request: SystemRequest) -> LiveView:
        """Return the view of the events; that of a plan in passes is a tree, unless tokens are streamed."""
        if request.plan is not None and request.plan.passes > 1 and not (self.stream or self.quiet):
            return PlanTreeView(Console(stderr=True, highlight=False), request)
        return self.live_view()

    def live_view(self) -> LiveView:
        """Return the view of the events as lines."""
        tokens = sys.stderr if self.as_json else sys.stdout
        lines = Console(stderr=True, highlight=False, quiet=self.quiet)
        return LiveView(lines, tokens if self.stream else None)

    def write(self, response: SystemResponse, shown: str) -> None:
        """Write the answer, unless all of it was streamed already, and a warning if it is degraded."""
        if self.as_json:
            sys.stdout.write(response.model_dump_json(indent=2) + "\n")
        elif response.state is State.COMPLETE and not (self.stream and shown == response.content):
            write_answer(response, sys.stdout)
        if response.final_answer is not None and response.final_answer.is_degraded:
            print_degradation(Console(stderr=True), response.final_answer)


def exit_unless_complete(response: SystemResponse) -> None:
    """Describe a failure or what an execution waits for on standard error. Raises: typer.Exit with its code."""
    console = Console(stderr=True)
    if response.error is not None:
        print_failure(console, response.error.code, response.error.message)
        raise typer.Exit(EXIT_CODES[response.error.category])
    if response.state is State.SUSPENDED:
        for suspension in response.suspensions:
            console.print(Text(f"suspended: {describe_suspension(suspension)}"), soft_wrap=True)
        raise typer.Exit(SUSPENDED)
