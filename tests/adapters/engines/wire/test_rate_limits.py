"""Rate limits in headers of replies: both forms, and everything that is none."""

import pytest

from portico.adapters.engines.wire.rate_limits import seconds_until_reset

NOW = 1_700_000_000.0
DATE = "Tue, 14 Nov 2023 22:13:20 GMT"


@pytest.mark.parametrize(
    ("reset", "seconds"),
    [
        ("12ms", 0.012),
        ("1m3.5s", 63.5),
        ("6m0s", 360),
        ("1h2m", 3_720),
        ("1d", 86_400),
        ("59", 59),
        ("0.5", 0.5),
        ("", None),
        ("-5", None),
        ("0s", None),
        ("soon", None),
        ("5x", None),
        ("nan", None),
        ("inf", None),
        ("1m junk", None),
        ("9" * 400, None),
    ],
)
@pytest.mark.parametrize("kind", ["requests", "tokens"])
def test_the_reset_of_openai_is_a_duration(kind: str, reset: str, seconds: float | None) -> None:
    headers = {f"x-ratelimit-remaining-{kind}": "0", f"x-ratelimit-reset-{kind}": reset}
    assert seconds_until_reset(headers, NOW) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize("remaining", ["1", "-1", "", "none", "nan", "0x0", "1e400"])
def test_a_limit_that_is_not_used_up_closes_nothing(remaining: str) -> None:
    headers = {"x-ratelimit-remaining-requests": remaining, "x-ratelimit-reset-requests": "30s"}
    assert seconds_until_reset(headers, NOW) is None


@pytest.mark.parametrize("kind", ["requests", "tokens", "input-tokens", "output-tokens"])
@pytest.mark.parametrize(
    ("reset", "seconds"),
    [
        ("2023-11-14T22:13:50Z", 30),
        ("2023-11-14T23:13:20.5+01:00", 0.5),
        ("2023-11-14T22:13:10Z", None),
        ("2023-11-14T22:13:50", None),
        ("tomorrow", None),
        ("", None),
    ],
)
def test_the_reset_of_anthropic_is_compared_with_the_date_of_the_reply(
    kind: str, reset: str, seconds: float | None
) -> None:
    headers = {
        f"anthropic-ratelimit-{kind}-remaining": "0",
        f"anthropic-ratelimit-{kind}-reset": reset,
        "date": DATE,
    }
    assert seconds_until_reset(headers, NOW + 1_000) == seconds


def test_the_last_reset_of_those_that_are_used_up_holds() -> None:
    headers = {
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "2s",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "9s",
    }
    assert seconds_until_reset(headers, NOW) == 9
    assert seconds_until_reset({}, NOW) is None
