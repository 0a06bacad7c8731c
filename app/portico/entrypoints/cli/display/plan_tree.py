"""Plan tree: the passes of an execution with their steps and scores, and what is left of each budget."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.text import Text
from rich.tree import Tree

from portico.domain.contract.request import PlanOptions, SystemRequest
from portico.domain.contract.response import StepStatus
from portico.domain.journal import events
from portico.domain.journal.events import LiveDelta, StoredEvent
from portico.entrypoints.cli.display.live_view import LiveView
from portico.entrypoints.cli.display.terminal import printable

_MARKS: Final = MappingProxyType(
    {
        StepStatus.COMPLETED: ("✓", "green"),
        StepStatus.FAILED: ("✗", "red"),
        StepStatus.CANCELLED: ("✗", "red"),
    }
)
_RUNNING: Final = ("…", "yellow")


@dataclass(slots=True)
class _Step:
    step_type: str
    end: events.StepEnd | None = None


@dataclass(slots=True)
class _Pass:
    steps: dict[str, _Step] = field(default_factory=dict)
    end: events.PassEnd | None = None


class PlanTree:
    """The state of an execution in passes, as its events tell it."""

    def __init__(self, request: SystemRequest) -> None:
        self._passes_left = (request.plan or PlanOptions()).passes
        self._tokens_limit, self._seconds_limit = request.limits.tokens, request.hints.timeout
        self._tokens, self._state = 0, ""
        self._began_at: float | None = None
        self._now = 0.0
        self._planned: dict[str, str] = {}
        self._passes: dict[int, _Pass] = {}

    def take(self, item: StoredEvent) -> None:
        """Take one event."""
        self._began_at = item.at if self._began_at is None else self._began_at
        self._now = item.at
        name = item.correlation.step_name
        match item.event:
            case events.LifecycleTransition(to_state=state):
                self._state = state
            case events.InferenceEnd(tokens_in=read, tokens_out=written):
                self._tokens += read + written
            case events.PlanCreated(steps=steps) if name is None:
                self._planned = {step["name"]: step["type"] for step in steps}
            case events.StepStart(step_type=step_type, pass_number=int(number)) if name is not None:
                self._passes.setdefault(number, _Pass()).steps[name] = _Step(step_type)
            case events.StepEnd(pass_number=int(number)) as end if name is not None:
                self._passes[number].steps[name].end = end
            case events.PassEnd(pass_number=number) as end:
                self._passes.setdefault(number, _Pass()).end = end
                self._passes_left = end.ttl_remaining

    def render(self) -> Tree:
        """Return the tree as it is now."""
        tree = Tree(Text.assemble(("plan", "bold"), f"  {self._state}  {self._budgets}"))
        for number, each in sorted(self._passes.items()):
            branch = tree.add(_pass_line(number, each))
            _add_steps(branch, each.steps.items())
        ran = {name for each in self._passes.values() for name in each.steps}
        waiting = [(name, _Step(kind)) for name, kind in self._planned.items() if name not in ran]
        if waiting:
            branch = tree.add(Text("planned", "dim"))
            for name, step in waiting:
                branch.add(Text(f"{printable(name)}  {step.step_type}", "dim"))
        return tree

    @property
    def _budgets(self) -> str:
        seconds = self._now - (self._began_at or self._now)
        tokens = f"{self._tokens} tokens{_of(self._tokens_limit)}"
        return f"passes left {self._passes_left}, {tokens}, {seconds:.1f} s{_of(self._seconds_limit, ' s')}"


class PlanTreeView(LiveView):
    """A live view that draws the plan tree: all the time on a terminal, elsewhere below the lines of the events."""

    def __init__(self, lines: Console, request: SystemRequest) -> None:
        super().__init__(lines, None)
        self._tree = PlanTree(request)
        self._live = Live(self._tree.render(), console=lines, auto_refresh=False) if lines.is_terminal else None

    def show(self, item: StoredEvent | LiveDelta) -> None:
        """Show one event."""
        if not isinstance(item, StoredEvent):
            return
        self._tree.take(item)
        if self._live is None:
            super().show(item)
            return
        self._live.start()
        self._live.update(self._tree.render(), refresh=True)

    def end_line(self) -> None:
        """Leave the tree as it is, and continue below it."""
        if self._live is not None:
            self._live.stop()

    def close(self) -> None:
        """Print the tree where it was not drawn."""
        if self._live is None:
            self.lines.print(self._tree.render(), soft_wrap=True)


def _pass_line(number: int, each: _Pass) -> Text:
    end = each.end
    if end is None:
        return Text.assemble((f"pass {number}", "bold"), "  runs")
    verdict = ("converged", "green") if end.converged else (f"not converged: {', '.join(end.reasons)}", "yellow")
    scores = [("completeness", end.completeness), ("coherence", end.coherence)]
    shown = "".join(f"  {name} {score:.2f}" for name, score in scores if score is not None)
    return Text.assemble((f"pass {number}", "bold"), shown, "  ", verdict)


def _add_steps(branch: Tree, steps: Iterable[tuple[str, _Step]]) -> None:
    """Add the steps, those of a subplan below the step that it belongs to."""
    places = {"": branch}
    for name, step in steps:
        outer, _, inner = name.rpartition("/")
        places[name] = places.get(outer, branch).add(_step_line(inner, step))


def _step_line(name: str, step: _Step) -> Text:
    mark, style = _RUNNING if step.end is None else _MARKS.get(step.end.status, _RUNNING)
    took = "" if step.end is None else f"  {step.end.duration_ms:.1f} ms"
    code = f"  {step.end.error_code}" if step.end is not None and step.end.error_code else ""
    return Text.assemble((mark, style), f" {printable(name)}  {step.step_type}{code}{took}")


def _of(limit: float | None, unit: str = "") -> str:
    return "" if limit is None else f" of {limit:g}{unit}"
