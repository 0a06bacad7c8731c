"""Limits of tenants over HTTP: headers, refusals, waits and usage."""

from itertools import pairwise
from typing import Any

import anyio
import orjson
import pytest

from tests.support.http_server import HttpAnswer, RunningServer
from tests.support.portico import (
    ASK_PERSON,
    EVENTS,
    IDEMPOTENCY_KEY,
    RESPOND_ASYNC,
    chat,
    portico,
    resume,
    send_command,
)
from tests.support.server_state import wait_for_idle, wait_for_running, wait_for_state

QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"
PRICED = {"paid": {"model": "rehearsal://", "price": {"input": 1.0, "output": 2.0}}}
SLOW = "[[slow:5]] Hello"
YEAR = 366 * 86_400
"""A window in which next to nothing comes back during a test."""


def limited(**limits: Any) -> dict[str, Any]:
    """Return the table with these limits of the tenant that a service without authentication has."""
    return {"tenants": {"local": limits}}


async def usage(served: RunningServer, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await served.get(f"/v1/usage{query}")).json["data"]
    return found


async def test_a_caller_without_limits_gets_no_headers_of_limits() -> None:
    async with portico() as (served, _):
        answer = await served.post(chat("Hello"))
    assert answer.status == 200
    assert not [name for name in answer.headers if name.startswith("ratelimit")]


async def test_every_limit_is_shown_with_what_is_left_of_it() -> None:
    limits = {"requests": "600/60", "tokens": f"200000/{YEAR}", "cost": f"5/{YEAR}", "concurrency": 7}
    async with portico(engines=PRICED, **limited(**limits)) as (served, _):
        answer = await served.post(chat("Hello"))
        streamed = await served.post(chat("Hello"), EVENTS)
        read = await served.get("/v1/executions")
    tokens = answer.json["token_usage"]["total_tokens"]
    cost = round(answer.json["cost"]["amount"] * 1_000_000)
    assert answer.headers["ratelimit-policy"] == (
        f'"tenant-requests";q=600;w=60, "tenant-tokens";q=200000;w={YEAR};qu="tokens", '
        f'"tenant-cost";q=5000000;w={YEAR};qu="cost", "tenant-concurrency";q=7;qu="concurrent-requests"'
    )
    requests, *rates, concurrency = answer.headers["ratelimit"].split(", ")
    assert requests == '"tenant-requests";r=599;t=1'
    assert [each.rpartition(";t=")[0] for each in rates] == [
        f'"tenant-tokens";r={200_000 - tokens}',
        f'"tenant-cost";r={5_000_000 - cost}',
    ]
    assert [int(each.rpartition(";t=")[2]) for each in rates] == pytest.approx(
        [YEAR * tokens / 200_000, YEAR * cost / 5_000_000], rel=0.01
    )
    assert concurrency == '"tenant-concurrency";r=7'
    assert '"tenant-concurrency";r=6' in streamed.headers["ratelimit"]
    assert "ratelimit" not in read.headers


async def test_a_request_over_the_rate_is_refused_with_the_registered_problem_and_the_wait() -> None:
    async with portico(**limited(requests="2/3600")) as (served, service):
        answers = [await served.post(chat("Hello")) for _ in range(3)]
        metrics = service.metrics()[0].decode()
    assert [answer.status for answer in answers] == [200, 200, 429]
    refused = answers[2]
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json["type"] == QUOTA_EXCEEDED
    assert refused.json["violated-policies"] == ["tenant-requests"]
    assert (refused.json["code"], refused.json["retryable"]) == ("REQUEST_RATE_LIMITED", True)
    assert (refused.headers["retry-after"], refused.headers["x-should-retry"]) == ("1800", "true")
    assert refused.headers["ratelimit"] == '"tenant-requests";r=0;t=1800'
    assert 'portico_limit_refusals_total{limit="tenant-requests"} 1.0' in metrics


async def test_refused_requests_and_repeats_by_key_take_nothing() -> None:
    async with portico(**limited(requests="3/3600")) as (served, _):
        first = await served.post(chat("Hello"), IDEMPOTENCY_KEY)
        for _ in range(2):
            again = await served.post(chat("Hello"), IDEMPOTENCY_KEY)
            invalid = await served.post(chat("Hello", model="none"))
        taken = await served.post(chat("Hello", request_id="q"))
        conflict = await served.post(chat("Hello", request_id="q"), {"Idempotency-Key": "k-2"})
        last = await served.post(chat("Hello"))
        over = await served.post(chat("Hello"))
        repeated = await served.post(chat("Hello"), IDEMPOTENCY_KEY)
    assert [each.status for each in (first, again, invalid, taken, conflict, last)] == [200, 200, 422, 200, 409, 200]
    assert (over.status, repeated.status) == (429, 200)
    assert repeated.json == again.json
    assert repeated.headers["idempotency-replayed"] == "true"


