"""Hostile schemas, grammars, tools, numbers and answers, sent to a whole service: refused by name, or harmless."""

import json
from asyncio import StreamReader, StreamWriter, start_server
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.hostile_schemas import HOSTILE
from tests.support.http_server import HttpAnswer, RunningServer, request_bytes
from tests.support.portico import EVENTS, chat, portico, send_command

QUOTE = "/v1/quote"
REFERENCES = ("$ref", "$dynamicRef")
CLOUD = "169.254.169.254"


def structured(output: Mapping[str, Any], **fields: Any) -> bytes:
    return chat("Go on", mode="structured", output=output, **fields)


def code(answer: HttpAnswer) -> Any:
    """Return the code of a refusal, or of a failure in the response."""
    problem: Any = answer.json.get("error") or answer.json
    return problem["code"]


def invalid_fields(answer: HttpAnswer) -> list[str]:
    errors: Any = answer.json["details"]
    return [error["field"] for error in errors["errors"]]


async def refused(body: bytes, served: RunningServer) -> HttpAnswer:
    """Return the refusal, which is the same for a JSON response, for events and for a quote."""
    answer, live, quoted = [
        await served.post(body, headers, path)
        for headers, path in (({}, "/v1/execute"), (EVENTS, "/v1/execute"), ({}, QUOTE))
    ]
    assert answer.headers["content-type"] == "application/problem+json"
    assert {(answer.status, code(answer)), (live.status, code(live)), (quoted.status, code(quoted))} == {
        (answer.status, code(answer))
    }
    assert (await served.post(chat("Hello"))).status == 200
    return answer


@asynccontextmanager
async def answering(directory: Path, *texts: str) -> AsyncIterator[RunningServer]:
    """Run a service whose model answers with these texts."""
    script = directory / "script.json"
    script.write_bytes(orjson.dumps([{"text": text} for text in texts]))
    async with portico(engines={"scripted": {"model": f"scripted://{script}"}}) as (served, _):
        yield served


def nested_text(depth: int) -> str:
    return '{"allOf":[' * depth + "{}" + "]}" * depth


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"type": "strng"}, "$.type"),
        ({"type": 1}, "$.type"),
        ({"properties": []}, "$.properties"),
        ({"required": "a"}, "$.required"),
        ({"minLength": -1}, "$.minLength"),
        ({"pattern": "("}, "$.pattern"),
        ({"properties": {"a": {"pattern": r"(a)\1"}}}, "$.properties.a.pattern"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "$['$schema']"),
        ({"properties": {"a": {"$id": "https://example.org"}}}, "$.properties.a['$id']"),
    ],
)
async def test_an_invalid_schema_is_refused_with_the_path_of_its_error(schema: dict[str, Any], path: str) -> None:
    async with portico() as (served, _):
        answer = await refused(structured({"schema": schema}), served)
    assert (answer.status, code(answer)) == (422, "CONFIG_SCHEMA_INVALID")
    details: Any = answer.json["details"]
    assert (details["field"], details["path"]) == ("output.schema", path)


@pytest.mark.parametrize("name", ["anyOf twice, 40 times", "allOf twice, 30 times", "unevaluated 20 times"])
async def test_a_schema_that_is_too_costly_for_any_answer_is_refused(name: str) -> None:
    async with portico() as (served, _):
        answer = await served.post(structured({"schema": HOSTILE[name][0]}))
        assert (await served.post(chat("Hello"))).status == 200
    assert (answer.status, code(answer)) == (422, "CONFIG_SCHEMA_INVALID")
    assert answer.headers["content-type"] == "application/problem+json"
    assert "takes too much time or memory" in str(answer.json["message"])


async def test_an_answer_that_is_too_costly_to_check_is_invalid_and_its_replay_is_identical(tmp_path: Path) -> None:
    schema, value = HOSTILE["twice below, 40 times"]
    body = structured({"schema": schema}, limits={"attempts": 1}, request_id="q")
    async with answering(tmp_path, json.dumps(value)) as served:
        answer = await served.post(body)
        replayed = await send_command(served, "replay")
    assert (answer.status, code(answer)) == (502, "CONSTRAINT_SCHEMA_INVALID")
    assert replayed.json["identical"] is True


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"$comment": "x" * 300_000}, "longer than 262144 bytes"),
        ({"properties": {f"p{number}": {} for number in range(2_500)}}, "more than 2,000 nodes"),
        ({"$defs": {f"d{number}": {} for number in range(2_500)}}, "more than 2,000 nodes"),
        ({"allOf": [{"pattern": f"{number}"} for number in range(101)]}, "more than 100 patterns"),
    ],
)
async def test_a_schema_that_is_too_large_is_refused(schema: dict[str, Any], why: str) -> None:
    async with portico() as (served, _):
        answer = await refused(structured({"schema": schema}), served)
    assert (answer.status, code(answer)) == (422, "CONFIG_SCHEMA_INVALID")
    assert why in str(answer.json["message"])


