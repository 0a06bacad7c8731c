"""Sensitive text is found by key and by form, and what is left reads as before."""

import random
from itertools import pairwise
from time import thread_time

import pytest

from portico.capabilities.guards.sensitive_text import KINDS, beginning, find_sensitive, kind_of_key, redact

CANARY = "c4nary-Zq9"
CARD = "4111 1111 1111 1111"


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("Authorization", "authorization"),
        ("proxy-authorization", "authorization"),
        ("accessToken", "token"),
        ("ACCESS_TOKEN", "token"),
        ("X-Auth-Token2", "token"),
        ("\uff54\uff4f\uff4b\uff45\uff4e", "token"),
        ("tokens", None),
        ("maxTokens", None),
        ("tokenizer", None),
        ("PaSsWoRd", "password"),
        ("userPassWord", "password"),
        ("db.passwd", "password"),
        ("clientSecret", "secret"),
        ("secretary", None),
        ("APIKey", "api_key"),
        ("api key", "api_key"),
        ("X-Api-Key", "api_key"),
        ("apikey", "api_key"),
        ("keyboard", None),
        ("rapid_keys", None),
        ("author", None),
        ("", None),
        ("x" * 5_000_000 + "_password", "password"),
    ],
)
def test_a_key_is_sensitive_by_its_words(key: str, kind: str | None) -> None:
    assert kind_of_key(key) == kind


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        (f"password: {CANARY}.", "password: [redacted:password]."),
        (f"DB_PASSWORD={CANARY} next", "DB_PASSWORD=[redacted:password] next"),
        (f'{{"password":"{CANARY} two","n":1}}', '{"password":"[redacted:password]","n":1}'),
        (f'{{"password":"a\\"{CANARY}","n":1}}', '{"password":"[redacted:password]","n":1}'),
        (
            f'"{{\\"password\\": \\"{CANARY}\\", \\"n\\": 1}}"',
            '"{\\"password\\": \\"[redacted:password]\\", \\"n\\": 1}"',
        ),
        (f"{{'apiKey': '{CANARY}'}}", "{'apiKey': '[redacted:api_key]'}"),
        (f"?access_token={CANARY}&page=2", "?access_token=[redacted:token]&page=2"),
        (f"password := don't,{CANARY};x", "password := [redacted:password]"),
        (f"password: =:{CANARY}", "password: [redacted:password]"),
        (f"secret => {CANARY}", "secret => [redacted:secret]"),
        (f"password\uff1a{CANARY}", "password\uff1a[redacted:password]"),
        (f"api key: {CANARY}", "api key: [redacted:api_key]"),
        (f"Authorization: Custom {CANARY}, b={CANARY}", "Authorization: [redacted:authorization]"),
        (
            f"curl -H 'Authorization: Basic {CANARY}' https://x",
            "curl -H 'Authorization: [redacted:authorization]' https://x",
        ),
        ("send Bearer abcdef", "send Bearer [redacted:authorization]"),
        (f"send bearer {CANARY}", "send bearer [redacted:authorization]"),
        (f"postgres://app:{CANARY}@db/x", "postgres://app:[redacted:password]@db/x"),
        ("mail Ann.O+x@mail.example.org, please", "mail [redacted:email], please"),
        ("an jürgen@müller.example", "an [redacted:email]"),
        (f"card {CARD} 123", "card [redacted:card] 123"),
        ("4111-1111-1111-1111", "[redacted:card]"),
        ("x378282246310005y", "x[redacted:card]y"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "[redacted:token]"),
        ("key AKIAIOSFODNN7EXAMPLE.", "key [redacted:api_key]."),
        (f"token={CARD}", "token=[redacted:card]"),
        (f"\ud800 password={CANARY}", "\ud800 password=[redacted:password]"),
    ],
)
def test_a_sensitive_part_is_replaced_by_its_kind(text: str, redacted: str) -> None:
    assert redact(text).text == redacted
    assert redact(redacted).text == redacted


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The tokenizer made 12 tokens: a, b.",
        "bearer bonds are in the vault",
        "let t = Token::new(1)",
        "my secretary, the authors: all of them",
        "order 4111 1111 1111 1112",
        "1234567890123 is a number, 41111111111111111111111111 a longer one",
        "pi is 3.14159265358979, the ratio 0.4111111111111111",
        "reach me @home or at a@b",
        "password:\nsee below",
    ],
)
def test_a_harmless_text_stays_as_it_is(text: str) -> None:
    assert redact(text) == redact("") or redact(text).text == text
    assert find_sensitive(text) == []


def test_what_only_looks_redacted_is_redacted() -> None:
    assert CANARY not in redact(f"password: [redacted:{CANARY}]").text
    assert CANARY not in redact(f"password: [redacted:password]{CANARY}").text


def test_parts_are_counted_by_kind_and_only_the_kinds_asked_for_are_found() -> None:
    text = f"a@b.example, c@d.example, password={CANARY}, {CARD}"
    assert redact(text).counts == {"email": 2, "password": 1, "card": 1}
    assert [finding.kind for finding in find_sensitive(text, ["card"])] == ["card"]
    assert find_sensitive(text, ["secret"]) == []


def test_parts_are_in_order_and_apart_in_random_texts() -> None:
    chance = random.Random(19)
    pieces = ["password=", '"', "\\", "a@b.example", CARD, " ", "Bearer ", "token", ":", "é", "\n", "4", CANARY]
    for _ in range(2_000):
        text = "".join(chance.choices(pieces, k=12))
        findings = find_sensitive(text)
        assert all(0 <= each.start < each.end <= len(text) and each.kind in KINDS for each in findings)
        assert all(one.end <= other.start for one, other in pairwise(findings))


@pytest.mark.parametrize(
    "piece", ["a", "token", "a@", "1 ", "4111111111111111 ", "password=", 'token="', '\\"', "eyJ", "Bearer "]
)
def test_a_text_that_is_ten_times_as_long_takes_about_ten_times_as_long(piece: str) -> None:
    small, large = (piece * (size // len(piece)) for size in (100_000, 1_000_000))
    redact(small)
    before = thread_time()
    redact(small)
    between = thread_time()
    redact(large)
    assert thread_time() - between <= 40 * max(between - before, 0.005)


@pytest.mark.parametrize("part", ["ada@canary.example", CARD, f"password={CANARY}"])
def test_a_cut_leaves_no_half_of_a_sensitive_part(part: str) -> None:
    before = "a " * 400
    text = f"{before}{part} and more"
    [finding] = find_sensitive(text)
    for length in range(len(text) + 1):
        is_within = finding.start < length < finding.end
        assert beginning(text, length) == text[: finding.start if is_within else length]
