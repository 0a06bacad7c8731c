"""Built-in tools."""

from datetime import UTC, datetime, tzinfo
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import Field

from portico.adapters.tools.arithmetic import MAX_CHARACTERS, ExpressionError, evaluate, format_value
from portico.capabilities.tools.definition import FunctionTool, tool
from portico.domain.tools import PERSON, SideEffects
from portico.ports.tool import ToolContext, ToolError


@tool(side_effects=SideEffects.NONE, idempotent=True)
async def roll_dice(
    count: Annotated[int, Field(ge=1, le=10, description="Number of dice to roll (1-10)")],
    sides: Annotated[int, Field(ge=2, le=1000, description="Number of sides per die (4, 6, 8, 10, 12, 20, ...)")],
    context: ToolContext,
) -> str:
    """Roll dice. Returns sum and individual results."""
    results = [context.entropy.random_below(sides) + 1 for _ in range(count)]
    return f"Rolled {count}d{sides}: [{' '.join(map(str, results))}] (sum: {sum(results)})"


@tool(side_effects=SideEffects.NONE, idempotent=True)
async def calculate(
    expression: Annotated[
        str,
        Field(
            max_length=MAX_CHARACTERS,
            description="An arithmetic expression of numbers, + - * / // % ** and parentheses, such as (2 + 3) * 0.1",
        ),
    ],
) -> str:
    """Calculate the exact value of an arithmetic expression."""
    try:
        return format_value(evaluate(expression))
    except ExpressionError as fault:
        raise ToolError(f"The expression has no value: {fault}.") from fault


@tool(side_effects=SideEffects.READ, idempotent=True)
async def current_time(
    context: ToolContext,
    timezone: Annotated[
        str, Field(max_length=64, description="An IANA time zone name such as Europe/Berlin (default: UTC)")
    ] = "UTC",
) -> str:
    """Tell what time it is now, as an ISO 8601 date and time with its UTC offset."""
    moment = datetime.fromtimestamp(context.clock.now(), _zone(timezone))
    return moment.isoformat(timespec="seconds")


@tool(side_effects=SideEffects.NONE, idempotent=True, requires=(PERSON,))
async def ask_person(
    question: Annotated[str, Field(min_length=1, max_length=10_000, description="The question, in full sentences")],
) -> str:
    """Ask a person something that only a person can know or decide. Their answer may take a long time."""
    raise ToolError.suspend({"question": question})


def _zone(name: str) -> tzinfo:
    """Return the time zone. UTC needs no time zone data; any error of the lookup means that the name is unknown."""
    if name.upper() == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as cause:
        raise ToolError("There is no time zone of that name; use an IANA name such as Europe/Berlin.") from cause


BUILTIN_TOOLS: tuple[FunctionTool, ...] = (
    ask_person,
    calculate.as_instant(),
    current_time.as_instant(),
    roll_dice.as_instant(),
)
