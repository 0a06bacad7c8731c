"""POST /v1/quote, and the limits on tokens and cost, over HTTP."""

from typing import Any

import orjson
import pytest

from tests.support.http_server import RunningServer, request_bytes
from tests.support.portico import EVENTS, QUOTE, chat, events, portico

SCHEMA = {"type": "object", "properties": {"size": {"enum": ["small", "large"]}}, "required": ["size"]}
PRICED = {"paid": {"model": "rehearsal://", "price": {"input": 1.0, "output": 2.0}}}


async def test_a_request_is_quoted_by_its_mode_and_the_limits_in_force() -> None:
    async with portico() as (served, _):
        answer = await served.post(chat("Hello"), path=QUOTE)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json == {
        "inferences": 21 * 2,
        "tool_calls": 200 * 2,
        "transitions": 4 + 21 * 5 + 2,
        "tokens": 21 * 2 * 128_000,
        "seconds": 605.0,
        "cost": None,
    }


async def test_a_known_model_is_priced_without_a_price_in_the_configuration() -> None:
    engines = {"known": {"model": "openai://gpt-4o-mini", "base_url": "http://127.0.0.1:1/v1"}}
    limited = chat("Hello", tools=[], limits={"cost": 0.5})
    async with portico(engines=engines) as (served, _):
        (shown,) = (await served.get("/v1/engines")).json["data"]
        quoted = await served.post(limited, path=QUOTE)
    assert shown["price"] == {"input": 0.15, "output": 0.6, "cached": 0.075, "cache_write": 0.15}
    assert (shown["context_window"], shown["known"]) == (128_000, ["context_window", "price"])
    assert (quoted.status, quoted.json["cost"]["currency"]) == (200, "USD")
    async with portico(engines=engines, telemetry={"currency": "EUR"}) as (served, _):
        (shown,) = (await served.get("/v1/engines")).json["data"]
        refused = await served.post(limited, path=QUOTE)
    assert (shown["price"], shown["known"]) == (None, ["context_window"])
    assert (refused.status, refused.json["details"]["errors"][0]["field"]) == (422, "limits.cost")


async def test_a_narrower_request_has_a_smaller_quote() -> None:
    narrow = {"limits": {"tool_rounds": 0}, "hints": {"timeout": 10}, "tools": []}
    structured = {"mode": "structured", "output": {"schema": SCHEMA}, "limits": {"attempts": 2}}
    redundant = {"mode": "redundant", "output": {"schema": SCHEMA}, "redundancy": {"n": 5}}
    async with portico(failover={"max_retries": 0}, engines=PRICED) as (served, _):
        plain = (await served.post(chat("Hello", **narrow), path=QUOTE)).json
        twice = (await served.post(chat("Hello", **structured), path=QUOTE)).json
        voted = (await served.post(chat("Hello", **redundant), path=QUOTE)).json
    assert plain == {
        "inferences": 1,
        "tool_calls": 0,
        "transitions": 9,
        "tokens": 128_000,
        "seconds": 15.0,
        "cost": {"amount": pytest.approx(0.256), "currency": "USD"},
    }
    assert (twice["inferences"], twice["tool_calls"], twice["transitions"]) == (2, 0, 7 + 2 * 3 + 2)
    assert (voted["inferences"], voted["transitions"], voted["tokens"]) == (5, 5 + 5 * 5, 5 * 128_000)


async def test_a_plan_is_quoted_for_every_planner() -> None:
    step = {"name": "look", "type": "tool", "input": {"name": "roll_dice", "arguments": {"count": 1, "sides": 6}}}
    authored = chat("Hello", mode="plan", plan={"steps": [step]})
    made = chat("Hello", mode="plan", limits={"tool_rounds": 0, "attempts": 2}, plan={"policy": {"max_steps": 3}})
    async with portico(failover={"max_retries": 0}) as (served, _):
        by_request = (await served.post(authored, path=QUOTE)).json
        by_model = (await served.post(made, path=QUOTE)).json
    planner = {"kind": "static", "steps": [step, {**step, "name": "again"}]}
    async with portico(failover={"max_retries": 0}, planner=planner) as (served, _):
        configured = (await served.post(chat("Hello", mode="plan"), path=QUOTE)).json
    assert (by_request["inferences"], by_request["tool_calls"], by_request["transitions"]) == (0, 2, 6)
    assert (by_model["inferences"], by_model["tool_calls"]) == (2 + 3 * 16 * 2, 3 * 2)
    assert (configured["inferences"], configured["tool_calls"]) == (0, 4)


