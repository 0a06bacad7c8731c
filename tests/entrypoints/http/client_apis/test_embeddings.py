"""`POST /v1/embeddings`: vectors of the configured embedder, with its limits, its usage and its rights."""

from array import array
from base64 import b64decode
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.callers import Caller, callers
from tests.support.http_server import HttpAnswer

GRANTS = {
    "ada": ("red", "ada", None),
    "reader": ("red", "reader", []),
    "stranger": ("red", "stranger", ["can_send_messages", "model:other"]),
}
EMBEDDED: dict[str, Any] = {
    "engines": {
        "primary": {"model": "rehearsal://", "price": {"input": 1_000.0, "output": 0.0}},
        "other": {"model": "rehearsal://"},
    },
    "memory": {"embedder": "primary", "dimensions": 32},
    "ingress": {"models": {"text-embedding-3*": "primary"}},
}
NO_EMBEDDER = {name: table for name, table in EMBEDDED.items() if name != "memory"}


async def embed(caller: Caller, texts: Any, model: str = "primary", **fields: Any) -> HttpAnswer:
    return await caller.send("POST", "/v1/embeddings", orjson.dumps({"model": model, "input": texts, **fields}))


async def test_texts_are_embedded_charged_and_counted(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS, **EMBEDDED) as (by_name, _):
        ada = by_name["ada"]
        both = await embed(ada, ["Ulm", "Bonn ü"], "text-embedding-3-small", user="u", dimensions=32)
        one = await embed(ada, "Bonn ü", encoding_format="base64")
        used = (await ada.get("/v1/usage?by=model")).json["data"]
    assert both.status == 200
    assert (both.json["object"], both.json["model"]) == ("list", "text-embedding-3-small")
    assert [(each["object"], each["index"], len(each["embedding"])) for each in both.json["data"]] == [
        ("embedding", 0, 32),
        ("embedding", 1, 32),
    ]
    assert both.headers["portico-ignored"] == "user"
    vector = array("f", b64decode(one.json["data"][0]["embedding"])).tolist()
    assert vector == pytest.approx(both.json["data"][1]["embedding"])
    tokens = [answer.json["usage"]["total_tokens"] for answer in (both, one)]
    assert all(count > 0 for count in tokens)
    assert (used[0]["model"], used[0]["executions"], used[0]["input_tokens"]) == ("rehearsal", 0, sum(tokens))
    assert used[0]["cost"]["amount"] == pytest.approx(sum(tokens) / 1_000)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"input": [[1, 2]]}, "input.0"),
        ({"input": [1, 2]}, "input.0"),
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": ["a", ""]}, "input.1"),
        ({"input": ["a"] * 257}, "input"),
        ({"input": None}, "input"),
        ({"input": "a", "dimensions": 64}, "dimensions"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "a", "model": 1}, "model"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_what_is_not_valid_is_refused_by_its_path(tmp_path: Path, fields: dict[str, Any], field: str) -> None:
    async with callers(tmp_path, GRANTS, **EMBEDDED) as (by_name, _):
        answer = await by_name["ada"].send("POST", "/v1/embeddings", orjson.dumps({"model": "primary", **fields}))
    assert (answer.status, answer.json["error"]["param"]) == (400, field)


async def test_only_the_embedder_embeds_and_only_for_those_who_may(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS, **EMBEDDED) as (by_name, _):
        refused = [await embed(by_name["ada"], "a", "other"), await embed(by_name["stranger"], "a", "none")]
        denied = [await embed(by_name["reader"], "a"), await embed(by_name["stranger"], "a")]
    assert [(each.status, each.json["error"]["code"]) for each in refused] == [(404, "model_not_found")] * 2
    assert [(each.status, each.json["details"]["permission"]) for each in denied] == [
        (403, "can_send_messages"),
        (403, "model:primary"),
    ]


async def test_without_an_embedder_no_model_embeds(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS, **NO_EMBEDDER) as (by_name, _):
        answer = await embed(by_name["ada"], "a")
    assert (answer.status, answer.json["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("limits", "status", "code"),
    [
        ({"requests": "1/3600"}, 429, "rate_limit_exceeded"),
        ({"tokens": "30/3600"}, 422, "ORCHESTRATION_BUDGET_EXCEEDED"),
    ],
)
async def test_limits_hold_for_embeddings(tmp_path: Path, limits: dict[str, str], status: int, code: str) -> None:
    async with callers(tmp_path, GRANTS, tenants={"red": limits}, **EMBEDDED) as (by_name, _):
        assert (await embed(by_name["ada"], "a")).status == 200
        answer = await embed(by_name["ada"], "word " * 50)
        assert (answer.status, answer.json["error"]["code"]) == (status, code)


async def test_an_engine_that_fails_is_a_model_error(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS, **EMBEDDED) as (by_name, _):
        answer = await embed(by_name["ada"], "Ulm [[fail:500]]")
    assert answer.status >= 500
    assert (answer.json["error"]["type"], answer.json["category"]) == ("model_error", "InferenceFailure")