async def test_a_schema_of_5_mb_is_refused_with_its_body() -> None:
    async with portico() as (served, _):
        answer = await refused(structured({"schema": {"$comment": "x" * 5_000_000}}), served)
    assert (answer.status, code(answer)) == (413, "REQUEST_TOO_LARGE")


@pytest.mark.parametrize(("depth", "status"), [(10_000, 400), (100, 400), (29, 200)])
async def test_a_schema_that_is_10_000_deep_is_refused_with_its_body(depth: int, status: int) -> None:
    body = structured({"schema": "S"}).replace(b'"S"', nested_text(depth).encode())
    async with portico() as (served, _):
        answer = await served.post(body)
    assert answer.status == status
    assert status == 200 or code(answer) == "REQUEST_INVALID"


@pytest.mark.parametrize("mode", ["structured", "redundant"])
async def test_a_schema_that_requires_itself_without_end_is_refused_before_the_first_attempt(mode: str) -> None:
    node = {"type": "object", "required": ["next"], "properties": {"next": {"$ref": "#/$defs/node"}}}
    schema = {
        "type": "object",
        "required": ["n"],
        "properties": {"n": {"$ref": "#/$defs/node"}},
        "$defs": {"node": node},
    }
    async with portico() as (served, _):
        answer = await refused(chat("Go on", mode=mode, output={"schema": schema}), served)
    assert (answer.status, code(answer)) == (422, "CONFIG_SCHEMA_INVALID")
    assert answer.json["details"]["path"] == "$['$defs'].node"
    assert "requires itself without end" in str(answer.json["message"])


@pytest.mark.parametrize(
    "grammar",
    ['root ::= "a" root', 'root ::= x\nx ::= "b" y\ny ::= "c" x | "d" y', "root ::= [z-a]", 'root ::= ("a" root)+'],
)
async def test_a_grammar_without_any_finite_text_is_refused_before_the_first_attempt(grammar: str) -> None:
    async with portico() as (served, _):
        answer = await refused(structured({"grammar": grammar}), served)
    assert (answer.status, code(answer)) == (422, "CONFIG_GRAMMAR_INVALID")


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"$dynamicRef": "#me", "$dynamicAnchor": "me"},
    ],
)
async def test_a_schema_that_only_refers_to_itself_is_refused(schema: dict[str, Any]) -> None:
    async with portico() as (served, _):
        answer = await refused(structured({"schema": schema}), served)
    assert (answer.status, code(answer)) == (422, "CONFIG_SCHEMA_INVALID")
    assert "without end" in str(answer.json["message"])


async def test_a_recursive_schema_is_enforced_at_any_depth(tmp_path: Path) -> None:
    tree = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}}, "required": ["kids"]}
    deep: dict[str, Any] = {"kids": []}
    for _ in range(25):
        deep = {"kids": [deep]}
    async with answering(tmp_path, json.dumps(deep), json.dumps({"kids": [{"kids": [{}]}]})) as served:
        kept = await served.post(structured({"schema": tree}, limits={"attempts": 1}))
        broken = await served.post(structured({"schema": tree}, limits={"attempts": 1}))
    assert (kept.status, kept.json["structured_output"]) == (200, deep)
    assert (broken.status, code(broken)) == (502, "CONSTRAINT_SCHEMA_INVALID")
    assert "$.kids[0].kids[0]" in broken.body.decode()


@pytest.mark.parametrize("keyword", REFERENCES)
@pytest.mark.parametrize(
    "target",
    ["http://{host}/schema.json", f"http://{CLOUD}/latest/meta-data", "file:///etc/passwd", "other.json", "//{host}/s"],
)
async def test_an_external_reference_of_a_schema_is_refused_and_never_fetched(keyword: str, target: str) -> None:
    fetched: list[str] = []

    async def note(_reader: StreamReader, writer: StreamWriter) -> None:
        fetched.append("connection")
        writer.close()

    async with await start_server(note, "127.0.0.1", 0) as listener, portico() as (served, _):
        host = "{}:{}".format(*listener.sockets[0].getsockname())
        reference = {keyword: target.format(host=host)}
        answers = [
            await refused(structured({"schema": schema}), served)
            for schema in (reference, {"properties": {"a": reference}})
        ]
    assert {(answer.status, code(answer)) for answer in answers} == {(422, "CONFIG_SCHEMA_INVALID")}
    assert "root:" not in answers[0].body.decode()
    assert fetched == []


