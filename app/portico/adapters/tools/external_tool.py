"""Base of configured tools that run outside of this process."""

from collections.abc import Mapping
from typing import Any

from portico.domain.tools import IsolationLevel, NetworkAccess, SideEffects, ToolDefinition, ToolInfo
from portico.domain.value import value


@value
class ExternalToolFacts:
    """Facts of a configured tool: `parameters` is a JSON Schema of an object, `timeout` is in seconds."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    side_effects: SideEffects
    idempotent: bool
    timeout: float


class ExternalTool:
    """The first two of a tool's four methods, for a tool of that type."""

    def __init__(
        self,
        facts: ExternalToolFacts,
        kind: str,
        *,
        identity: str,
        containment: str,
        isolation: IsolationLevel | None = None,
        network: NetworkAccess | None = None,
        credentials: tuple[str, ...] = (),
    ) -> None:
        self._definition = ToolDefinition(facts.name, facts.description, facts.parameters)
        self._info = ToolInfo(
            facts.name,
            kind,
            facts.description,
            facts.side_effects,
            facts.idempotent,
            timeout=facts.timeout,
            identity=identity,
            containment=containment,
            isolation=isolation,
            network=network,
            credentials=credentials,
        )

    def info(self) -> ToolInfo:
        return self._info

    def definition(self) -> ToolDefinition:
        return self._definition
