"""Ids in paths, query strings, headers and cursors."""

from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import quote, urlencode

import pytest

from portico.domain.access.principal import LOCAL
from portico.domain.failures import RequestFailure
from portico.domain.ids import TenantId, UserId
from portico.domain.lifecycle import Mode, State
from portico.entrypoints.http.parameters import ExecutionListQuery, decode_cursor, encode_cursor
from portico.ports.storage import ExecutionFilter
from tests.support.http_server import HttpAnswer
from tests.support.portico import chat, events, portico

WITHOUT_PARAMETERS = (
    "agents", "credentials", "errors", "flows", "grants", "machines", "me", "prompts", "skills", "step-types", "tools",
)  # fmt: skip
BAD_NUMBERS = ("0", "1001", "-1", "1.0", "%2B5", "1_0", "%201", "", "%D9%A3", "9" * 16)


def assert_refused(answer: HttpAnswer, field: str) -> None:
    assert (answer.status, answer.json["code"]) == (422, "REQUEST_INVALID")
    details = answer.json["details"]
    assert isinstance(details, dict)
    assert [error["field"] for error in details["errors"]] == [field]
    assert str(answer.json["message"]).startswith(f"{field}: ")


def test_without_a_query_the_first_hundred_executions_are_selected() -> None:
    query = ExecutionListQuery()
    assert (query.selection, query.limit, query.after) == (ExecutionFilter(), 100, None)


def test_every_parameter_is_read() -> None:
    given = {
        "state": "SUSPENDED,ERROR,SUSPENDED",
        "mode": "chat",
        "q": "r-",
        "origin": "r",
        "session_id": "s:1",
        "limit": "1000",
        "after": "a-1",
    }
    query = ExecutionListQuery.model_validate(given)
    assert query.selection == ExecutionFilter((State.SUSPENDED, State.ERROR), Mode.CHAT, "s:1", prefix="r-", origin="r")
    assert (query.limit, query.after) == (1000, "a-1")


async def test_a_bad_or_unknown_parameter_is_refused_by_name() -> None:
    cases = [
        *((f"limit={bad}", "limit") for bad in BAD_NUMBERS),
        ("state=suspended", "state"),
        ("state=", "state"),
        ("state=ERROR,,COMPLETE", "state"),
        ("state=ERROR,%20COMPLETE", "state"),
        ("q=", "q"),
        (f"q={'a' * 129}", "q"),
        ("q=a%00", "q"),
        ("q=a%25", "q"),
        ("origin=a%0Ab", "origin"),
        ("mode=", "mode"),
        ("session_id=a%0Ab", "session_id"),
        ("after=", "after"),
        (f"after={'1' * 257}", "after"),
        ("zork=1", "zork"),
    ]
    async with portico() as (served, _):
        for query, field in cases:
            assert_refused(await served.get(f"/v1/executions?{query}"), field)
        for path in ("sessions", *WITHOUT_PARAMETERS):
            assert_refused(await served.get(f"/v1/{path}?zork=1"), "zork")


@pytest.mark.parametrize("path", ["/v1/executions", "/v1/sessions"])
async def test_a_query_string_that_cannot_be_read_is_refused(path: str) -> None:
    async with portico() as (served, _):
        statuses = [
            (await served.get(f"{path}?{query}")).status for query in ("limit=1&limit=1", "after=%ff", "a=1&" * 40)
        ]
    assert statuses == [422, 400, 400]


POSITIONS = ("01a202d8-1095-75a4-a9fa-8bbdc0369c10", "1790000000.25/s.1", "")


@pytest.mark.parametrize("position", POSITIONS)
def test_a_cursor_leads_to_its_position(position: str) -> None:
    given = encode_cursor(LOCAL, "/v1/executions", position)
    assert decode_cursor(LOCAL, "/v1/executions", given) == position
    assert ExecutionListQuery.model_validate({"after": given}).after == given


