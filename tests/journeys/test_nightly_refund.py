"""Two users of one key see their own issues; a schedule asks for a refund, and two people agree on less of it.

The service is killed in between. Nothing that was written has a token of a user.
"""

from base64 import b64encode
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
from standardwebhooks import Webhook

from portico.bootstrap.keys import KeyGrant, open_keys
from portico.domain.access.limits import NO_LIMITS
from portico.domain.access.principal import KEY_DEFAULT, Permissions
from portico.domain.ids import TenantId, UserId
from portico.settings import Settings
from tests.support.callers import Caller
from tests.support.http_server import RunningServer
from tests.support.replica_processes import run_replicas, wait_until
from tests.support.webhook_receiver import SECRET, Receiver, file_endpoint, webhook_receiver

TOOLS = '''
from pathlib import Path
from hashlib import sha256
from portico import SideEffects, ToolContext, tool

@tool(side_effects=SideEffects.READ, idempotent=True, credentials=("tracker",))
async def my_issues(context: ToolContext) -> str:
    """List the issues of the person who asks."""
    token = await context.credential("tracker")
    return f"issues {sha256(token.encode()).hexdigest()} seen with {token}"

@tool(side_effects=SideEffects.EXTERNAL, idempotent=False)
async def refund(amount: float) -> str:
    """Refund an amount."""
    with Path(__file__).with_name("refunds.log").open("a") as log:
        log.write(f"{amount:g}\\n")
    return f"refunded {amount:g}"
'''
CONFIGURATION = """
[auth]
mode = "keys"

[tools]
modules = ["night_tools"]

[credentials.tracker]
type = "secret"

[agents.desk]
description = "Answers."
system_prompt = "You answer."
tools = ["my_issues"]

[policy]
approve = [{ tool = "refund", approvers = 2 }]

[webhooks.endpoints.team]
"""
STEP = {"name": "pay", "type": "tool", "input": {"name": "refund", "arguments": {"amount": 80}}}
REQUEST = {"messages": [{"role": "user", "content": "Refund."}], "mode": "plan", "plan": {"steps": [STEP]}}
TOKENS = {"ann": "token-of-ann/Qx7+=~", "ben": "token-of-ben/Zk9+=~"}
ASK = "Use my_issues."
USERS: Mapping[str, Permissions] = {
    "relay": Permissions.of([*KEY_DEFAULT.names, "can_act_for"]),
    "ada": KEY_DEFAULT,
    "boss": Permissions.of(["can_approve"]),
    "chief": Permissions.of(["can_approve"]),
}


async def keys_of(url: str) -> dict[str, Mapping[str, str]]:
    """Return the headers of a key for each user."""
    found: dict[str, Mapping[str, str]] = {}
    settings = Settings.model_validate({"storage": {"url": url}, "auth": {"mode": "keys"}})
    async with open_keys(settings) as keys:
        for user, rights in USERS.items():
            _, key = await keys.create(KeyGrant(TenantId("acme"), UserId(user), rights, NO_LIMITS, days=None))
            found[user] = {"Authorization": f"Bearer {key.reveal()}"}
    return found


async def approve(served: RunningServer, key: Mapping[str, str], request_id: str, **payload: Any) -> int:
    body = {"tool_id": "refund", "payload": {"decision": "approve", "arguments": {"amount": 50}, **payload}}
    return (await Caller(served, key).send("POST", f"/v1/executions/{request_id}/resume", orjson.dumps(body))).status