async def test_executions_over_the_concurrency_are_refused_while_as_many_run() -> None:
    async with portico(**limited(concurrency=2)) as (served, service):
        async with anyio.create_task_group() as group:
            for number in range(2):
                group.start_soon(served.post, chat("[[slow:300]] Hello", request_id=f"r-{number}"))
            await wait_for_running(service, 2)
            refused = await served.post(chat("Hello"))
        ran = [(await served.get(f"/v1/executions/r-{number}")).json["state"] for number in range(2)]
        later = await served.post(chat("Hello"))
    assert (refused.status, ran, later.status) == (429, ["COMPLETE"] * 2, 200)
    assert refused.json["violated-policies"] == ["tenant-concurrency"]
    assert refused.headers["retry-after"] == "1"
    assert refused.headers["ratelimit"] == '"tenant-concurrency";r=0'


async def test_background_executions_wait_for_a_slot_and_a_suspended_one_holds_none() -> None:
    async with portico(**limited(concurrency=1)) as (served, service):
        asked = await served.post(chat(ASK_PERSON, request_id="q"))
        waiting = [await served.post(chat(SLOW, request_id=f"b-{number}"), RESPOND_ASYNC) for number in range(3)]
        busy = await served.post(chat("Hello"))
        resumed = await resume(served)
        await wait_for_idle(service)
        ran = [(await served.get(f"/v1/executions/b-{number}")).json for number in range(3)]
        gauge = service.metrics()[0].decode()
    assert (asked.status, [each.status for each in waiting], busy.status) == (202, [202] * 3, 429)
    assert (resumed.status, resumed.json["state"]) == (200, "COMPLETE")
    assert [each["state"] for each in ran] == ["COMPLETE"] * 3
    in_order = sorted(ran, key=lambda each: each["started_at"])
    assert all(one["entered_at"] <= other["started_at"] for one, other in pairwise(in_order))
    assert 'portico_limits_waiting{limit="concurrency"} 0.0' in gauge


async def test_a_turn_that_waits_in_its_session_holds_no_slot() -> None:
    """The turn before it is suspended meanwhile, and needs the only slot to go on."""
    ask = '[[slow:5]] Use ask_person: "May I?"'
    async with portico(**limited(concurrency=1)) as (served, service):
        waiting: list[HttpAnswer] = []

        async def enqueue() -> None:
            body = chat("[[slow:5]] Hello", request_id="later", session_id="s", if_session_busy="enqueue")
            waiting.append(await served.post(body, RESPOND_ASYNC))

        first = await served.post(chat(ask, request_id="q", session_id="s", background=True))
        await wait_for_running(service)
        await enqueue()
        await wait_for_state(served, "q", "SUSPENDED")
        resumed = await resume(served)
        await wait_for_idle(service)
        later = (await served.get("/v1/executions/later")).json
    assert (first.status, waiting[0].status) == (202, 202)
    assert (resumed.status, resumed.json["state"]) == (200, "COMPLETE")
    assert later["state"] == "COMPLETE"


async def test_an_execution_that_waits_for_a_slot_can_be_cancelled() -> None:
    async with portico(**limited(concurrency=1)) as (served, _):
        await served.post(chat(ASK_PERSON, request_id="q"))
        async with anyio.create_task_group() as group:
            group.start_soon(served.post, chat("[[slow:60]] Hello"))
            await anyio.sleep(1)
            answers: list[HttpAnswer] = []

            async def answer() -> None:
                answers.append(await resume(served))

            group.start_soon(answer)
            await anyio.sleep(1)
            cancelled = await send_command(served, "cancel")
        shown = (await served.get("/v1/executions/q")).json
    assert cancelled.status == 202
    assert answers[0].json["state"] == shown["state"] == "CANCELLED"


async def test_the_first_inference_over_the_tokens_is_refused_and_a_later_one_waits() -> None:
    """A dice roll has two inferences, of which each reserves about 1,100 tokens."""
    engines = {"small": {"model": "rehearsal://", "context_window": 8_000, "response_reserve": 1_000}}
    roll = chat("Roll two dice with roll_dice, count 2, sides 6.", tools=["roll_dice"])
    async with portico(engines=engines, **limited(tokens="1500/60")) as (served, _):
        started = anyio.current_time()
        waited = await served.post(roll)
        seconds = anyio.current_time() - started
        used = [await served.post(chat("Hello")) for _ in range(40)]
    assert (waited.status, waited.json["metadata"]["tool_rounds"]) == (200, 1)
    assert seconds < 30
    refused = [each for each in used if each.status == 429]
    assert refused
    error = refused[0].json["error"]
    assert (error["code"], error["details"]["violated_policies"]) == ("REQUEST_RATE_LIMITED", ["tenant-tokens"])
    assert int(refused[0].headers["retry-after"]) >= 1


