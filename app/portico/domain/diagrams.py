"""State machines as JSON values and Mermaid text, generated from their tables."""

from collections.abc import Iterable
from typing import Any, TypeVar

from portico.domain import fallback, lifecycle

_S = TypeVar("_S", fallback.State, lifecycle.State)


def lifecycle_machine(mode: lifecycle.Mode) -> dict[str, Any]:
    """Return the lifecycle of one mode: for each state the states that may follow it."""
    table = lifecycle.NEXT[mode]
    used = [state for state in lifecycle.State if table[state] or state in lifecycle.TERMINAL]
    return {
        "name": f"lifecycle.{mode}",
        "states": used,
        "initial": lifecycle.State.INIT,
        "terminal": _in_order(lifecycle.State, lifecycle.TERMINAL),
        "table": {state.value: _in_order(lifecycle.State, table[state]) for state in used},
        "mermaid": lifecycle_mermaid(mode),
    }


def lifecycle_mermaid(mode: lifecycle.Mode) -> str:
    """Return the lifecycle of one mode as a Mermaid state diagram."""
    edges = [
        f"{before} --> {after}"
        for before, following in lifecycle.NEXT[mode].items()
        for after in _in_order(lifecycle.State, following)
    ]
    return _diagram(lifecycle.State.INIT, edges, _in_order(lifecycle.State, lifecycle.TERMINAL))


def fallback_machine() -> dict[str, Any]:
    """Return the fallback grid: state, event, next state. A conditional cell is its guard's name with both targets."""
    return {
        "name": "fallback",
        "states": list(fallback.State),
        "events": list(fallback.Event),
        "initial": fallback.State.IDLE,
        "terminal": _in_order(fallback.State, fallback.TERMINAL),
        "table": {
            state.value: {event.value: _cell(cell) for event, cell in row.items()}
            for state, row in fallback.TABLE.items()
        },
        "mermaid": fallback_mermaid(),
    }


def fallback_mermaid() -> str:
    """Return the fallback grid as a Mermaid state diagram; the ignored events of terminal states are left out."""
    labels: dict[tuple[fallback.State, fallback.State], list[str]] = {}
    for state, row in fallback.TABLE.items():
        if state in fallback.TERMINAL:
            continue
        for event, cell in row.items():
            for target in _targets(cell):
                label = event if isinstance(cell, fallback.State) else f"{event} [{cell.__name__}]"
                labels.setdefault((state, target), []).append(label)
    edges = [f"{before} --> {after}: {', '.join(names)}" for (before, after), names in labels.items()]
    return _diagram(fallback.State.IDLE, edges, _in_order(fallback.State, fallback.TERMINAL))


def machines() -> list[dict[str, Any]]:
    """Return every machine of the service: one lifecycle per mode, then the fallback grid."""
    return [*(lifecycle_machine(mode) for mode in lifecycle.Mode), fallback_machine()]


def _cell(cell: fallback.Cell) -> fallback.State | dict[str, Any]:
    if isinstance(cell, fallback.State):
        return cell
    return {"guard": cell.__name__, "targets": list(_targets(cell))}


def _targets(cell: fallback.Cell) -> tuple[fallback.State, ...]:
    """Return the targets of a cell. A guard is called with one candidate and one retry left, then with none."""
    if isinstance(cell, fallback.State):
        return (cell,)
    return tuple(cell(fallback.FallbackFsm(left, left)) for left in (1, 0))


def _in_order(states: Iterable[_S], chosen: Iterable[_S]) -> list[_S]:
    members = frozenset(chosen)
    return [state for state in states if state in members]


def _diagram(initial: str, edges: Iterable[str], terminal: Iterable[str]) -> str:
    lines = [f"[*] --> {initial}", *edges, *(f"{state} --> [*]" for state in terminal)]
    return "\n".join(["stateDiagram-v2", *(f"    {line}" for line in lines)]) + "\n"
