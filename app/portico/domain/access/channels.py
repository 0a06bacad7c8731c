"""Channels: the entrances by which requests come, and what each leaves of the rights of its callers."""

from collections.abc import Mapping
from typing import Final

from portico.domain.access.principal import ObjectKind, Permissions
from portico.domain.ids import API, ChannelName
from portico.domain.value import value

CLI: Final = ChannelName("cli")
"""A command that runs a service in its own process."""
OPENAI: Final = ChannelName("openai")
ANTHROPIC: Final = ChannelName("anthropic")
MCP: Final = ChannelName("mcp")
AG_UI: Final = ChannelName("ag-ui")
SCHEDULE: Final = ChannelName("schedule")
MAX_INSTRUCTIONS: Final = 2_000
"""Number of characters of a channel's instructions."""


@value
class Entrance:
    """The entrance of a request, and the user and the channel that its headers name; None without them."""

    channel: ChannelName = API
    named_channel: str | None = None
    named_user: str | None = None


@value
class ChannelRules:
    """Rights that a channel leaves to its callers, and the instructions that follow the system prompt there.

    `objects` has the permitted names of each kind that is narrowed. Without `permissions` all others are left.
    """

    objects: Mapping[ObjectKind, tuple[str, ...]]
    permissions: tuple[str, ...] | None = None
    instructions: str | None = None

    def narrow(self, permissions: Permissions) -> Permissions:
        """Return those of the permissions that the channel leaves."""
        for kind, names in self.objects.items():
            permissions = permissions.narrowed(kind, names)
        return permissions if self.permissions is None else permissions.without_others(self.permissions)
