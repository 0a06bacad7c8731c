"""Rights of what starts later: those that its key has then, within the rules of its channel and of the key's own."""

from dataclasses import dataclass

import pytest

from portico.domain.access.channels import SCHEDULE, ChannelRules
from portico.domain.access.principal import LOCAL, Permissions, Principal
from portico.domain.failures import AccessFailure
from portico.domain.ids import ChannelName, KeyId, TenantId, UserId
from portico.domain.schedules import ScheduleOwner
from portico.orchestration.channels import Channels
from portico.orchestration.later_rights import LaterRights

SLACK = ChannelName("slack")
OWNER = ScheduleOwner(TenantId("acme"), UserId("ada"), KeyId("key00001"))
KEY = Principal(OWNER.tenant, OWNER.user, OWNER.key_id, Permissions.of(["can_send_messages", "tool:*", "model:*"]))
RULES = Channels(
    {
        SLACK: ChannelRules({"tool": ("search_*", "refund")}),
        SCHEDULE: ChannelRules({"tool": ("refund", "report")}),
    }
)


@dataclass
class OneKey:
    """Authentication that knows one key."""

    holder: Principal

    async def authenticate(self, credentials: str | None, *, audience: str | None = None) -> Principal:
        return self.holder

    async def confirm(self, principal: Principal) -> Principal:
        return self.holder

    async def is_current(self, principal: Principal) -> bool:
        return True


async def rights(key: Principal, owner: ScheduleOwner = OWNER) -> Principal:
    return await LaterRights(OneKey(key), RULES, "keys").principal(owner, SCHEDULE)


@pytest.mark.parametrize(("has_own_channel", "tools"), [(False, ("refund", "report")), (True, ("refund",))])
async def test_a_key_stays_within_the_rules_of_its_own_channel_and_the_run_is_in_that_of_its_start(
    has_own_channel: bool, tools: tuple[str, ...]
) -> None:
    key = Principal(
        KEY.tenant,
        KEY.user,
        KEY.key_id,
        KEY.permissions,
        channel=SLACK if has_own_channel else LOCAL.channel,
        has_own_channel=has_own_channel,
    )
    acting = await rights(key)
    assert (acting.channel, acting.user) == (SCHEDULE, OWNER.user)
    assert acting.permissions.permitted_tools(("search_web", "refund", "report")) == tools


async def test_the_key_of_another_user_must_still_be_permitted_to_act_for_others() -> None:
    relay = Principal(KEY.tenant, UserId("relay"), KEY.key_id, KEY.permissions)
    with pytest.raises(AccessFailure) as refused:
        await rights(relay)
    assert refused.value.details == {"permission": "can_act_for"}