async def test_a_narrow_limit_refuses_a_plan_only_at_its_first_inference() -> None:
    step = {"name": "say", "type": "infer", "input": "Hi"}
    async with portico() as (served, _):
        fits = await served.post(chat("Hello " * 99, mode="plan", plan={"steps": [step]}, limits={"tokens": 40}))
        not_even = await served.post(chat("Hello", mode="plan", plan={"steps": [step]}, limits={"tokens": 4}))
    assert (fits.status, fits.json["state"]) == (200, "COMPLETE")
    assert (not_even.status, not_even.json["state"]) == (422, "ERROR")
    assert not_even.json["error"]["code"] == "ORCHESTRATION_BUDGET_EXCEEDED"


async def test_a_quote_has_the_request_s_id_and_the_caller_s_trace() -> None:
    parent = f"00-{'ab' * 16}-{'cd' * 8}-01"
    async with portico() as (served, _):
        answer = await served.post(chat("Hello", request_id="r-1"), {"traceparent": parent}, path=QUOTE)
    assert answer.headers["x-request-id"] == "r-1"
    assert answer.headers["traceparent"].split("-")[1] == "ab" * 16


async def test_a_quote_runs_nothing_and_leaves_the_request_id_free() -> None:
    async with portico() as (served, service):
        for _ in range(2):
            assert (await served.post(chat("[[fail:500]] Hello", request_id="r-1"), EVENTS, path=QUOTE)).status == 200
        assert service.runner.in_flight == 0
        assert b"portico_executions_total{" not in service.metrics()[0]
        assert (await served.post(chat("Hello", request_id="r-1"))).status == 200
        assert (await served.post(chat("Hello", request_id="r-1"), path=QUOTE)).status == 200


REFUSED: dict[str, tuple[bytes, dict[str, str]]] = {
    "no json": (b"{", {}),
    "unknown field": (chat("Hello", zork=1, request_id="mine"), {}),
    "above a cap": (chat("Hello", limits={"tool_rounds": 10**6}), {}),
    "unknown model": (chat("Hello", model="unknown"), {}),
    "unknown tool": (chat("Hello", tools=["nothing"]), {}),
    "no schema": (chat("Hello", mode="structured"), {}),
    "bad schema": (chat("Hello", mode="structured", output={"schema": {"type": 5}}), {}),
    "no grammar": (chat("Hello", mode="structured", output={"grammar": "unknown"}), {}),
    "no session to wait for": (chat("Hello", if_session_busy="enqueue"), {}),
    "not yet": (chat("Hello", agent="support"), {}),
    "other media": (chat("Hello"), {"Content-Type": "text/plain"}),
    "over budget": (chat("Hello", limits={"tokens": 5}), {}),
    "no price": (chat("Hello", limits={"cost": 5}), {}),
}


@pytest.mark.parametrize("why", REFUSED)
async def test_a_refusal_of_execute_is_the_same_for_a_quote(why: str) -> None:
    body, headers = REFUSED[why]
    async with portico() as (served, _):
        answers = [await served.post(body, headers, path=path) for path in ("/v1/execute", QUOTE)]
    executed, quoted = ({**answer.json, "instance": None, "request_id": None} for answer in answers)
    assert answers[0].status == answers[1].status >= 400
    assert executed == quoted
    assert answers[1].headers["content-type"] == "application/problem+json"
    if why == "unknown field":
        assert answers[1].headers["x-request-id"] == "mine"


async def test_a_quote_supports_only_post() -> None:
    async with portico() as (served, _):
        answer = await served.ask(request_bytes("GET", QUOTE, {}))
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


async def test_a_client_that_leaves_before_the_end_of_its_body_gets_no_response() -> None:
    async with portico() as (served, service):
        async with served.connect() as client:
            head = {"Content-Type": "application/json", "Content-Length": "500"}
            await client.send(request_bytes("POST", QUOTE, head, b'{"messages"'))
        assert (await served.get("/livez")).status == 200
        assert service.runner.in_flight == 0


