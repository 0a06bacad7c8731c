"""How long a provider asks to be left alone."""

import pytest

from app.adapters.engines.retry_after import retry_after

NOW = 1_795_291_740.0
"""Sat, 21 Nov 2026 20:09:00 GMT."""


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "2"}, 2),
        ({"Retry-After": "0"}, 0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "Retry-After": "1"}, 0.25),
        ({"retry-after-ms": "soon", "Retry-After": "1"}, 1),
        ({"Retry-After": "Sat, 21 Nov 2026 20:09:07 GMT"}, 7),
        ({"Retry-After": "Sat, 21 Nov 2026 20:00:00 GMT"}, 0),
        ({"Retry-After": "Sat, 21 Nov 2026 20:09:07 GMT", "Date": "nonsense"}, 7),
        ({"Retry-After": "Sat, 21 Nov 2026 20:09:07 GMT", "Date": "Sat, 21 Nov 2026 20:09:05 GMT"}, 2),
        ({"Retry-After": "Sat, 21 Nov 2026 19:00:07 GMT", "Date": "Sat, 21 Nov 2026 19:00:00 GMT"}, 7),
        ({}, None),
        ({"Retry-After": ""}, None),
        ({"Retry-After": "-3"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "1" * 400}, None),
        ({"Retry-After": "in a while"}, None),
        ({"Retry-After": "Sat, 99 Nov 2026 20:09:00 GMT"}, None),
        ({"Retry-After": "Sat, 21 Nov 99999 20:09:00 GMT"}, None),
    ],
)
def test_b1_2_retry_after_is_read_in_every_form_and_against_the_servers_own_clock(
    headers: dict[str, str], seconds: float | None
):
    assert retry_after(headers, NOW) == seconds