async def ask_for_issues(relay: Caller) -> None:
    """Ask as two users of one key; each is asked for its token, whose arrival lets the agent go on."""
    for user, token in TOKENS.items():
        caller = Caller(relay.served, {**relay.headers, "portico-user": user})
        body = {"messages": [{"role": "user", "content": ASK}], "agent": "desk", "request_id": f"of-{user}"}
        waiting = await caller.execute(orjson.dumps(body))
        assert (waiting.status, waiting.json["suspensions"][0]["kind"]) == (202, "authorization")
        value = orjson.dumps({"value": token})
        assert (await caller.send("PUT", "/v1/credentials/tracker", value)).status == 204
        await wait_until(partial(has_ended, caller, f"of-{user}"))
        again = await caller.execute(orjson.dumps({**body, "request_id": f"again-of-{user}"}))
        for shown in ((await caller.get(f"/v1/executions/of-{user}")).json["response"], again.json):
            [call] = shown["tool_calls_made"]
            assert call["result"] == f"issues {sha256(token.encode()).hexdigest()} seen with [credential tracker]"


async def has_ended(caller: Caller, request_id: str) -> bool:
    return bool((await caller.get(f"/v1/executions/{request_id}")).json["state"] == "COMPLETE")


def written(folder: Path, receiver: Receiver) -> bytes:
    """Return all that the service has written and sent."""
    files = [path for path in folder.iterdir() if path.name.startswith(("portico.db", "replica-"))]
    return b"".join([*(path.read_bytes() for path in files), *(each.body for each in receiver.received)])


async def test_a_nightly_refund_runs_once_with_the_amount_that_two_people_agreed_on(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/portico.db"
    tmp_path.joinpath("night_tools.py").write_text(TOOLS)
    keys = await keys_of(url)
    async with AsyncExitStack() as stack:
        receiver = await stack.enter_async_context(webhook_receiver())
        table = file_endpoint(tmp_path, receiver.url, events=["execution.suspended"])
        lines = [f"{key} = {orjson.dumps(value).decode()}" for key, value in table.items()]
        tmp_path.joinpath("portico.toml").write_text("\n".join([CONFIGURATION.rstrip(), *lines, ""]))
        async with run_replicas(url, tmp_path, 1) as fleet:
            [replica] = fleet.replicas
            await ask_for_issues(Caller(replica.served, keys["relay"]))
            ada = Caller(replica.served, keys["ada"])
            nightly = orjson.dumps({"cron": "30 3 * * *", "timezone": "Europe/Berlin", "request": REQUEST})
            assert (await ada.send("PUT", "/v1/schedules/nightly", nightly)).status == 201
            started = (await ada.send("POST", "/v1/schedules/nightly/runs", b"")).json["request_id"]
            messages = await receiver.wait_for(len(TOKENS) + 1)
            [message] = [each for each in messages if each.json["data"]["request_id"] == started]
            heard = Webhook(SECRET).verify(message.body, dict(message.headers))["data"]
            assert (heard["request_id"], heard["channel"], heard["state"]) == (started, "schedule", "SUSPENDED")
            assert [each["tool_id"] for each in heard["suspensions"]] == ["refund"]
            assert await approve(replica.served, keys["boss"], started, reason="half is enough") == 202
            assert await approve(replica.served, keys["boss"], started) == 409
            replica.kill()
        async with run_replicas(url, tmp_path, 1) as fleet:
            ada = Caller(fleet.replicas[0].served, keys["ada"])
            assert await approve(ada.served, keys["chief"], started) == 204
            await wait_until(partial(has_ended, ada, started))
            response = (await ada.get(f"/v1/executions/{started}")).json["response"]
            replay = (await ada.send("POST", f"/v1/executions/{started}/replay")).json
    [call] = response["tool_calls_made"]
    assert (call["arguments"], call["asked_arguments"]) == ({"amount": 50}, {"amount": 80})
    assert [each["user"] for each in call["decision"]["by"]] == ["boss", "chief"]
    assert tmp_path.joinpath("refunds.log").read_text() == "50\n"
    assert replay["identical"] is True
    whole = written(tmp_path, receiver)
    assert b"[credential tracker]" in whole
    for token in TOKENS.values():
        for form in (token, quote(token, safe=""), b64encode(token.encode()).decode()):
            assert form.encode() not in whole
