"""Client tools: tools that a request brings along and that its client runs."""

from collections.abc import Sequence

from portico.domain.contract.request import ClientTool
from portico.domain.tools import OfferedTool, ToolDefinition


def client_definitions(tools: Sequence[ClientTool]) -> tuple[ToolDefinition, ...]:
    """Return the tools as a model sees them."""
    return tuple([ToolDefinition(tool.name, tool.description, tool.parameters) for tool in tools])


def client_offers(definitions: Sequence[ToolDefinition]) -> tuple[OfferedTool, ...]:
    """Return the tools as an inference offers them; no policy decides their calls, and no result is trusted."""
    return tuple([OfferedTool(tool.name, unsafe=False, client=True) for tool in definitions])
