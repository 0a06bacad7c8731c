"""Records of an execution over HTTP: pages of its events in both directions, and its steps with digests."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from portico.domain.access.principal import Principal
from portico.domain.ids import DocumentId, TenantId, UserId
from portico.orchestration.facade import DocumentContent
from tests.support.callers import callers
from tests.support.http_server import RunningServer, request_bytes
from tests.support.portico import ASK_PERSON, EVENTS, JSON_BODY, chat, events, portico, sequence_numbers
from tests.support.server_state import wait_for_running

JSON = {"Accept": "application/json"}
PATH = "/v1/executions/q/events"
TOOLS = "Please calculate 17*3"
ADA = Principal(TenantId("red"), UserId("ada"))
GRANTS = {"ada": ("red", "ada", None), "narrow": ("red", "ada", ["can_send_messages", "model:*"])}


async def paged(served: RunningServer, query: str) -> list[list[dict[str, Any]]]:
    """Return all pages of events, from the first to the last."""
    pages = []
    after = ""
    while True:
        page = (await served.get(f"{PATH}?{query}{after}", JSON)).json
        pages.append(page["data"])
        if not page["has_more"]:
            assert page["next"] is None
            return pages
        after = f"&after={page['next']}"


@pytest.mark.parametrize("text", [TOOLS, f"{TOOLS} and then {ASK_PERSON}"])
async def test_pages_have_the_events_of_the_stream_in_both_directions(text: str) -> None:
    async with portico() as (served, _):
        await served.post(chat(text, request_id="q"), {"Idempotency-Key": "k"} if text == TOOLS else {})
        streamed = events(await served.get("/v1/executions/q/events", EVENTS)) if text == TOOLS else None
        forwards, backwards = await paged(served, "limit=7"), await paged(served, "limit=7&order=desc")
        log = [event for page in forwards for event in page]
        assert sequence_numbers(log) == list(range(1, len(log) + 1))
        assert streamed in (None, log)
        assert [event for page in backwards for event in page] == log[::-1]
        assert [len(page) for page in forwards[:-1]] == [len(page) for page in backwards[:-1]] == [7] * (len(log) // 7)
        (whole,) = await paged(served, "")
        assert whole == log
        assert await paged(served, f"after={len(log)}") == await paged(served, "order=desc&after=1") == [[]]


async def test_types_select_events_of_the_stream_and_of_pages() -> None:
    async with portico() as (served, _):
        await served.post(chat(TOOLS, request_id="q"))
        log = events(await served.get(PATH))
        wanted = [event for event in log if event["type"] in {"tool.start", "tool.end"}]
        ended = events(await served.get(f"{PATH}?types=tool.end"))
        streamed = await served.get(f"{PATH}?types=tool.start,tool.end", EVENTS)
        assert events(streamed) == wanted
        assert b"retry:" not in streamed.body
        assert await paged(served, "types=tool.start,tool.end&limit=1") == [[event] for event in wanted]
        assert await paged(served, "types=tool.start,tool.end&limit=1&order=desc") == [[each] for each in wanted[::-1]]
        assert await paged(served, "types=plan.created") == [[]]
        nothing_left = await served.get(f"{PATH}?types=tool.end&after={ended[-1]['sequence_number']}")
    assert (nothing_left.status, nothing_left.body) == (204, b"")


async def test_a_page_of_a_running_execution_has_what_happened_so_far_in_memory() -> None:
    async with portico() as (served, service), served.connect() as client:
        body = chat("[[slow:2]] Hello", request_id="q")
        await client.send(request_bytes("POST", "/v1/execute", JSON_BODY, body))
        await wait_for_running(service)
        running = (await served.get(f"{PATH}?limit=2", JSON)).json
        newest = (await served.get(f"{PATH}?limit=2&order=desc", JSON)).json
        await client.answer()
        log = events(await served.get(PATH))
    assert (running["data"], running["next"]) == (log[:2], 2)
    assert newest["data"][0]["type"] != "execution.completed"
    assert newest["data"] == log[newest["next"] - 1 : newest["next"] + 1][::-1]


async def test_only_a_client_that_accepts_json_alone_gets_pages() -> None:
    async with portico() as (served, _):
        await served.post(chat("Hello", request_id="q"))
        kinds = {}
        for accept in ("application/json", "application/json;q=0.9, text/plain", "application/json, text/event-stream"):
            kinds[accept] = (await served.get(PATH, {"Accept": accept})).headers["content-type"]
        for accept in ("*/*", "application/*", "application/json;q=0", ""):
            kinds[accept] = (await served.get(PATH, {"Accept": accept})).headers["content-type"]
    assert [accept for accept, kind in kinds.items() if kind == "application/json"] == [*kinds][:2]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("types=", "types"),
        ("types=tool", "types"),
        ("types=tool.end,", "types"),
        (f"types={','.join(['tool.end'] * 17)}", "types"),
        ("order=up", "order"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("after=-1", "after"),
    ],
)
async def test_a_bad_selection_of_events_is_refused_by_name(query: str, field: str) -> None:
    async with portico() as (served, _):
        await served.post(chat("Hello", request_id="q"))
        for accept in (JSON, EVENTS):
            answer = await served.get(f"{PATH}?{query}", accept)
            assert (answer.status, answer.json["code"]) == (422, "REQUEST_INVALID")
            assert [error["field"] for error in answer.json["details"]["errors"]] == [field]


async def test_steps_come_in_pages_by_key_and_in_brief() -> None:
    async with portico() as (served, _):
        await served.post(chat(TOOLS, request_id="q"))
        path = "/v1/executions/q/steps"
        whole = (await served.get(path)).json
        steps = whole["data"]
        assert (whole["has_more"], whole["next"]) == (False, None)
        pages = [(await served.get(f"{path}?limit=2&after={after}")).json for after in range(0, len(steps), 2)]
        assert [step for page in pages for step in page["data"]] == steps
        assert [page["next"] for page in pages] == [*range(2, len(steps), 2), None]
        (brief,) = (await served.get(f"{path}?key=0&view=summary")).json["data"]
        (full,) = [step for step in steps if step["key"] == "0"]
        assert brief == {name: each for name, each in full.items() if name not in {"request", "outcome"}}
        assert (await served.get(f"{path}?key=zork")).json == {"data": [], "has_more": False, "next": None}
        assert (await served.get(f"{path}?after=99")).json["data"] == []
        for query in ("limit=0", "view=long", "key=", "after=x"):
            refused = await served.get(f"{path}?{query}")
            assert (refused.status, refused.json["code"]) == (422, "REQUEST_INVALID")


def prints(answer: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {step["key"]: (step["fingerprint"], step["digest"]) for step in answer["data"]}


async def test_equal_steps_of_two_executions_have_equal_digests_despite_fences_and_others_differ(
    tmp_path: Path,
) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, service):
        ada = by_name["ada"]
        await service.facade.memory.put(ADA, DocumentId("ulm"), DocumentContent(text="Ulm has a church."))
        for name, text in (("a", "Ulm?"), ("b", "Ulm?"), ("c", "The church of Ulm?")):
            await ada.execute(chat(text, request_id=name, context={"retrieve": True}, hints={"seed": 1}))
        first, same, other = [prints((await ada.get(f"/v1/executions/{name}/steps")).json) for name in "abc"]
        texts = [(await ada.get(f"/v1/executions/{name}/steps?key=prepare")).body for name in "ab"]
        await ada.send("POST", "/v1/executions/a/fork", orjson.dumps({"from_step": 0}))
        (fork,) = (await ada.get("/v1/executions?origin=a")).json["data"]
        forked = prints((await ada.get(f"/v1/executions/{fork['request_id']}/steps")).json)
        hidden = (await by_name["narrow"].get("/v1/executions/a/steps?view=summary")).json
    assert texts[0] != texts[1]
    assert first == same == forked
    assert [key for key in first if first[key][0] != other[key][0]] == ["prepare/r", "0"]
    assert {(step["fingerprint"], step["digest"]) for step in hidden["data"]} == {(None, None)}
