"""Facts of a configured tool that its table has, whether it is a program or an HTTP API."""

from portico.adapters.tools.external_tool import ExternalToolFacts
from portico.settings.tables.tool_sources import ExternalToolSettings


def facts_of(name: str, table: ExternalToolSettings) -> ExternalToolFacts:
    """Return the facts of the tool of that name."""
    return ExternalToolFacts(
        name, table.description, table.parameters, table.side_effects, table.idempotent, table.timeout
    )
