"""What may stand behind the question mark."""

from urllib.parse import urlencode

import pytest
from starlette.types import Scope

from app.domain.failures import RequestFailure
from app.domain.lifecycle import Mode, State
from app.entrypoints.http.query import Listing, first_event, read_query
from app.keeping import Selection


def scope(query: str, **headers: str) -> Scope:
    named = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http", "query_string": query.encode("latin-1"), "headers": named}


def refusal(query: str) -> RequestFailure:
    with pytest.raises(RequestFailure) as caught:
        read_query(scope(query), Listing)
    return caught.value


def test_without_a_query_a_hundred_of_all_are_listed() -> None:
    query = read_query(scope(""), Listing)
    assert (query.selection, query.limit, query.after) == (Selection(), 100, None)


def test_every_parameter_is_read() -> None:
    given = {"state": "SUSPENDED", "mode": "chat", "session_id": "s:1", "limit": "1000", "after": "a-1"}
    query = read_query(scope(urlencode(given)), Listing)
    assert query.selection == Selection(State.SUSPENDED, Mode.CHAT, "s:1")
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
        ("after=%00", "after"),
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


def test_reading_begins_where_the_header_says_before_where_the_query_does() -> None:
    assert first_event(scope("")) == 0
    assert first_event(scope("after=7")) == 7
    assert first_event(scope("after=7", last_event_id="12")) == 12


@pytest.mark.parametrize("given", ["", "x", "-1", "1.5", "²", "1" * 16])
def test_a_bad_last_event_id_is_refused_by_name(given: str) -> None:
    with pytest.raises(RequestFailure) as caught:
        first_event(scope("", last_event_id=given))
    assert (caught.value.status, caught.value.details["errors"][0]["field"]) == (422, "Last-Event-ID")
