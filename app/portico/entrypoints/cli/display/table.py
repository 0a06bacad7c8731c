"""Tables on standard output, as plain text in columns."""

import sys
from collections.abc import Sequence

from portico.entrypoints.cli.display.terminal import printable


def write_table(rows: Sequence[Sequence[str]]) -> None:
    """Write the rows, the first of which are the headings, with aligned columns and without control characters."""
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        sys.stdout.write("  ".join(map(str.ljust, row, widths)).rstrip() + "\n")
