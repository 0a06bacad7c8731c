"""Channels: the user and the channel of a request, and the rights that it has there."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from portico.domain.access.channels import ChannelRules, Entrance
from portico.domain.access.principal import Permission, Principal
from portico.domain.failures import AccessFailure, Code, Failure, invalid_request
from portico.domain.ids import CHANNEL_PATTERN, ChannelName, UserId
from portico.domain.value import replace
from portico.orchestration.rights import denied

USER_HEADER: Final = "portico-user"
CHANNEL_HEADER: Final = "portico-channel"
_USER: Final = re.compile(r"[A-Za-z0-9._@|:-]{1,128}")
_CHANNEL: Final = re.compile(CHANNEL_PATTERN)


class Channels:
    """The rules of the configured channels; one without rules changes no rights."""

    def __init__(self, rules: Mapping[ChannelName, ChannelRules]) -> None:
        self._rules = rules
        self.is_empty = not rules
        """True if no channel has rules."""
        self._through = lru_cache(maxsize=1_024)(_through)
        """Callers in channels without rules, made once for all of their requests."""

    def enter(self, principal: Principal, entrance: Entrance) -> Principal:
        """Return the caller as it is behind the entrance: its channel, its user, and the rights that it has there.

        Raises: AccessFailure (ACCESS_DENIED) for a named user or channel without `can_act_for`, and for a named channel
        of a key that has its own; RequestFailure (REQUEST_INVALID) for a malformed one.
        """
        came_by = principal.channel if principal.has_own_channel else entrance.channel
        entered = self._within(principal, came_by)
        if entrance.named_user is None and entrance.named_channel is None:
            return entered
        if not entered.permissions.allows(Permission.ACT_FOR):
            raise name_channel(denied(Permission.ACT_FOR, "name the user or the channel of a request"), entered)
        if entrance.named_channel is not None:
            if principal.has_own_channel:
                raise denied(Permission.ACT_FOR, "name another channel than that of its key")
            if not _CHANNEL.fullmatch(entrance.named_channel):
                raise invalid_request((CHANNEL_HEADER, "must be 1 to 32 of the characters a-z 0-9 -, once"))
            entered = self._within(principal, ChannelName(entrance.named_channel))
        if entrance.named_user is None:
            return entered
        if not _USER.fullmatch(entrance.named_user):
            message = "must be 1 to 128 of the characters A-Z a-z 0-9 . _ @ | : -, once"
            raise invalid_request((USER_HEADER, message))
        return replace(entered, user=UserId(entrance.named_user), acts_for_user=True)

    def instructions(self, channel: ChannelName, of_session: str | None) -> str | None:
        """Return the instructions that follow the system prompt: those of the channel, then those of the session."""
        rules = self._rules.get(channel)
        given = [text for text in (None if rules is None else rules.instructions, of_session) if text is not None]
        return "\n\n".join(given) or None

    def _within(self, principal: Principal, channel: ChannelName) -> Principal:
        rules = self._rules.get(channel)
        if rules is None:
            return self._through(principal, channel)
        whole = principal.permissions
        return replace(principal, channel=channel, permissions=rules.narrow(whole), outside_channel=whole)


def _through(principal: Principal, channel: ChannelName) -> Principal:
    """Return the caller in the channel."""
    return principal if channel == principal.channel else replace(principal, channel=channel)


def name_channel(failure: Failure, principal: Principal) -> Failure:
    """Return the failure, with the name of the channel if that alone refuses what the caller asked for."""
    permission, whole = failure.details.get("permission"), principal.outside_channel
    if failure.code is not Code.ACCESS_DENIED or whole is None or not isinstance(permission, str):
        return failure
    if not whole.allows(permission):
        return failure
    return AccessFailure(Code.ACCESS_DENIED, failure.message, {**failure.details, "channel": principal.channel})


NO_CHANNELS: Final = Channels({})
"""Channels without rules."""
