"""Channels: the entrance of each request, the rights that it leaves, and callers that name a user or a channel."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from mcp.client.client import Client

from portico.adapters.access.authenticators import NoAuthentication
from portico.adapters.system import SystemClock
from portico.bootstrap.service import Service, open_history_reader, open_service
from portico.domain.access.principal import KEY_DEFAULT, Principal
from portico.domain.failures import ConfigurationFailure
from portico.domain.ids import RequestId, TenantId
from portico.entrypoints.http.app import create_app
from portico.settings import Settings
from tests.entrypoints.http.test_authentication import bearer, keyed
from tests.support.http_server import running_server
from tests.support.portico import chat, portico

RELAY = ("can_act_for", *KEY_DEFAULT.names)
SUM = 'Use calculate: expression="6*7"'


async def test_each_entrance_is_a_channel() -> None:
    completion = chat("hello", model="default")
    message = chat("hello", model="default", max_tokens=100)
    async with portico(mcp={"enabled": True}) as (served, _):
        for path, body in (
            ("/v1/execute", chat("hello")),
            ("/v1/chat/completions", completion),
            ("/v1/messages", message),
        ):
            assert (await served.post(body, {"Idempotency-Key": path}, path)).status == 200
        listed = (await served.get("/v1/executions?order=asc")).json["data"]
        filtered = (await served.get("/v1/executions?channel=openai")).json["data"]
    assert [each["channel"] for each in listed] == ["api", "openai", "anthropic"]
    assert [each["channel"] for each in filtered] == ["openai"]
    assert [each["response"]["metadata"]["channel"] for each in filtered] == ["openai"]


async def test_a_key_that_may_act_for_others_names_the_user_and_the_channel(tmp_path: Path) -> None:
    async with keyed(SystemClock(), tmp_path) as here:
        relay, plain = await here.key("relay", *RELAY), await here.key("ann")
        named = bearer(relay) | {"portico-user": "ann", "portico-channel": "slack"}
        shown = (await here.served.get("/v1/me", named)).json
        asked = (await here.served.post(chat("hello"), named | {"Idempotency-Key": "a"})).json
        own = (await here.served.get("/v1/executions?channel=slack", bearer(plain))).json["data"]
        of_relay = (await here.served.get("/v1/executions", bearer(relay))).json["data"]
        keys = await here.served.get("/v1/keys", named)
    assert (shown["user"], shown["channel"], shown["key"]) == ("ann", "slack", relay.key_id)
    assert [(each["request_id"], each["user"]) for each in own] == [(asked["request_id"], "ann")]
    assert of_relay == []
    assert keys.status == 403


@pytest.mark.parametrize(
    ("permissions", "headers", "refused"),
    [
        ((), {"portico-user": "eve"}, (403, "can_act_for")),
        ((), {"portico-channel": "slack"}, (403, "can_act_for")),
        (RELAY, {"portico-user": "no spaces"}, (422, "portico-user")),
        (RELAY, {"portico-user": ""}, (422, "portico-user")),
        (RELAY, {"portico-channel": "Slack"}, (422, "portico-channel")),
        (RELAY, {"portico-channel": "x" * 33}, (422, "portico-channel")),
    ],
)
async def test_a_header_that_is_not_permitted_or_malformed_is_refused_and_nothing_runs(
    permissions: tuple[str, ...], headers: Mapping[str, str], refused: tuple[int, str], tmp_path: Path
) -> None:
    async with keyed(SystemClock(), tmp_path) as here:
        key = await here.key("ann", *permissions)
        answer = await here.served.post(chat("hello"), bearer(key) | dict(headers))
        listed = (await here.served.get("/v1/executions", bearer(key))).json["data"]
    details = answer.json["details"]
    named = details["permission"] if "permission" in details else details["errors"][0]["field"]
    assert (answer.status, named) == refused
    assert listed == []


async def test_a_channel_narrows_the_rights_of_its_callers_and_says_so(tmp_path: Path) -> None:
    rules = {"permissions": ["can_send_messages", "can_act_for"], "tools": ["calculate"], "models": ["default"]}
    async with keyed(SystemClock(), tmp_path, channels={"slack": rules}) as here:
        key = await here.key("relay", *RELAY)
        there = bearer(key) | {"portico-channel": "slack"}
        tool = await here.served.post(chat("hello", tools=["current_time"]), there)
        elsewhere = await here.served.post(chat("hello", tools=["current_time"]), bearer(key))
        never = await here.served.get("/v1/keys", there)
        shown = (await here.served.get("/v1/me", there)).json["permissions"]
    assert (tool.status, tool.json["details"]) == (403, {"permission": "tool:current_time", "channel": "slack"})
    assert elsewhere.status == 200
    assert (never.status, never.json["details"]) == (403, {"permission": "can_manage_keys"})
    assert shown == ["agent:*", "can_act_for", "can_send_messages", "model:default", "tool:calculate"]


async def test_the_instructions_of_a_channel_follow_the_system_prompt() -> None:
    async with portico(channels={"api": {"instructions": "Answer in one line."}}) as (served, _):
        request_id = (await served.post(chat("hello"))).json["request_id"]
        steps = (await served.get(f"/v1/executions/{request_id}/steps")).json["data"]
    assert "Answer in one line." in str(steps)


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ({"permissions": ["can_do_all"]}, "channels.slack.permissions.0"),
        ({"instructions": "x" * 2_001}, "channels.slack.instructions"),
        ({"models": ["unknown"]}, "channels.slack.models.0"),
        ({"limits": {}}, "channels.slack.limits"),
    ],
)
def test_a_table_that_cannot_be_used_is_named(table: Mapping[str, Any], named: str) -> None:
    with pytest.raises((ConfigurationFailure, ValueError), match=named):
        Settings.model_validate({"channels": {"slack": table}})


async def test_a_rule_of_a_channel_holds_there_alone_and_a_replay_decides_the_same(tmp_path: Path) -> None:
    tables: dict[str, Any] = {"policy": {"deny": [{"tool": "calculate", "channel": "slack"}]}}
    tables |= {"storage": {"url": f"sqlite:///{tmp_path}/portico.db"}}
    async with keyed(SystemClock(), tmp_path, **tables) as here:
        relay = bearer(await here.key("relay", *RELAY))
        slack = relay | {"portico-channel": "slack"}
        there = (await here.served.post(chat(SUM, request_id="there"), slack)).json
        elsewhere = (await here.served.post(chat(SUM, request_id="elsewhere"), relay)).json
        tenant = TenantId((await here.served.get("/v1/me", relay)).json["tenant"])
    async with open_history_reader(Settings.model_validate(tables)) as reader:
        replay = await reader.replay(tenant, RequestId("there"))
    assert [each["result"] for each in elsewhere["tool_calls_made"]] == ["42"]
    assert "42" not in str(there["tool_calls_made"])
    assert replay.identical


async def test_mcp_and_ag_ui_are_channels_and_a_refusal_there_names_them(tmp_path: Path) -> None:
    agents = {"desk": {"description": "Answers.", "system_prompt": "You answer."}}
    tables: dict[str, Any] = {"mcp": {"enabled": True}, "agents": agents, "channels": {"mcp": {"agents": []}}}
    run = {"threadId": "t", "runId": "r", "state": {}, "tools": [], "context": [], "forwardedProps": {}}
    run["messages"] = [{"id": "m", "role": "user", "content": "hello"}]
    async with portico(**tables) as (served, _):
        ran = await served.post(orjson.dumps(run), {"Accept": "text/event-stream"}, "/v1/ag-ui/desk")
        async with Client(f"{served.url}/mcp", mode="auto") as mcp:
            shown = (await mcp.call_tool("execute", {"message": "hello"})).structured_content
            refused = await mcp.call_tool("execute", {"message": "hello", "agent": "desk"})
        ids = (ran.headers["x-request-id"], shown["request_id"] if shown else "")
        views = [(await served.get(f"/v1/executions/{each}")).json for each in ids]
    assert [each["channel"] for each in views] == ["ag-ui", "mcp"]
    assert refused.is_error
    assert '"channel": "mcp"' in refused.model_dump_json(indent=1)


class CountingAuthenticator(NoAuthentication):
    """Takes every caller for the local one, and counts the questions whether its access has ended."""

    questions = 0

    async def is_current(self, principal: Principal) -> bool:
        self.questions += 1
        return True


async def test_without_authentication_no_request_asks_whether_access_has_ended() -> None:
    authenticator = CountingAuthenticator()

    @asynccontextmanager
    async def opener(settings: Settings) -> AsyncIterator[Service]:
        async with open_service(settings) as service:
            yield replace(service, authenticator=authenticator)

    app = create_app(Settings.model_validate({"storage": {"url": "sqlite://"}}), opener)
    async with running_server(app) as served:
        asked = {"model": "default", "messages": [{"role": "user", "content": "[[slow:5]] Hello"}]}
        streamed = await served.post(orjson.dumps({**asked, "stream": True}), path="/v1/chat/completions")
        whole = await served.post(orjson.dumps(asked), path="/v1/chat/completions")
    assert streamed.body.endswith(b"data: [DONE]\n\n")
    assert whole.status == 200
    assert authenticator.questions == 0