async def test_a_request_whose_first_inference_exceeds_its_limit_is_refused_with_both_numbers() -> None:
    async with portico() as (served, service):
        answer = await served.post(chat("Hello there", limits={"tokens": 200}))
        assert (answer.status, answer.json["code"]) == (422, "ORCHESTRATION_BUDGET_EXCEEDED")
        details = answer.json["details"]
        assert isinstance(details, dict)
        assert (details["field"], details["limit"], details["used"]) == ("limits.tokens", 200, 0)
        assert details["needed"] > 200
        assert b"portico_executions_total{" not in service.metrics()[0]
        exact = chat("Hello there", limits={"tokens": details["needed"]})
        answer = await served.post(exact)
    assert (answer.status, answer.json["token_usage"]["output_tokens"]) == (200, 1)


async def test_a_schema_in_the_prompt_counts_as_tokens() -> None:
    engines = {"plain": {"model": "rehearsal://", "capabilities": {"schema": False, "tools": False}}}
    async with portico(engines=engines) as (served, _):
        asked = chat("Hello", mode="structured", output={"schema": SCHEMA}, limits={"tokens": 40})
        answer = await served.post(asked)
    assert (answer.status, answer.json["code"]) == (422, "ORCHESTRATION_BUDGET_EXCEEDED")


async def test_an_execution_ends_when_its_tokens_are_used_and_shows_its_partial_result() -> None:
    async with portico() as (served, _):
        whole = await served.post(chat("Please calculate 17*3"))
        used = whole.json["token_usage"]["total_tokens"]
        answer = await served.post(chat("Please calculate 17*3", limits={"tokens": used - 60}), EVENTS)
        enough = await served.post(chat("Please calculate 17*3", limits={"tokens": used}))
    ended = events(answer)[-1]
    assert ended["type"] == "execution.failed"
    assert ended["response"]["error"]["code"] == "ORCHESTRATION_BUDGET_EXCEEDED"
    assert ended["response"]["tool_calls_made"][0]["result"] == "51"
    assert 0 < ended["response"]["token_usage"]["total_tokens"] <= used - 60
    assert enough.json["content"] == whole.json["content"]


async def test_cost_is_limited_if_every_possible_engine_has_a_price() -> None:
    free = {"free": {"model": "rehearsal://"}}
    async with portico(engines=PRICED | free) as (served, _):
        paid = await served.post(chat("Hello", model="paid", limits={"cost": 1}))
        little = await served.post(chat("Hello", model="paid", limits={"cost": 0.00001}))
        either = await served.post(chat("Hello", limits={"cost": 1}))
    assert (paid.status, little.status, either.status) == (200, 422, 422)
    assert (little.json["code"], either.json["code"]) == ("ORCHESTRATION_BUDGET_EXCEEDED", "REQUEST_INVALID")
    assert either.json["details"] == {
        "errors": [{"field": "limits.cost", "message": "needs a price for engine free, which has none"}]
    }


async def test_the_engines_of_all_replicas_need_a_price() -> None:
    free = {"free": {"model": "rehearsal://"}}
    asked: dict[str, Any] = {"mode": "redundant", "output": {"schema": SCHEMA}, "limits": {"cost": 1}}
    async with portico(engines=PRICED | free) as (served, _):
        mixed = await served.post(chat("Hello", **asked, redundancy={"n": 2, "models": ["paid", "free"]}))
        paid = await served.post(chat("Hello", **asked, redundancy={"n": 2, "models": ["paid", "paid"]}))
    assert (mixed.status, paid.status) == (422, 200)
    assert mixed.json["details"]["errors"][0]["field"] == "limits.cost"


async def test_invalid_limits_are_refused_by_field() -> None:
    async with portico() as (served, _):
        for limits in ({"tokens": 0}, {"tokens": 1.5}, {"cost": 0}, {"cost": "1"}, {"tokens": True}):
            assert await refused(served, limits)


async def refused(served: RunningServer, limits: dict[str, Any]) -> bool:
    answer = await served.post(chat("Hello", limits=limits), path=QUOTE)
    fields = [error["field"] for error in orjson.loads(answer.body)["details"]["errors"]]
    return answer.status == 422 and fields == [f"limits.{name}" for name in limits]
