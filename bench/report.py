"""The numbers as a table for people and as JSON for programs."""

import platform
from collections.abc import Mapping
from pathlib import Path

import orjson
from rich.console import Console
from rich.table import Table

from bench.bounds import BOUNDS, Bound

RESULTS = Path(__file__).parent / "results"


def missed(numbers: Mapping[str, float]) -> list[Bound]:
    """The bounds that the numbers exceed; a bound without a number is not judged."""
    return [bound for bound in BOUNDS if not _is_kept(bound, numbers)]


def show(numbers: Mapping[str, float], console: Console) -> None:
    """Prints one row a number, worst news in red."""
    table = Table("What", "Measured", "Bound", "", title=f"Portico on Python {platform.python_version()}")
    table.columns[1].justify = table.columns[2].justify = "right"
    for bound in BOUNDS:
        if bound.number in numbers:
            most = "" if bound.most is None else f"≤ {bound.most:g} {bound.unit}"
            verdict = "" if bound.most is None else "[green]kept" if _is_kept(bound, numbers) else "[red]missed"
            table.add_row(bound.meaning, f"{numbers[bound.number]:.2f} {bound.unit}", most, verdict)
    console.print(table)


def write(numbers: Mapping[str, float], *, pinned: bool) -> Path:
    """Writes `results/latest.json` and says where."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "latest.json"
    rows = [
        {
            "number": bound.number,
            "meaning": bound.meaning,
            "unit": bound.unit,
            "measured": round(numbers[bound.number], 4),
            "bound": bound.most,
            "kept": None if bound.most is None else _is_kept(bound, numbers),
        }
        for bound in BOUNDS
        if bound.number in numbers
    ]
    machine = {"python": platform.python_version(), "machine": platform.machine(), "pinned": pinned}
    path.write_bytes(orjson.dumps({**machine, "numbers": rows}, option=orjson.OPT_INDENT_2) + b"\n")
    return path


def _is_kept(bound: Bound, numbers: Mapping[str, float]) -> bool:
    return bound.most is None or numbers.get(bound.number, 0) <= bound.most
