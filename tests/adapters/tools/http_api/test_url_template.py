"""URL templates and queries."""

from typing import Any

import pytest

from portico.adapters.tools.http_api.url_template import UrlTemplate, query_pairs
from portico.capabilities.tools.definition import ToolArgumentError

PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "day": {"type": "integer"},
        "units": {"type": "string"},
        "tags": {"type": "array"},
    },
    "required": ["city", "day", "tags"],
}


@pytest.mark.parametrize(
    ("city", "segment"),
    [
        ("Berlin", "Berlin"),
        ("a/../b", "a%2F..%2Fb"),
        ("?x=1#y", "%3Fx%3D1%23y"),
        ("%2e%2e", "%252e%252e"),
        ("Zürich & {day}", "Z%C3%BCrich%20%26%20%7Bday%7D"),
        ("...", "..."),
    ],
)
def test_a_value_is_encoded_as_one_segment(city: str, segment: str) -> None:
    template = UrlTemplate("http://api.test/v1/{city}/days/{day}?x={city}", PARAMETERS)
    assert template.fill({"city": city, "day": 3}) == f"http://api.test/v1/{segment}/days/3?x={segment}"


@pytest.mark.parametrize("city", ["", ".", ".."])
def test_a_value_that_would_change_the_path_is_refused(city: str) -> None:
    with pytest.raises(ToolArgumentError) as refused:
        UrlTemplate("http://api.test/v1/{city}", PARAMETERS).fill({"city": city})
    assert refused.value.violations == (("arguments.city", "must not be empty, `.` or `..`"),)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://api.test/{city}", "must be an http or https URL with a host and without a user"),
        ("/v1/{city}", "must be an http or https URL with a host and without a user"),
        ("http://key@api.test/", "must be an http or https URL with a host and without a user"),
        ("http://{city}.test/", "may have places for arguments in its path and its query only"),
        ("http://api.test/#{city}", "may have places for arguments in its path and its query only"),
        ("http://api.test/{town}", "has the place {town}, which is no required property of the parameters"),
        ("http://api.test/{units}", "has the place {units}, which is no required property of the parameters"),
        ("http://api.test/{tags}", "has the place {tags}, which must be a text, a number or a truth value"),
    ],
)
def test_a_url_that_no_call_could_fill_is_refused(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"^(must|may|has)") as refused:
        UrlTemplate(url, PARAMETERS)
    assert str(refused.value) == message


def test_a_query_repeats_arrays_and_writes_other_values_as_json() -> None:
    arguments: dict[str, Any] = {"q": "a b", "tags": ["x", 1], "on": True, "none": None, "deep": {"a": 1}}
    assert query_pairs(arguments | {"deep": None}) == [("q", "a b"), ("tags", "x"), ("tags", "1"), ("on", "true")]
    with pytest.raises(ToolArgumentError):
        query_pairs(arguments)
