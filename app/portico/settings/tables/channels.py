"""The tables `[channels.NAME]` of the configuration: what callers may do in a channel."""

from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from portico.domain.access.channels import MAX_INSTRUCTIONS, ChannelRules
from portico.domain.access.principal import Permission
from portico.domain.ids import CHANNEL_PATTERN
from portico.settings.tables.limits import ObjectName, narrowed_objects
from portico.settings.values import Table


def _permission(name: str) -> str:
    if name not in set(Permission):
        raise ValueError(f"must be one of {', '.join(Permission)}; tools, models and agents have keys of their own")
    return name


ConfiguredChannel = Annotated[str, StringConstraints(pattern=rf"^{CHANNEL_PATTERN}$")]
Instructions = Annotated[str, StringConstraints(min_length=1, max_length=MAX_INSTRUCTIONS)]
Objects = Annotated[tuple[ObjectName, ...], Field(strict=False)]
PermissionNames = Annotated[tuple[Annotated[str, AfterValidator(_permission)], ...], Field(strict=False)]


class ChannelSettings(Table):
    """Rights of callers in a channel at most, beside those of their key and of their tenant."""

    tools: Objects | None = Field(None, description="Tools that may be used; a trailing `*` is a prefix. All if absent")
    models: Objects | None = Field(
        None, description="Routes and engines that may be used, likewise; a route covers its engines"
    )
    agents: Objects | None = Field(None, description="Agents that may be used, likewise")
    permissions: PermissionNames | None = Field(
        None, description="Permissions without an object that are left, such as `can_send_messages`. All if absent"
    )
    instructions: Instructions | None = Field(
        None, description="Text that follows the system prompt of each execution that comes by the channel"
    )

    def rules(self) -> ChannelRules:
        """Return the rules."""
        return ChannelRules(narrowed_objects(self), self.permissions, self.instructions)
