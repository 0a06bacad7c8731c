"""Reports of the measured numbers: a table for people, JSON for programs."""

import platform
from collections.abc import Mapping
from pathlib import Path

import orjson
from rich.console import Console
from rich.table import Table

from bench.bounds import BOUNDS, Bound

RESULTS = Path(__file__).parent / "results"


def missed_bounds(numbers: Mapping[str, float]) -> list[Bound]:
    """Return the bounds that the numbers exceed; a bound without a number counts as kept."""
    return [bound for bound in BOUNDS if not _is_kept(bound, numbers)]


def print_table(numbers: Mapping[str, float], console: Console) -> None:
    """Print one row for each number, missed bounds in red."""
    table = Table("Metric", "Measured", "Bound", "", title=f"Portico on Python {platform.python_version()}")
    table.columns[1].justify = table.columns[2].justify = "right"
    for bound in BOUNDS:
        if bound.metric in numbers:
            most = "" if bound.maximum is None else f"≤ {bound.maximum:g} {bound.unit}"
            verdict = "" if bound.maximum is None else "[green]kept" if _is_kept(bound, numbers) else "[red]missed"
            table.add_row(bound.meaning, f"{numbers[bound.metric]:.2f} {bound.unit}", most, verdict)
    console.print(table)


def write_results(numbers: Mapping[str, float], *, pinned: bool) -> Path:
    """Write `results/latest.json` and return its path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "latest.json"
    rows = [
        {
            "number": bound.metric,
            "meaning": bound.meaning,
            "unit": bound.unit,
            "measured": round(numbers[bound.metric], 4),
            "bound": bound.maximum,
            "kept": None if bound.maximum is None else _is_kept(bound, numbers),
        }
        for bound in BOUNDS
        if bound.metric in numbers
    ]
    machine = {"python": platform.python_version(), "machine": platform.machine(), "pinned": pinned}
    path.write_bytes(orjson.dumps({**machine, "numbers": rows}, option=orjson.OPT_INDENT_2) + b"\n")
    return path


def _is_kept(bound: Bound, numbers: Mapping[str, float]) -> bool:
    return bound.maximum is None or numbers.get(bound.metric, 0) <= bound.maximum
