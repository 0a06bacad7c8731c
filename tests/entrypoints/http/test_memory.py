"""Documents over HTTP: storing, sharing, searching and deleting them."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from portico.bootstrap.service import open_service
from portico.domain.failures import ConfigurationFailure
from portico.ports.runtime import Clock
from portico.settings import Settings
from tests.support.callers import Caller, callers
from tests.support.http_server import HttpAnswer

GRANTS = {
    "ada": ("red", "ada", None),
    "eve": ("red", "eve", ["can_send_messages"]),
    "reader": ("red", "reader", []),
}
ULM = "Ulm has the tallest church. It stands on the Danube."


async def put(caller: Caller, name: str, text: str = ULM, **fields: Any) -> HttpAnswer:
    return await caller.send("PUT", f"/v1/memory/{name}", orjson.dumps({"text": text, **fields}))


async def search(caller: Caller, query: str, **fields: Any) -> HttpAnswer:
    return await caller.send("POST", "/v1/memory/search", orjson.dumps({"query": query, **fields}))


async def test_a_document_is_stored_shown_found_and_deleted(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        ada = by_name["ada"]
        stored = await put(ada, "ulm", metadata={"url": "https://ulm.example"})
        assert stored.status == 201
        assert stored.json == {
            "document_id": "ulm",
            "user": "ada",
            "shared": False,
            "chunks": 1,
            "bytes": len('{"text":"","metadata":{"url":"https://ulm.example"}}') + len(ULM),
            "embedded": True,
            "created_at": stored.json["created_at"],
            "updated_at": stored.json["updated_at"],
            "text": ULM,
            "metadata": {"url": "https://ulm.example"},
        }
        shown = await ada.get("/v1/memory/ulm")
        assert (shown.status, shown.json) == (200, stored.json)
        listed = (await ada.get("/v1/memory")).json
        assert listed["data"] == [{key: value for key, value in shown.json.items() if key not in {"text", "metadata"}}]
        found = await search(ada, "Which is the tallest church?")
        assert found.json == {
            "data": [{"document_id": "ulm", "text": ULM, "score": 1.0, "source": "ulm#1"}],
            "lexical": "answered",
            "vector": "answered",
        }
        assert (await search(ada, "church", min_score=1.0)).json["data"]
        assert (await ada.send("DELETE", "/v1/memory/ulm")).status == 204
        assert (await search(ada, "church")).json == {"data": [], "lexical": "answered", "vector": "skipped"}
        for method in ("GET", "DELETE"):
            assert (await ada.send(method, "/v1/memory/ulm")).status == 404


async def test_the_same_content_again_changes_nothing(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        ada = by_name["ada"]
        first = await put(ada, "ulm")
        again = await put(ada, "ulm")
        assert (again.status, again.json) == (200, first.json)
        changed = await put(ada, "ulm", metadata={"a": "b"})
        assert (changed.status, changed.json["created_at"]) == (200, first.json["created_at"])
        assert changed.json["updated_at"] > first.json["updated_at"]


async def test_a_document_is_shared_by_those_who_may(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        refused = await put(by_name["eve"], "ulm", shared=True)
        assert (refused.status, refused.json["details"]) == (403, {"permission": "can_share_memory"})
        for method, path in (("PUT", "/v1/memory/ulm"), ("POST", "/v1/memory/search")):
            body = orjson.dumps({"text": ULM} if method == "PUT" else {"query": "church"})
            assert (await by_name["reader"].send(method, path, body)).status == 403
        assert (await put(by_name["ada"], "ulm", shared=True)).status == 201
        assert (await by_name["reader"].get("/v1/memory/ulm")).json["text"] == ULM
        assert [each["source"] for each in (await search(by_name["eve"], "church")).json["data"]] == ["ulm#1"]
        assert (await by_name["eve"].send("DELETE", "/v1/memory/ulm")).status == 404
        taken = await by_name["ada"].send("PUT", "/v1/memory/ulm", orjson.dumps({"text": ULM, "shared": False}))
        assert taken.status == 200
        assert (await search(by_name["eve"], "church")).json["data"] == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"text": ""}, 422),
        ({"text": " \u2003\n\0!?"}, 422),
        ({"text": "a " * 2**19 + "b"}, 413),
        ({"text": "a", "metadata": {"a": 1}}, 422),
        ({"text": "a", "metadata": {f"k{number}": "v" for number in range(17)}}, 422),
        ({"text": "a", "metadata": {"k": "v" * 513}}, 422),
        ({"text": "a", "title": "b"}, 422),
        ({"metadata": {}}, 422),
    ],
)
async def test_a_document_has_to_be_of_its_form(tmp_path: Path, body: dict[str, Any], status: int) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        answer = await by_name["ada"].send("PUT", "/v1/memory/ulm", orjson.dumps(body))
        assert (answer.status, (await by_name["ada"].get("/v1/memory")).json["data"]) == (status, [])


async def test_hostile_texts_are_stored_as_they_are(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        ada = by_name["ada"]
        text = 'NUL \0 here\u202e, 東京は大きい。 İstanbul \U0001f600 " OR 1=1 -- */ <script>\n' + "x" * 5_000
        metadata = {"__proto__": "\0", "a\nb": "'; DROP TABLE memory_chunks; --"}
        stored = await put(ada, "odd", text, metadata=metadata)
        assert (stored.status, stored.json["text"], stored.json["metadata"]) == (201, text, metadata)
        for query in ("東京", "NUL", "\0here", "x" * 64):
            assert [each["source"] for each in (await search(ada, query, max_chunks=1)).json["data"]] == ["odd#1"]
        lone = await ada.send("PUT", "/v1/memory/odd", b'{"text": "\\ud800 a"}')
        assert lone.status == 400
        assert (await ada.send("POST", "/v1/memory/search", b'{"query": "\\ud800 a"}')).status == 400
        for name in ("a b", "a/b", "%00", "x" * 129, "é"):
            assert (await put(ada, name.replace(" ", "%20").replace("é", "%C3%A9"))).status == 404


async def test_the_documents_of_a_tenant_have_a_limit(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS, limits={"memory_bytes": 200}) as (by_name, _):
        assert (await put(by_name["ada"], "first")).status == 201
        refused = await put(by_name["eve"], "second", ULM * 3)
        assert (refused.status, refused.json["code"]) == (413, "REQUEST_TOO_LARGE")
        assert refused.json["details"] == {"limit_bytes": 200, "needed_bytes": 258}
        assert (await by_name["ada"].send("DELETE", "/v1/memory/first")).status == 204
        assert (await put(by_name["eve"], "second", ULM * 3)).status == 201


async def test_a_search_and_a_document_take_a_request_each(tmp_path: Path) -> None:
    tenants = {"red": {"requests": "3/3600"}}
    async with callers(tmp_path, GRANTS, tenants=tenants) as (by_name, _):
        ada = by_name["ada"]
        assert (await put(ada, "ulm")).status == 201
        assert (await put(ada, "ulm", "!")).status == 422
        assert (await search(ada, "church")).status == 200
        assert (await put(ada, "ulm")).status == 200
        for answer in (await put(ada, "ulm"), await search(ada, "church")):
            assert (answer.status, answer.json["code"]) == (429, "REQUEST_RATE_LIMITED")
        assert (await ada.get("/v1/memory/ulm")).status == 200


EMBEDDED = {
    "engines": {"primary": {"model": "rehearsal://", "price": {"input": 1_000.0, "output": 0.0}}},
    "memory": {"embedder": "primary", "dimensions": 32},
}


async def test_an_engine_embeds_and_charges_the_caller(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS, **EMBEDDED) as (by_name, _):
        ada = by_name["ada"]
        assert (await put(ada, "ulm")).json["embedded"] is True
        assert (await search(ada, "churches")).json["data"][0]["source"] == "ulm#1"
        used = (await ada.get("/v1/usage?by=model")).json["data"]
        assert [(each["model"], each["executions"], each["output_tokens"]) for each in used] == [("rehearsal", 0, 0)]
        tokens = used[0]["input_tokens"]
        assert tokens > 10
        assert used[0]["cost"]["amount"] == pytest.approx(tokens / 1_000)
        assert (await by_name["eve"].get("/v1/usage?by=model")).json["data"] == []


@pytest.mark.parametrize("directive", ["[[fail:500]]", "[[slow:3]]"])
async def test_a_document_is_stored_although_its_engine_is_down_or_slow(tmp_path: Path, directive: str) -> None:
    async with callers(tmp_path, GRANTS, **EMBEDDED) as (by_name, _):
        ada = by_name["ada"]
        await put(ada, "bonn", "Bonn was a capital.")
        assert (await put(ada, "ulm", f"{ULM} {directive}")).json["embedded"] is False
        found = (await search(ada, "tallest church")).json
        assert ({each["source"] for each in found["data"]}, found["vector"]) == ({"ulm#1", "bonn#1"}, "answered")
        found = (await search(ada, f"tallest church {directive}")).json
        assert ([each["score"] for each in found["data"]], found["vector"]) == ([1.0], "failed")


async def test_a_slow_document_is_embedded_later(tmp_path: Path, clock: Clock) -> None:
    async with callers(tmp_path, GRANTS, **EMBEDDED) as (by_name, _):
        ada = by_name["ada"]
        assert (await put(ada, "ulm", f"{ULM} [[slow:3]]")).json["embedded"] is False
        # The service reads the time of day, which does not follow virtual time: the document is made due at once.
        with closing(sqlite3.connect(tmp_path / "portico.db")) as connection, connection:
            connection.execute("UPDATE memory_documents SET embed_at = 1")
        await clock.sleep(20)
        assert (await ada.get("/v1/memory/ulm")).json["embedded"] is True
        assert (await search(ada, "churches")).json["vector"] == "answered"


async def test_a_limit_of_tokens_holds_for_embeddings(tmp_path: Path) -> None:
    tenants = {"red": {"tokens": "100/3600"}}
    async with callers(tmp_path, GRANTS, tenants=tenants, **EMBEDDED) as (by_name, _):
        ada = by_name["ada"]
        assert (await put(ada, "ulm")).json["embedded"] is True
        assert (await put(ada, "long", "word " * 500)).json["embedded"] is False
        found = (await search(ada, "church " + "x " * 200)).json
        assert ([each["source"] for each in found["data"]], found["vector"]) == (["ulm#1"], "failed")


@pytest.mark.parametrize(
    ("embedder", "message"),
    [
        ("other", "memory.embedder: must name an engine"),
        ("scripted", "memory.embedder: the engine scripted has no emb"),
    ],
)
async def test_an_embedder_has_to_be_an_engine_with_embeddings(tmp_path: Path, embedder: str, message: str) -> None:
    (tmp_path / "replies.json").write_text("[]")
    engines = {"scripted": {"model": f"scripted:///{tmp_path}/replies.json"}}
    with pytest.raises((ConfigurationFailure, ValidationError)) as caught:
        async with open_service(Settings.model_validate({"engines": engines, "memory": {"embedder": embedder}})):
            pass
    assert message in str(caught.value)