@pytest.mark.parametrize("narrow", [{"hints": {"max_tokens": 50}}, {"limits": {"tokens": 900}}])
async def test_an_inference_that_can_never_fit_is_refused_by_name(narrow: dict[str, Any]) -> None:
    async with portico(**limited(tokens="1000/60")) as (served, _):
        never = await served.post(chat("Hello"))
        spared = await served.post(chat("Hello", **narrow))
        long = await served.post(chat("Hello " * 2_000, hints={"max_tokens": 50}))
    assert (never.status, never.headers["content-type"]) == (422, "application/problem+json")
    assert never.json["code"] == "ORCHESTRATION_BUDGET_EXCEEDED"
    assert never.json["details"] == {"field": "tenant-tokens", "limit": 1000, "needed": 4096}
    assert (long.status, long.json["error"]["details"]["field"]) == (422, "tenant-tokens")
    assert spared.status == 200


async def test_an_engine_without_a_price_is_refused_to_a_caller_with_a_cost_limit() -> None:
    engines = {"free": {"model": "rehearsal://"}, **PRICED}
    routes = {"default": ["free", "paid"]}
    async with portico(engines=engines, routes=routes, **limited(cost="1/60")) as (served, _):
        refused = await served.post(chat("Hello", model="free"))
        routed = await served.post(chat("Hello"))
        voted = await served.post(
            chat(
                "Hello",
                mode="redundant",
                output={"schema": {"enum": ["a"]}},
                redundancy={"n": 2, "models": ["free"] * 2},
            )
        )
    assert (refused.status, refused.json["code"]) == (403, "ACCESS_DENIED")
    assert refused.headers["content-type"] == "application/problem+json"
    assert (voted.status, voted.json["error"]["code"]) == (403, "ACCESS_DENIED")
    assert (routed.status, routed.json["metadata"]["provider"]) == (200, "paid")


async def test_a_replay_takes_nothing() -> None:
    async with portico(engines=PRICED, **limited(requests="1/3600", tokens="100000/3600")) as (served, _):
        ran = await served.post(chat("Hello", request_id="q"))
        before = await usage(served)
        replayed = await send_command(served, "replay")
        after = await usage(served)
    assert (ran.status, replayed.status, replayed.json["identical"]) == (200, 200, True)
    assert before == after
    assert before[0]["executions"] == 1


async def test_usage_is_added_up_by_every_group() -> None:
    engines = {**PRICED, "free": {"model": "rehearsal://"}}
    async with portico(engines=engines) as (served, _):
        answers = [await served.post(chat("Hello", model=model)) for model in ("paid", "paid", "free")]
        kept = await served.post(chat("Hello", model="paid", session_id="s"))
        by_day, by_user = await usage(served), await usage(served, "?by=user")
        by_key, by_agent = await usage(served, "?by=key"), await usage(served, "?by=agent")
        by_model = await usage(served, "?by=model")
        none = await usage(served, "?since=2099-01-01T00:00:00Z")
        wrong = await served.get("/v1/usage?by=hour")
    used = [each.json["token_usage"] for each in (*answers, kept)]
    tokens = sum(each["total_tokens"] for each in used)
    assert [(each["executions"], each["total_tokens"]) for each in (*by_day, *by_user, *by_key, *by_agent)] == [
        (4, tokens)
    ] * 4
    assert (by_user[0]["user"], by_key[0]["key"], by_agent[0]["agent"]) == ("local", None, None)
    assert by_day[0]["cost"]["amount"] == pytest.approx(
        sum(each.json["cost"]["amount"] for each in (answers[0], answers[1], kept))
    )
    assert [each["executions"] for each in by_model] == [4]
    assert none == []
    assert wrong.status == 422


async def test_a_fork_is_charged_for_what_it_does_itself() -> None:
    roll = chat("Roll two dice with roll_dice, count 2, sides 6.", tools=["roll_dice"], request_id="q")
    async with portico() as (served, _):
        ran = await served.post(roll)
        whole = (await usage(served))[0]
        forked = await served.post(orjson.dumps({"from_step": 1}), path="/v1/executions/q/fork")
        both = (await usage(served))[0]
    assert (ran.status, forked.status) == (200, 200)
    inherited = whole["total_tokens"]
    assert inherited < both["total_tokens"] < 2 * inherited
    assert both["executions"] == 2
