"""The delay that a provider asks for."""

import pytest

from portico.adapters.engines.wire.faults import parse_retry_after

NOW = 1_795_291_740.0
"""Sat, 21 Nov 2026 20:09:00 GMT."""


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "1"}, 1),
        ({"retry-after": "Sat, 21 Nov 2026 20:09:07 GMT"}, 7),
        ({"retry-after": "Sat, 21 Nov 2026 20:00:00 GMT"}, 0),
        ({"retry-after": "Sat, 21 Nov 2026 20:09:07 GMT", "date": "nonsense"}, 7),
        ({"retry-after": "Sat, 21 Nov 2026 20:09:07 GMT", "date": "Sat, 21 Nov 2026 20:09:05 GMT"}, 2),
        ({"retry-after": "Sat, 21 Nov 2026 19:00:07 GMT", "date": "Sat, 21 Nov 2026 19:00:00 GMT"}, 7),
        ({}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1" * 400}, None),
        ({"retry-after": "in a while"}, None),
        ({"retry-after": "Sat, 99 Nov 2026 20:09:00 GMT"}, None),
        ({"retry-after": "Sat, 21 Nov 99999 20:09:00 GMT"}, None),
    ],
)
def test_retry_after_is_read_in_every_form_and_against_the_servers_own_clock(
    headers: dict[str, str], seconds: float | None
):
    assert parse_retry_after(headers, NOW) == seconds
