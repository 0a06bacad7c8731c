"""The tree of a plan in passes: passes, steps, scores, and what is left of each budget."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from portico.domain.contract.response import StepStatus
from portico.domain.failures import Code
from portico.domain.journal import events
from portico.domain.journal.events import Event, StoredEvent
from portico.domain.lifecycle import Mode, State
from portico.entrypoints.cli.display.plan_tree import PlanTreeView
from portico.entrypoints.cli.request import ExecuteOptions
from tests.support.examples import correlation
from tests.support.passes import reasoning
from tests.support.virtual_time import EPOCH

PLAN = ({"name": "a", "type": "infer", "depends_on": []}, {"name": "b\x1b[31m", "type": "tool", "depends_on": ["a"]})
LOG: list[tuple[str | None, Event]] = [
    (None, events.LifecycleTransition(State.PREPARE, State.EXECUTE, 1, "prepared")),
    (None, events.PlanCreated("model", PLAN)),
    ("a", events.StepStart("subplan", 1, 1)),
    ("a", events.PlanCreated("subplan", ({"name": "x", "type": "infer", "depends_on": []},))),
    ("a/x", events.StepStart("infer", 1, 1)),
    (None, events.InferenceEnd("1/0", 1.0, 40, 2, "stop", 0)),
    ("a/x", events.StepEnd("infer", 1, StepStatus.FAILED, 3.5, Code.INFERENCE_CONTENT_FILTERED, 1)),
    ("a", events.StepEnd("subplan", 1, StepStatus.FAILED, 4.5, Code.INFERENCE_CONTENT_FILTERED, 1)),
    (None, events.PassEnd(1, False, 0.5, None, False, ("incomplete",), 3)),
    ("c", events.StepStart("infer", 1, 2)),
]


def shown(log: list[tuple[str | None, Event]], *, on_terminal: bool) -> str:
    out = StringIO()
    lines = Console(file=out, width=100, force_terminal=on_terminal, color_system=None, highlight=False)
    view = PlanTreeView(lines, reasoning(4, limits={"tokens": 900}, hints={"timeout": 60}))
    for number, (step, event) in enumerate(log, 1):
        ids = replace(correlation(), step_name=step)
        view.show(StoredEvent(number, EPOCH + number, "0", ids, event))
    view.end_line()
    view.close()
    return out.getvalue()


TREE = """\
plan  EXECUTE  passes left 3, 42 tokens of 900, 9.0 s of 60 s
├── pass 1  completeness 0.50  not converged: incomplete
│   └── ✗ a  subplan  INFERENCE_CONTENT_FILTERED  4.5 ms
│       └── ✗ x  infer  INFERENCE_CONTENT_FILTERED  3.5 ms
├── pass 2  runs
│   └── … c  infer
└── planned
    └── b\\x1b[31m  tool
"""


def test_the_tree_stands_below_the_lines_of_the_events() -> None:
    text = shown(LOG, on_terminal=False)
    assert text.endswith(TREE)
    assert "pass.end" in text.removesuffix(TREE)


def test_on_a_terminal_the_tree_alone_is_drawn_again_with_every_event() -> None:
    text = shown(LOG, on_terminal=True)
    assert text.count("passes left") >= len(LOG)
    assert "pass.end" not in text
    assert all(line in text for line in TREE.splitlines())


@pytest.mark.parametrize(("mode", "expected"), [(None, Mode.PLAN), (Mode.PLAN, Mode.PLAN)])
def test_passes_make_plan_the_usual_mode(mode: Mode | None, expected: Mode) -> None:
    request = ExecuteOptions("Hi", None, None, mode, None, None, passes=3).request()
    assert (request.mode, request.plan is not None and request.plan.passes) == (expected, 3)
