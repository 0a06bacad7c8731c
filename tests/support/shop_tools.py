"""A module of tools as a deployment names it: one that reads, one that writes, one that acts outside."""

from portico import SideEffects, tool


@tool(side_effects=SideEffects.NONE, idempotent=True)
def count_words(text: str) -> str:
    """Count the words of a text."""
    return str(len(text.split()))


@tool(side_effects=SideEffects.WRITE, idempotent=False)
async def write_note(text: str) -> str:
    """Write a note."""
    return f"noted {text}"


@tool(side_effects=SideEffects.EXTERNAL, idempotent=False)
async def refund(amount: float) -> str:
    """Refund an amount."""
    return f"refunded {amount:g}"
