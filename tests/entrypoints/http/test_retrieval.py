"""Retrieval over HTTP with the stored memory: an agent answers from documents, and nothing of them is left behind."""

from pathlib import Path
from typing import Any

import orjson

from portico.domain.access.principal import Principal
from portico.domain.ids import DocumentId, TenantId, UserId
from portico.orchestration.facade import DocumentContent
from tests.support.callers import Caller, callers

ADA = Principal(TenantId("red"), UserId("ada"))
GRANTS = {"ada": ("red", "ada", None), "eve": ("red", "eve", None)}
GUIDE = {"guide": {"description": "Knows stations.", "system_prompt": "You answer from what was found.", "tools": []}}
QUESTION = "Which colour has the lamp of station Quinsberg?"
FACT = "The lamp of station Quinsberg is green since the storm."


def text_of(number: int) -> str:
    return FACT if number == 417 else f"Station number {number} has a grey door, two benches and a clock."


async def ask(caller: Caller, text: str = QUESTION, **fields: Any) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": text}], "context": {"retrieve": True}, **fields}
    answer = await caller.execute(orjson.dumps(body))
    assert answer.status == 200, answer.json
    found: dict[str, Any] = answer.json
    return found


async def test_an_agent_answers_from_a_thousand_documents_with_its_sources(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS, agents=GUIDE) as (by_name, service):
        ada, eve, memory = by_name["ada"], by_name["eve"], service.facade.memory
        for number in range(1000):
            await memory.put(ADA, DocumentId(f"station-{number}"), DocumentContent(text=text_of(number)))
        answer = await ask(ada, agent="guide", session_id="tour", request_id="first")
        [best, *others] = answer["metadata"]["sources"]
        assert (best["source"], best["document_id"]) == ("station-417#1", "station-417")
        assert len(others) == 4
        assert answer["confidence_source"] == "retrieval"
        steps = (await ada.get("/v1/executions/first/steps")).json["data"]
        [retrieval] = [step for step in steps if step["key"] == "prepare/r"]
        assert (retrieval["kind"], retrieval["from_step"]) == ("retrieval", None)
        assert retrieval["outcome"]["chunks"][0]["content"] == FACT
        [prepare] = [step for step in steps if step["key"] == "prepare"]
        roles = [message["role"] for message in prepare["outcome"]["messages"]]
        assert roles == ["system", "user", "user"]
        assert FACT in prepare["outcome"]["messages"][1]["content"]
        stored = (await ada.get("/v1/sessions/tour/messages")).json["data"]
        assert [message["role"] for message in stored] == ["user", "assistant"]
        assert "storm" not in orjson.dumps(stored[0]).decode()
        assert "sources" not in (await ask(eve, agent="guide"))["metadata"]

        await memory.delete(ADA, DocumentId("station-417"))
        again = await ask(ada, session_id="tour")
        assert "station-417" not in {source["document_id"] for source in again["metadata"]["sources"]}
        replayed = await ada.send("POST", "/v1/executions/first/replay")
        assert (replayed.status, replayed.json["identical"]) == (200, True)


async def test_retrieval_is_refused_where_it_could_have_no_effect(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        steps = [{"name": "find", "type": "retrieve", "input": "lamp"}]
        body = {"mode": "plan", "messages": [{"role": "user", "content": "a"}], "plan": {"steps": steps}}
        planned = await by_name["ada"].execute(orjson.dumps(body))
        assert (planned.status, planned.json["structured_output"]) == (200, [])
        refused = await by_name["ada"].execute(orjson.dumps(body | {"context": {"retrieve": True}}))
        assert refused.status == 422
        assert [error["field"] for error in refused.json["details"]["errors"]] == ["context.retrieve"]