@pytest.mark.parametrize("pattern", ["(a+)+$", "^(a|aa)+$", "^(a|a)*(a+)+(a*)*$", "(.*a){20}b"])
@pytest.mark.parametrize("as_rule", [False, True])
async def test_an_exponential_pattern_is_matched_like_any_other(tmp_path: Path, pattern: str, as_rule: bool) -> None:
    answer = json.dumps("a" * 5_000 + "!")
    rule = {"type": "regex", "path": "$", "pattern": pattern}
    output = {"schema": {}, "rules": [rule]} if as_rule else {"schema": {"pattern": pattern}}
    async with answering(tmp_path, answer) as served:
        judged = await served.post(structured(output, limits={"attempts": 1}))
    assert (judged.status, code(judged)) == (
        502,
        "VALIDATION_RULE_FAILED" if as_rule else "CONSTRAINT_SCHEMA_INVALID",
    )


@pytest.mark.parametrize(
    ("grammar", "why"),
    [
        ("root ::= " + "(" * 60_000 + '"a"' + ")" * 60_000, "longer than"),
        ("root ::= " + "(" * 30_000 + '"a"' + ")" * 30_000, "nested"),
        ("root ::= " + "(" * 65 + '"a"' + ")" * 65, "nested"),
        ('root ::= "a"{5,0}', "less than the minimum"),
        ('root ::= "a"{1001}', "1000"),
        ('root ::= "a"{0,99999999999999999999}', "1000"),
        ('root ::= ("a"*)*', "left recursion"),
        ('root ::= root "a" | "a"', "left recursion"),
        ('root ::= a\na ::= b?  a "x" | "y"\nb ::= "z"', "left recursion"),
        ("root ::= r0\n" + "".join(f'r{number} ::= "a"\n' for number in range(1_001)), "more than 1000 rules"),
        ("root ::= unknown", "no rule of this name"),
        ('a ::= "a"', "root"),
        ('root ::= "a', "line 1"),
        ("root ::= root", "left recursion"),
        ("root ::= []", "only the empty text follows this rule"),
        ('root ::= x [^]\nx ::= "" | "b"{0} | "b" y\ny ::= "c" y', "only the empty text follows this rule"),
    ],
)
async def test_a_hostile_grammar_is_refused_with_line_and_column(grammar: str, why: str) -> None:
    async with portico() as (served, _):
        answer = await refused(structured({"grammar": grammar}), served)
    assert (answer.status, code(answer)) == (422, "CONFIG_GRAMMAR_INVALID")
    details: Any = answer.json["details"]
    assert details["field"] == "output.grammar"
    assert (details["line"] >= 1, details["column"] >= 1) == (True, True)
    assert why in str(answer.json["message"])


async def test_a_million_rules_are_refused_with_their_body() -> None:
    grammar = "root ::= r0\n" + "".join(f'r{number} ::= "a"\n' for number in range(1_000_000))
    async with portico() as (served, _):
        answer = await refused(structured({"grammar": grammar}), served)
    assert (answer.status, code(answer)) == (413, "REQUEST_TOO_LARGE")


@pytest.mark.parametrize("name", ["unknown", "../../etc/passwd", "", "x" * 70_000, "root ::"])
async def test_a_grammar_with_an_unknown_name_is_not_found(name: str) -> None:
    async with portico() as (served, _):
        answer = await refused(structured({"grammar": name}), served)
    assert (answer.status, code(answer)) == (422, "CONFIG_GRAMMAR_NOT_FOUND")
    assert answer.json["details"] == {"field": "output.grammar"}
    assert len(answer.body) < 2_000


@pytest.mark.parametrize(
    "tools",
    [
        ["calculate"] * 100_000,
        [f"tool_{number}" for number in range(100_000)],
        [{"name": "calculate", "description": "x" * 1_000_000}],
        [{"name": f"tool_{number}", "description": "d"} for number in range(1_000)],
        ["x" * 1_000_000],
        ["calculate"] * 129,
    ],
)
async def test_too_many_or_too_large_tools_are_refused(tools: list[Any]) -> None:
    async with portico() as (served, _):
        answer = await refused(chat("Go on", tools=tools), served)
    assert (answer.status, code(answer)) == (422, "REQUEST_INVALID")
    assert len(answer.body) < 20_000


