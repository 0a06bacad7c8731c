"""Diagrams: they match the tables."""

import re

import orjson
import pytest

from portico.domain import fallback, lifecycle
from portico.domain.diagrams import fallback_machine, fallback_mermaid, lifecycle_machine, lifecycle_mermaid, machines


@pytest.mark.parametrize("mode", list(lifecycle.Mode))
def test_a_lifecycle_has_exactly_the_edges_of_its_table(mode: lifecycle.Mode) -> None:
    shown = {(before, after) for before, row in lifecycle_machine(mode)["table"].items() for after in row}
    assert shown == {(before, after) for before, row in lifecycle.NEXT[mode].items() for after in row}


@pytest.mark.parametrize("mode", list(lifecycle.Mode))
def test_a_lifecycle_diagram_has_exactly_the_edges_of_its_table(mode: lifecycle.Mode) -> None:
    drawn = set(re.findall(r"^    (\w+) --> (\w+)$", lifecycle_mermaid(mode), re.MULTILINE))
    assert drawn == {(before, after) for before, row in lifecycle.NEXT[mode].items() for after in row}


def test_a_lifecycle_omits_states_that_its_mode_never_enters() -> None:
    assert "PLAN" not in lifecycle_machine(lifecycle.Mode.CHAT)["states"]
    assert "PLAN" in lifecycle_machine(lifecycle.Mode.PLAN)["states"]


def test_every_cell_of_the_grid_shows_a_target_or_a_guard() -> None:
    table = fallback_machine()["table"]
    for state in fallback.State:
        assert list(table[state]) == [event.value for event in fallback.TABLE[state]]
        for event, cell in fallback.TABLE[state].items():
            shown = table[state][event]
            assert shown == cell if isinstance(cell, fallback.State) else shown["guard"] == cell.__name__


@pytest.mark.parametrize(
    ("state", "event", "guard", "targets"),
    [
        ("SELECTING", "PROVIDER_SUCCESS", "next_candidate", ["ATTEMPTING", "EXHAUSTED"]),
        ("RETRYING", "RETRYABLE_ERROR", "retry_or_next", ["ATTEMPTING", "SELECTING"]),
        ("RETRYING", "PROVIDER_SUCCESS", "retry_or_next", ["ATTEMPTING", "SELECTING"]),
    ],
)
def test_a_conditional_cell_names_its_guard_and_both_targets(
    state: str, event: str, guard: str, targets: list[str]
) -> None:
    assert fallback_machine()["table"][state][event] == {"guard": guard, "targets": targets}


def test_the_grid_diagram_labels_edges_with_events_and_guards() -> None:
    text = fallback_mermaid()
    assert text.startswith("stateDiagram-v2\n    [*] --> IDLE\n")
    assert "    ATTEMPTING --> RETRYING: RETRYABLE_ERROR, TIMEOUT\n" in text
    assert "    SELECTING --> EXHAUSTED: PROVIDER_SUCCESS [next_candidate], FATAL_ERROR\n" in text
    assert "SUCCEEDED --> SUCCEEDED" not in text


def test_all_machines_are_json() -> None:
    names = [machine["name"] for machine in orjson.loads(orjson.dumps(machines()))]
    assert names == [
        "lifecycle.chat",
        "lifecycle.structured",
        "lifecycle.plan",
        "lifecycle.redundant",
        "lifecycle.flow",
        "fallback",
    ]
