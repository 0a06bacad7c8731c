"""What may stand behind the question mark."""

from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from starlette.types import Scope

from app.domain.failures import RequestFailure
from app.domain.lifecycle import Mode, State
from app.entrypoints.http.query import ExecutionListQuery, decode_cursor, encode_cursor, last_read_event, read_query
from app.ports.storage import ExecutionFilter


def scope(query: str, **headers: str) -> Scope:
    named = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http", "query_string": query.encode("latin-1"), "headers": named}


def refusal(query: str) -> RequestFailure:
    with pytest.raises(RequestFailure) as caught:
        read_query(scope(query), ExecutionListQuery)
    return caught.value


def test_without_a_query_a_hundred_of_all_are_listed() -> None:
    query = read_query(scope(""), ExecutionListQuery)
    assert (query.selection, query.limit, query.after) == (ExecutionFilter(), 100, None)


def test_every_parameter_is_read() -> None:
    given = {"state": "SUSPENDED", "mode": "chat", "session_id": "s:1", "limit": "1000", "after": "a-1"}
    query = read_query(scope(urlencode(given)), ExecutionListQuery)
    assert query.selection == ExecutionFilter(State.SUSPENDED, Mode.CHAT, "s:1")
    assert (query.limit, query.after) == (1000, "a-1")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        *(
            (f"limit={bad}", "limit")
            for bad in ("0", "1001", "-1", "1.0", "%2B5", "1_0", "%201", "", "%D9%A3", "9" * 16)
        ),
        ("state=suspended", "state"),
        ("mode=", "mode"),
        ("session_id=a%0Ab", "session_id"),
        ("after=", "after"),
        (f"after={'1' * 257}", "after"),
        ("zork=1", "zork"),
    ],
)
def test_a_bad_or_unknown_parameter_is_refused_by_name(query: str, field: str) -> None:
    refused = refusal(query)
    assert refused.status == 422
    assert [error["field"] for error in refused.details["errors"]] == [field]
    assert refused.message.startswith(f"{field}: ")


@pytest.mark.parametrize(("query", "status"), [("limit=1&limit=1", 422), ("state=%ff", 400), ("a=1&" * 40, 400)])
def test_what_cannot_be_read_as_parameters_is_refused(query: str, status: int) -> None:
    assert refusal(query).status == status


PLACES = ("01a202d8-1095-75a4-a9fa-8bbdc0369c10", "1790000000.25/s.1", "")


@pytest.mark.parametrize("place", PLACES)
def test_a_cursor_leads_to_its_place(place: str) -> None:
    given = encode_cursor("local", "/v1/executions", place)
    assert decode_cursor("local", "/v1/executions", given) == place
    query = read_query(scope(urlencode({"after": str(given)})), ExecutionListQuery)
    assert query.after == given


def test_without_a_place_there_is_no_cursor_and_the_other_way_round() -> None:
    assert encode_cursor("local", "/v1/executions", None) is None
    assert decode_cursor("local", "/v1/executions", None) is None


def mistyped(given: str) -> Iterator[str]:
    for index, character in enumerate(given):
        yield given[:index] + given[index + 1 :]
        yield given[:index] + ("1" if character != "1" else "7") + given[index + 1 :]
        yield given[:index] + "0" + given[index:]


@pytest.mark.parametrize("place", PLACES)
def test_a_cursor_that_was_mistyped_or_given_for_something_else_is_refused_by_name(place: str) -> None:
    given = encode_cursor("local", "/v1/executions", place)
    assert given is not None
    others = [encode_cursor("other", "/v1/executions", place), encode_cursor("local", "/v1/sessions", place)]
    for bad in (*mistyped(given), *others, place, "x", ".", "\x00", "\U0010ffff"):
        with pytest.raises(RequestFailure) as caught:
            decode_cursor("local", "/v1/executions", bad)
        assert caught.value.status == 422
        assert [error["field"] for error in caught.value.details["errors"]] == ["after"]
        assert caught.value.message.startswith("after: ")


def test_reading_begins_where_the_header_says_before_where_the_query_does() -> None:
    assert last_read_event(scope("")) == 0
    assert last_read_event(scope("after=7")) == 7
    assert last_read_event(scope("after=7", last_event_id="12")) == 12


@pytest.mark.parametrize("given", ["", "x", "-1", "1.5", "²", "1" * 16])
def test_a_bad_last_event_id_is_refused_by_name(given: str) -> None:
    with pytest.raises(RequestFailure) as caught:
        last_read_event(scope("", last_event_id=given))
    assert (caught.value.status, caught.value.details["errors"][0]["field"]) == (422, "Last-Event-ID")
