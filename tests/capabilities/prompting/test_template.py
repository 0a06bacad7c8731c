"""Templates of system prompts: which places there are, and what fills them."""

import pytest

from portico.capabilities.prompting.template import MAX_VALUE, check_template, fill_template
from portico.domain.ids import RequestId, SessionId, TenantId, UserId
from portico.domain.tools import Caller

CALLER = Caller(TenantId("acme"), UserId("ann"), SessionId("s-1"), RequestId("r-1"), metadata={"a": "{user}", "b": "}"})
AT = 1_793_494_800.0
"""The 1st of November 2026, 01:00 UTC."""


@pytest.mark.parametrize(
    ("text", "zone", "filled"),
    [
        ("{date} {time} {weekday} {timezone}", "UTC", "2026-11-01 01:00 Sunday UTC"),
        ("{date} {time} {weekday}", "America/New_York", "2026-10-31 21:00 Saturday"),
        ("{user}@{tenant} {session_id} {channel} {agent}.", "UTC", "ann@acme s-1 api ."),
        ("{metadata.a}{metadata.b}{metadata.c}", "UTC", "{user}}"),
        ("{{user}} {{{user}}}", "UTC", "{user} {ann}"),
    ],
)
def test_places_are_filled_once(text: str, zone: str, filled: str) -> None:
    check_template(text)
    assert fill_template(text, zone, AT, CALLER) == filled


def test_a_value_is_one_line_of_at_most_256_characters() -> None:
    caller = Caller(*CALLER_NAMES, metadata={"a": "x\r\n\x1b\u2028y" + "z" * 300})
    assert fill_template("{metadata.a}", "UTC", AT, caller) == "xy" + "z" * (MAX_VALUE - 2)


CALLER_NAMES = (CALLER.tenant, CALLER.user, None, CALLER.request_id)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{name}", "the place {name}"),
        ("{}", "the place {}"),
        ("{metadata.}", "the place {metadata.}"),
        ("{user", "single brace"),
        ("user}", "single brace"),
        ("{user!r}", "the place {user!r}"),
        ("{caller.user}", "the place {caller.user}"),
    ],
)
def test_what_is_no_place_is_refused(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=named.replace("{", r"\{").replace(".", r"\.")):
        check_template(text)
