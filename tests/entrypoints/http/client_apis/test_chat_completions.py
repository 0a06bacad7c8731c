"""`POST /v1/chat/completions` and `GET /v1/models` over HTTP, also with OpenAI's own client."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import openai
import orjson
import pytest
from openai.types.chat import ChatCompletionToolParam
from pydantic import BaseModel

from tests.support.callers import Caller, callers
from tests.support.http_server import HttpAnswer, request_bytes
from tests.support.portico import IDEMPOTENCY_KEY, portico
from tests.support.upstream import ScriptedUpstream, reply

ROUTE = "/v1/chat/completions"
GRANTS = {"ada": ("red", "ada", None), "boss": ("red", "boss", ["can_approve"]), "eve": ("red", "eve", ["model:fast"])}
APPROVE = {"tool_id": "order", "payload": {"decision": "approve"}}
DENY = {"tool_id": "order", "payload": {"decision": "deny"}}
BUY = {"name": "buy", "type": "tool", "input": {"name": "order", "arguments": {}}}
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
    },
}
NO_TOOL: Any = {"type": "function", "function": {"name": "none"}}
UNUSABLE: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "thing"}}}
ENGINES = {"fast": {"model": "rehearsal://"}, "deep": {"model": "rehearsal://"}}
AGENTS = {
    "helper": {"description": "Helps.", "system_prompt": "Help.", "tools": ["calculate", "ask_person"]},
    "jury": {"description": "Votes.", "mode": "redundant", "output": {"schema": {"type": "object"}}},
}


def body(text: str = "Hello", **changes: Any) -> bytes:
    return orjson.dumps({"model": "default", "messages": [{"role": "user", "content": text}], **changes})


def an_order(**changes: Any) -> bytes:
    """Return a request whose execution waits for an approval."""
    return body(portico={"mode": "plan", "plan": {"steps": [BUY]}, "tools": ["order"]}, **changes)


@asynccontextmanager
async def client(**tables: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    async with (
        portico(**tables) as (served, _),
        openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="any") as connected,
    ):
        yield connected


@asynccontextmanager
async def shop(folder: Path, answer: Any = None, **ingress: Any) -> AsyncIterator[tuple[dict[str, Caller], list[Any]]]:
    """Run a service with an external tool `order`; yield its callers, and the orders that were sent."""
    async with ScriptedUpstream(reply({"id": 7}) if answer is None else answer) as upstream:
        order = {"description": "Order.", "method": "POST", "url": upstream.url, "allow_private": True}
        tables: dict[str, Any] = {"tools": {"http": {"order": order}}, "ingress": ingress}
        async with callers(folder, GRANTS, **tables) as (by_name, _):
            yield by_name, upstream.requests


async def decided(caller: Caller, decision: dict[str, Any]) -> None:
    """Answer the first suspension that the caller may answer, as soon as there is one."""
    with anyio.fail_after(20):
        while not (found := (await caller.get("/v1/suspensions")).json["data"]):
            await anyio.wait_all_tasks_blocked()
    path = f"/v1/executions/{found[0]['request_id']}/resume"
    assert (await caller.send("POST", path, orjson.dumps(decision))).status == 204


async def test_openais_client_gets_an_answer_a_stream_a_call_and_a_value() -> None:
    class Town(BaseModel):
        size: str

    async with client() as connected:
        create = connected.chat.completions.create
        raw = await connected.chat.completions.with_raw_response.create(
            model="default", messages=[{"role": "user", "content": "Hello"}], seed=1, service_tier="auto"
        )
        whole = raw.parse()
        assert whole.choices[0].finish_reason == "stop"
        assert raw.headers["portico-ignored"] == "service_tier"
        text, usage = "", None
        async for chunk in await create(
            model="default",
            messages=[{"role": "user", "content": "Hello"}],
            stream=True,
            stream_options={"include_usage": True},
        ):
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
            usage = chunk.usage or usage
        assert (text, usage) == (whole.choices[0].message.content, whole.usage)
        asked: Any = [{"role": "user", "content": "town: Ulm"}]
        called = await create(model="default", messages=asked, tools=[WEATHER], tool_choice="required")
        message = called.choices[0].message
        assert message.tool_calls is not None
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "rain"}
        again: Any = [*asked, message.model_dump(exclude_none=True), result]
        followed = await create(model="default", messages=again, tools=[WEATHER])
        assert followed.choices[0].finish_reason == "stop"
        parsed = await connected.chat.completions.parse(
            model="default", messages=[{"role": "user", "content": "How large is Ulm?"}], response_format=Town
        )
        assert isinstance(parsed.choices[0].message.parsed, Town)


async def test_agents_aliases_and_votes_stand_behind_a_model() -> None:
    tables = {"agents": AGENTS, "ingress": {"models": {"gpt-4o*": "default", "gpt-4o-mini": "helper"}}}
    async with client(**tables) as connected:
        assert [each.id async for each in connected.models.list()] == sorted(
            ["default", "gpt-4o-mini", "helper", "jury", "rehearsal"]
        )
        assert (await connected.models.retrieve("helper")).owned_by == "portico"
        with pytest.raises(openai.NotFoundError):
            await connected.models.retrieve("gpt-4o-x")
        create = connected.chat.completions.with_raw_response.create
        asked: Any = [{"role": "user", "content": "Hello"}]
        raw = await create(model="gpt-4o-mini", messages=asked)
        assert raw.headers["portico-ignored"] == "tools.ask_person"
        assert raw.parse().model == "gpt-4o-mini"
        voted = await create(model="jury", messages=asked, extra_body={"portico": {}})
        shown = orjson.loads(voted.content)["portico"]
        assert (shown["mode"], shown["confidence_source"]) == ("redundant", "voting")
        assert shown["vote"]["tally"]


async def test_the_client_raises_what_the_refusal_means() -> None:
    async with client() as connected:
        create = connected.chat.completions.create
        asked: Any = [{"role": "user", "content": "Hello"}]
        with pytest.raises(openai.NotFoundError) as unknown:
            await create(model="gpt-9", messages=asked)
        assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
        with pytest.raises(openai.BadRequestError) as several:
            await create(model="default", messages=asked, n=2)
        assert (several.value.code, several.value.param) == ("unsupported_parameter", "n")
        with pytest.raises(openai.BadRequestError) as invalid:
            await create(model="default", messages=asked, tools=[WEATHER], tool_choice=NO_TOOL)
        assert (invalid.value.code, invalid.value.param) == ("TOOL_NOT_FOUND", "tool_choice.function")
        with pytest.raises(openai.BadRequestError) as unregistered:
            await create(model="default", messages=asked, extra_body={"portico": {"tools": ["none"]}})
        assert (unregistered.value.code, unregistered.value.param) == ("TOOL_NOT_FOUND", "portico.tools")
        with pytest.raises(openai.BadRequestError) as format_error:
            await create(model="default", messages=asked, response_format=UNUSABLE)
        assert format_error.value.param == "response_format.json_schema.schema"


async def test_a_refusal_has_the_error_of_the_api_beside_the_problem(capfd: pytest.CaptureFixture[str]) -> None:
    async with portico() as (served, _):
        for sent, status, code, own in (
            (b"{", 400, "REQUEST_INVALID", "REQUEST_INVALID"),
            (b"[]", 400, "REQUEST_INVALID", "REQUEST_INVALID"),
            (body(portico={"mode": "structured"}), 400, "CONFIG_SCHEMA_REQUIRED", "CONFIG_SCHEMA_REQUIRED"),
            (body("x" * 5_000_000), 413, "REQUEST_TOO_LARGE", "REQUEST_TOO_LARGE"),
            (body("[[fail:500]]", model="default"), 502, "INFERENCE_ENGINE_ERROR", "INFERENCE_ENGINE_ERROR"),
        ):
            answer = await served.post(sent, path=ROUTE)
            assert (answer.status, answer.headers["content-type"]) == (status, "application/json")
            assert (answer.json["error"]["code"], answer.json["code"]) == (code, own)
            assert answer.json["status"] == status
            assert answer.headers["x-should-retry"] == ("true" if status == 502 else "false")
        wrong = await served.ask(request_bytes("POST", ROUTE, {"Content-Type": "text/plain"}, b"x"))
        assert (wrong.status, wrong.json["error"]["type"]) == (415, "invalid_request_error")
    lines = [orjson.loads(line) for line in capfd.readouterr().err.splitlines() if '"request.refused"' in line]
    assert [line["status"] for line in lines] == [400, 400, 400, 413, 415]


async def test_a_model_is_shown_by_its_names_in_the_list_and_an_agent_by_its_prefix() -> None:
    aliases = {"gpt-4o*": "helper", "mini": "default", "sealed": "agent:helper"}
    agents = {"helper": {"description": "Helps.", "system_prompt": "Help."}}
    async with portico(agents=agents, ingress={"models": aliases}) as (served, _):
        for name in ("helper", "agent:helper", "mini", "sealed", "default"):
            assert (await served.get(f"/v1/models/{name}")).json["id"] == name
        for name in ("agent:default", "agent:mini", "flow:helper", "gpt-4o-x", "agent:"):
            assert (await served.get(f"/v1/models/{name}")).status == 404


async def test_models_have_the_shape_and_the_credentials_of_both_apis(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS, engines=ENGINES) as (by_name, _):
        eve = by_name["eve"]
        assert [each["id"] for each in (await eve.get("/v1/models")).json["data"]] == ["fast"]
        assert (await eve.get("/v1/models/deep")).status == 404
        key = eve.headers["Authorization"].removeprefix("Bearer ")
        version = {"anthropic-version": "2023-06-01"}
        listed = await eve.served.get("/v1/models", {"x-api-key": key, **version})
        assert (listed.json["data"][0]["type"], listed.json["has_more"]) == ("model", False)
        assert (await eve.get("/v1/models", **{"x-api-key": key})).status == 200
        both = await eve.get("/v1/models", **{"x-api-key": "ptk_other", **version})
        assert (both.status, both.json["error"]["type"]) == (401, "authentication_error")
        forbidden = await eve.send("POST", ROUTE, body(model="deep"))
        assert (forbidden.status, forbidden.json["error"]["type"]) == (403, "permission_error")
        assert (await eve.served.get("/v1/models", {})).json["error"]["code"] == "invalid_api_key"


async def test_a_key_repeats_the_answer_and_a_header_names_the_session() -> None:
    async with portico() as (served, _):
        first = await served.post(body(), IDEMPOTENCY_KEY, ROUTE)
        second = await served.post(body(), IDEMPOTENCY_KEY, ROUTE)
        streamed = await served.post(body(stream=True), IDEMPOTENCY_KEY, ROUTE)
        assert (second.body, second.headers["idempotency-replayed"]) == (first.body, "true")
        assert streamed.body.endswith(b"data: [DONE]\n\n")
        assert first.json["id"].encode() in streamed.body
        assert (await served.post(body("Other"), IDEMPOTENCY_KEY, ROUTE)).json["code"] == "REQUEST_IDEMPOTENCY_MISMATCH"
        talk = {"portico-session": "talk"}
        assert (await served.post(body("I am Ada."), talk, ROUTE)).status == 200
        assert len((await served.get("/v1/sessions/talk/messages")).json["data"]) == 2
        twice = await served.post(body(portico={"session_id": "talk"}), talk, ROUTE)
        assert (twice.status, twice.json["error"]["param"]) == (400, "portico-session")


async def test_a_quote_is_no_stream() -> None:
    async with portico() as (served, _):
        refused = await served.post(body(portico={"quote": True}, stream=True), path=ROUTE)
    assert (refused.status, refused.json["error"]["param"]) == (400, "portico.quote")


async def test_a_quote_runs_nothing() -> None:
    async with portico() as (served, _):
        answer = await served.post(body(portico={"quote": True}), path=ROUTE)
        assert answer.json["choices"][0]["message"]["content"] == ""
        assert answer.json["portico"]["quote"]["inferences"] > 0
        assert (await served.get("/v1/executions")).json["data"] == []


async def test_limits_are_shown_as_openais_clients_read_them() -> None:
    async with portico(tenants={"default": {"requests": "2/60"}}) as (served, _):
        answers = [await served.post(body(), path=ROUTE) for _ in range(3)]
        assert [each.headers["x-ratelimit-remaining-requests"] for each in answers] == ["1", "0", "0"]
        assert answers[0].headers["x-ratelimit-limit-requests"] == "2"
        assert answers[0].headers["x-ratelimit-reset-requests"].endswith("s")
        assert (answers[2].status, answers[2].json["error"]["type"]) == (429, "too_many_requests")
        assert answers[2].json["error"]["code"] == "rate_limit_exceeded"


@pytest.mark.parametrize("is_stream", [False, True])
async def test_another_person_approves_while_the_client_waits(tmp_path: Path, is_stream: bool) -> None:
    answers: list[HttpAnswer] = []
    async with shop(tmp_path) as (by_name, orders), anyio.create_task_group() as group:

        async def asks() -> None:
            answers.append(await by_name["ada"].send("POST", ROUTE, an_order(stream=is_stream)))

        group.start_soon(asks)
        await decided(by_name["boss"], APPROVE)
    [answer] = answers
    assert (answer.status, len(orders)) == (200, 1)
    assert b'{\\"id\\":7}' in answer.body or b'{\\"id\\": 7}' in answer.body
    assert answer.body.endswith(b"data: [DONE]\n\n") is is_stream


@pytest.mark.parametrize("is_stream", [False, True])
async def test_an_approval_that_is_not_given_is_no_reason_to_ask_again(tmp_path: Path, is_stream: bool) -> None:
    async with shop(tmp_path, approval_wait=0.2) as (by_name, orders):
        ada = by_name["ada"]
        answer = await ada.send("POST", ROUTE, an_order(stream=is_stream))
        error = orjson.loads(answer.body.split(b"data: ")[-1]) if is_stream else answer.json
        assert error["error"]["code"] == "REQUEST_RESUME_REQUIRED"
        assert b"[DONE]" not in answer.body
        if not is_stream:
            assert (answer.status, answer.headers["x-should-retry"]) == (400, "false")
            assert answer.headers["location"].startswith("/v1/executions/")
            assert answer.json["details"]["suspensions"][0]["kind"] == "approval"
        [waiting] = (await ada.get("/v1/suspensions")).json["data"]
        assert (await ada.get(f"/v1/executions/{waiting['request_id']}")).json["state"] == "SUSPENDED"
        assert orders == []


async def test_no_more_requests_wait_than_are_allowed(tmp_path: Path) -> None:
    async with shop(tmp_path, waiting=0) as (by_name, _):
        answer = await by_name["ada"].send("POST", ROUTE, an_order())
        assert (answer.status, answer.json["code"]) == (400, "REQUEST_RESUME_REQUIRED")


async def test_a_client_that_leaves_cancels_what_waits_for_a_person(tmp_path: Path) -> None:
    async with shop(tmp_path) as (by_name, orders):
        ada = by_name["ada"]
        headers = {**ada.headers, "Content-Type": "application/json"}
        for is_stream in (False, True):
            async with ada.served.connect() as connection:
                await connection.send(request_bytes("POST", ROUTE, headers, an_order(stream=is_stream)))
                with anyio.fail_after(20):
                    while not (await ada.get("/v1/suspensions")).json["data"]:
                        await anyio.wait_all_tasks_blocked()
            with anyio.fail_after(20):
                while (await ada.get("/v1/executions?state=SUSPENDED,EXECUTE,INIT")).json["data"]:
                    await anyio.wait_all_tasks_blocked()
        assert {each["state"] for each in (await ada.get("/v1/executions")).json["data"]} == {"CANCELLED"}
        assert orders == []


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_failure_after_an_unsafe_call_is_no_reason_to_ask_again(tmp_path: Path, is_stream: bool) -> None:
    fails = {"name": "tell", "type": "infer", "input": "[[fail:500]]"}
    extension = {"mode": "plan", "plan": {"steps": [BUY, fails]}, "tools": ["order"]}
    answers: list[HttpAnswer] = []
    async with shop(tmp_path) as (by_name, orders), anyio.create_task_group() as group:

        async def asks() -> None:
            answers.append(await by_name["ada"].send("POST", ROUTE, body(portico=extension, stream=is_stream)))

        group.start_soon(asks)
        await decided(by_name["boss"], APPROVE)
    [answer] = answers
    assert len(orders) == 1
    if is_stream:
        assert b'"error":{' in answer.body
        assert b"[DONE]" not in answer.body
    else:
        assert (answer.status, answer.headers["x-should-retry"]) == (400, "false")