@pytest.mark.parametrize(
    "name",
    [
        "re\u0430d_file",
        "read\u202efile",
        "calc\u200bulate",
        "\uff43alculate",
        "cal culate",
        "a" * 65,
        "",
        "calculate\n",
    ],
)
async def test_a_tool_name_with_look_alikes_is_refused(name: str) -> None:
    async with portico() as (served, _):
        listed = await refused(chat("Go on", tools=[name]), served)
        chosen = await refused(chat("Go on", hints={"tool_choice": {"name": name}}), served)
    assert (listed.status, code(listed), invalid_fields(listed)) == (422, "REQUEST_INVALID", ["tools.0"])
    assert (chosen.status, code(chosen)) == (422, "REQUEST_INVALID")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"mode": "zork"}, "mode"),
        ({"mode": ""}, "mode"),
        ({"mode": None}, "mode"),
        ({"hints": {"max_tokens": -1}}, "hints.max_tokens"),
        ({"hints": {"max_tokens": 0}}, "hints.max_tokens"),
        ({"hints": {"max_tokens": 10**12}}, "hints.max_tokens"),
        ({"hints": {"max_tokens": 1.5}}, "hints.max_tokens"),
        ({"hints": {"max_tokens": "10"}}, "hints.max_tokens"),
        ({"hints": {"timeout": 0}}, "hints.timeout"),
        ({"hints": {"timeout": -1}}, "hints.timeout"),
        ({"hints": {"timeout": 10**9}}, "hints.timeout"),
        ({"hints": {"temperature": 10**6}}, "hints.temperature"),
        ({"mode": "redundant", "redundancy": {"n": 10**4}}, "redundancy.n"),
        ({"mode": "redundant", "redundancy": {"n": 0}}, "redundancy.n"),
        ({"mode": "redundant", "redundancy": {"quorum": 10**4}}, "redundancy.quorum"),
        ({"mode": "redundant", "redundancy": {"min_confidence": 1.5}}, "redundancy.min_confidence"),
        ({"limits": {"attempts": 10**6}}, "limits.attempts"),
        ({"limits": {"attempts": 0}}, "limits.attempts"),
        ({"limits": {"tool_rounds": -1}}, "limits.tool_rounds"),
        ({"limits": {"tokens": -1}}, "limits.tokens"),
        ({"limits": {"cost": -0.5}}, "limits.cost"),
        ({"mode": "plan", "plan": {"policy": {"max_steps": 10**6}}}, "plan.policy.max_steps"),
        ({"mode": "plan", "plan": {"policy": {"timeout_per_step": 10**9}}}, "plan.policy.timeout_per_step"),
        ({"mode": "plan", "plan": {"steps": [{"name": "a", "type": "infer"}] * 51}}, "plan.steps"),
    ],
)
async def test_a_value_beyond_a_cap_is_refused_by_field_and_never_clamped(fields: dict[str, Any], field: str) -> None:
    schema: dict[str, Any] = {"output": {"schema": {}}} if fields.get("mode") == "redundant" else {}
    async with portico() as (served, _):
        answer = await refused(chat("Go on", **schema, **fields), served)
    assert (answer.status, code(answer), invalid_fields(answer)) == (422, "REQUEST_INVALID", [field])


@pytest.mark.parametrize("model", [f"ollama://{CLOUD}/llama", f"http://{CLOUD}/", "file:///etc/passwd", "rehearsal://"])
@pytest.mark.parametrize("as_replica", [False, True])
async def test_a_model_is_a_configured_name_and_never_an_address(model: str, as_replica: bool) -> None:
    replicas = {"mode": "redundant", "output": {"schema": {}}, "redundancy": {"n": 1, "models": [model]}}
    async with portico() as (served, _):
        answer = await refused(chat("Go on", **(replicas if as_replica else {"model": model})), served)
    assert (answer.status, code(answer)) == (422, "REQUEST_INVALID")
    assert model not in answer.body.decode()


@pytest.mark.parametrize(("count", "status"), [(100_000, 422), (1_001, 422)])
async def test_very_many_messages_are_refused(count: int, status: int) -> None:
    body = orjson.dumps({"messages": [{"role": "user", "content": "x"}] * count})
    async with portico(limits={"body_bytes": 16_000_000}) as (served, _):
        answer = await refused(body, served)
    assert (answer.status, code(answer)) == (status, "REQUEST_INVALID")


async def test_a_history_of_100_mb_is_refused_while_it_is_read() -> None:
    headers = {"Content-Type": "application/json", "Content-Length": "100000000"}
    async with portico() as (served, _), served.connect() as client:
        await client.send(request_bytes("POST", "/v1/execute", headers) + b'{"messages": [')
        answer = await client.answer()
    assert (answer.status, code(answer)) == (413, "REQUEST_TOO_LARGE")


async def test_a_history_beyond_the_context_window_is_refused_before_a_provider_is_called() -> None:
    async with portico() as (served, _):
        answer = await served.post(chat("x " * 1_500_000))
        page = (await served.get("/metrics")).body.decode()
    assert (answer.status, code(answer)) == (413, "INFERENCE_CONTEXT_EXCEEDED")
    assert "portico_attempts_total{" not in page
