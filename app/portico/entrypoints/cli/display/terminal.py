"""Texts and lines for a terminal: without control characters, failures in red, degraded answers in yellow."""

from rich.console import Console
from rich.text import Text

from portico.domain.contract.final_answer import FinalAnswer
from portico.domain.failures import Code


def print_failure(console: Console, code: Code, message: str) -> None:
    """Print the line that describes the failure."""
    console.print(Text.assemble((code, "bold red"), f": {printable(message)}"), soft_wrap=True)


def print_degradation(console: Console, answer: FinalAnswer) -> None:
    """Print the line that warns of a degraded answer: the reason, the limit that was reached, and what is missing."""
    metadata = answer.metadata
    missing = metadata.get("missing_fields")
    without = f"without {', '.join(map(str, missing))}" if isinstance(missing, list) and missing else None
    facts = [metadata.get("reason"), metadata.get("limit"), without]
    summary = ", ".join(str(fact) for fact in facts if fact)
    console.print(Text.assemble(("degraded answer", "bold yellow"), f": {printable(summary)}"), soft_wrap=True)


def printable(text: str) -> str:
    """Return the text with every character that could control a terminal replaced by its escape sequence."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
