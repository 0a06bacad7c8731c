"""Values of credentials are masked in each form in which a tool may repeat them."""

import base64
import json
import re
from urllib.parse import quote, quote_plus

import pytest

from portico.capabilities.tools.mask import mask, mask_ends, mask_json

VALUE = 'tok/en+of "ada" & ü\nline'
VALUES = [("tracker", VALUE)]
MASKED = "[credential tracker]"


@pytest.mark.parametrize(
    "text",
    [
        VALUE,
        json.dumps(VALUE),
        json.dumps(VALUE, ensure_ascii=False),
        json.dumps(json.dumps(VALUE)),
        quote(VALUE),
        quote(VALUE, safe=""),
        quote_plus(VALUE),
        quote(VALUE, safe="").lower(),
        base64.b64encode(VALUE.encode()).decode(),
        base64.urlsafe_b64encode(VALUE.encode()).decode(),
    ],
)
def test_a_value_is_masked_in_each_form(text: str) -> None:
    assert mask(f"before {text} after", VALUES).replace("\\", "").replace('"', "") == f"before {MASKED} after"


@pytest.mark.parametrize("prefix", ["", "B", "Be", "Bearer "])
def test_the_base64_of_a_longer_text_holds_nothing_of_a_value(prefix: str) -> None:
    token = "adas-own-token"
    shown = mask(base64.b64encode(f"{prefix}{token}-and-more".encode()).decode(), [("tracker", token)])
    assert MASKED in shown
    rest = shown.split(MASKED)
    assert max(map(len, rest)) <= 16


def test_a_value_is_masked_in_json_keys_included() -> None:
    assert mask_json({VALUE: ["x", VALUE, 1, None]}, VALUES) == {MASKED: ["x", MASKED, 1, None]}


def test_no_part_of_a_value_stands_beside_a_cut() -> None:
    cut, token = re.compile(r"\n\[[0-9]+ bytes left out\]\n"), "adas-own-token"
    text = "begin adas-own\n[70 bytes left out]\nown-token end"
    assert mask_ends(text, cut, [("t", token)]) == "begin [credential t]\n[70 bytes left out]\n[credential t] end"
    assert mask_ends("begin\n[70 bytes left out]\nend", cut, [("t", token)]) == "begin\n[70 bytes left out]\nend"
    assert mask_ends("no cut of adas-own", cut, [("t", token)]) == "no cut of adas-own"
