"""Ten tools that do next to nothing, which a service loads."""

from typing import Final

from portico.capabilities.tools.definition import tool
from portico.domain.tools import SideEffects

FEW_TOOLS: Final = tuple(f"few_{number}" for number in range(10))


def echo_tool(name: str, module: str) -> object:
    """Return a tool of that name that belongs to that module."""

    async def echo(number: int) -> str:
        """Return the number."""
        return str(number)

    echo.__name__, echo.__module__ = name, module
    return tool(side_effects=SideEffects.NONE, idempotent=True)(echo)


globals().update({name: echo_tool(name, __name__) for name in FEW_TOOLS})