def test_without_a_position_there_is_no_cursor_and_the_other_way_round() -> None:
    assert encode_cursor(LOCAL, "/v1/executions", None) is None
    assert decode_cursor(LOCAL, "/v1/executions", None) is None


def mistyped(given: str) -> Iterator[str]:
    for index, character in enumerate(given):
        yield given[:index] + given[index + 1 :]
        yield given[:index] + ("1" if character != "1" else "7") + given[index + 1 :]
        yield given[:index] + "0" + given[index:]


@pytest.mark.parametrize("position", POSITIONS)
def test_a_mistyped_cursor_or_one_of_another_collection_is_refused_by_name(position: str) -> None:
    given = encode_cursor(LOCAL, "/v1/executions", position)
    assert given is not None
    others = [
        encode_cursor(replace(LOCAL, tenant=TenantId("other")), "/v1/executions", position),
        encode_cursor(replace(LOCAL, user=UserId("other")), "/v1/executions", position),
        encode_cursor(LOCAL, "/v1/sessions", position),
    ]
    for bad in (*mistyped(given), *others, position, "x", ".", "\x00", "\U0010ffff"):
        with pytest.raises(RequestFailure) as caught:
            decode_cursor(LOCAL, "/v1/executions", bad)
        assert caught.value.status == 422
        assert [error["field"] for error in caught.value.details["errors"]] == ["after"]
        assert caught.value.message.startswith("after: ")


async def test_events_are_read_after_the_number_in_the_header_before_the_one_in_the_query() -> None:
    async with portico() as (served, _):
        whole = events(await served.post(chat("Hello", request_id="r-1"), {"Accept": "text/event-stream"}))
        last = max(event.get("sequence_number", 0) for event in whole)

        async def first(query: str, headers: dict[str, str]) -> int:
            read = events(await served.get(f"/v1/executions/r-1/events{query}", headers))
            number: int = read[0]["sequence_number"]
            return number

        assert last > 6
        assert await first("", {}) == 1
        assert await first("?after=2", {}) == 3
        assert await first("?after=2", {"Last-Event-ID": "4"}) == 5
        assert (await served.get(f"/v1/executions/r-1/events?after={last}")).status == 204


async def test_a_bad_last_event_id_is_refused_by_name() -> None:
    async with portico() as (served, _):
        await served.post(chat("Hello", request_id="r-1"))
        for bad in ("", "x", "-1", "1.5", quote("²"), "1" * 16):
            assert_refused(await served.get("/v1/executions/r-1/events", {"Last-Event-ID": bad}), "Last-Event-ID")


async def test_an_unknown_id_is_404_before_any_error_of_the_query() -> None:
    async with portico() as (served, _):
        for query in ("after=x", "zork=1", "after=1&after=1", "after=%ff", urlencode({"after": "-1"})):
            assert (await served.get(f"/v1/executions/unknown/events?{query}")).status == 404
            assert (await served.get(f"/v1/sessions/unknown/messages?{query}")).status == 404


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("?limt=1", 'limt: is not a known field; did you mean "limit"?'),
        ("?limit=0", "limit: must be at least 1"),
        ("?limit=x", "limit: must be a whole number in decimal digits"),
        ("?mode=chatty", "mode: must be 'chat', 'structured', 'plan', 'redundant' or 'flow'"),
    ],
)
async def test_a_wrong_parameter_is_refused_in_plain_words(query: str, message: str) -> None:
    async with portico() as (served, _):
        refused = await served.get(f"/v1/executions{query}")
        assert (refused.status, refused.json["detail"]) == (422, message)


async def test_a_body_that_is_not_json_is_refused_with_its_place() -> None:
    async with portico() as (served, _):
        refused = await served.post(b'{"messages": [\n{"role": user}]}')
        assert (refused.status, refused.json["detail"]) == (
            400,
            "the body is not acceptable JSON: line 2, column 10: expected a value, found 'u'",
        )
