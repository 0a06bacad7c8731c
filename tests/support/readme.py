"""Writes the parts of README.md that come from the code: `python -m tests.support.readme --write`.

A part stands between `<!-- generated:NAME -->` and `<!-- /generated -->`.
"""

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from app.domain.diagrams import fallback_mermaid, lifecycle_mermaid
from app.domain.failures import TAXONOMY, FailureRow
from app.domain.lifecycle import Mode

README = Path(__file__).parents[2] / "README.md"
GENERATED_PART = re.compile(r"(?P<begin><!-- generated:(?P<name>\w+) -->\n).*?(?P<end><!-- /generated -->)", re.DOTALL)


def lifecycle() -> str:
    """Chat's diagram, then the other modes' folded away."""
    others = [mode for mode in Mode if mode is not Mode.CHAT]
    folded = "\n".join(f"**{mode}**\n\n{_mermaid(lifecycle_mermaid(mode))}" for mode in others)
    shown = _mermaid(lifecycle_mermaid(Mode.CHAT))
    return f"{shown}\n<details><summary>The other modes</summary>\n\n{folded}\n</details>\n"


def fallback() -> str:
    """The fallback machine's diagram."""
    return _mermaid(fallback_mermaid())


def errors() -> str:
    """One row a code, in the order of the taxonomy."""
    head = "| Code | Status | Meaning | What to do |\n|---|---|---|---|\n"
    return head + "".join(_error_row(row) for row in TAXONOMY.values())


PART_WRITERS: Mapping[str, Callable[[], str]] = {"lifecycle": lifecycle, "fallback": fallback, "errors": errors}


def regenerate(text: str) -> str:
    """The page with every generated part as the code has it. Raises: KeyError for a part of unknown name."""
    return GENERATED_PART.sub(lambda part: part["begin"] + PART_WRITERS[part["name"]]() + part["end"], text)


def _mermaid(diagram: str) -> str:
    return f"```mermaid\n{diagram.rstrip()}\n```\n"


def _error_row(row: FailureRow) -> str:
    several = len(row.variants) > 1
    statuses = [
        f"{variant.status}{' retryable' if variant.retryable else ''}{f' ({variant.condition})' if several else ''}"
        for variant in row.variants
    ]
    return f"| `{row.code}` | {', '.join(statuses)} | {row.meaning} | {row.recovery} |\n"


if __name__ == "__main__":
    page = README.read_text(encoding="utf-8")
    if "--write" in sys.argv[1:]:
        README.write_text(regenerate(page), encoding="utf-8")
    elif regenerate(page) != page:
        sys.exit("README.md is not what the code says: make readme")
