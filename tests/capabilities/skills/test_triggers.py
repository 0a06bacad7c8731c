"""Triggers: whole words in any case, words of scripts without spaces, and expressions."""

import pytest

from portico.capabilities.skills.triggers import MAX_SEARCHED_CHARACTERS, TriggerIndex, is_usable


@pytest.mark.parametrize(
    ("trigger", "text", "is_found"),
    [
        ("refund", "I want a refund.", True),
        ("refund", "REFUND!", True),
        ("Refund", "refund", True),
        ("refund", "refunds", False),
        ("refund", "prerefund", False),
        ("refund", "re-refund-x", True),
        ("refund", "refund_x", False),
        ("money back", "my money\n  back please", True),
        ("money back", "moneyback", False),
        ("straße", "Die STRASSE", False),
        ("über", "ÜBER alles", True),
        ("über", "überall", False),
        ("c++", "I like C++ a lot", True),
        (".net", "use .NET", True),
        ("a.b", "axb", False),
        ("退款", "我要退款。", True),
        ("환불", "환불해 주세요", True),
        ("no", "know", False),
        ("/ord(er)?#\\d+/", "see order#42", True),
        ("/ord(er)?#\\d+/", "see ORDER#42", False),
        ("/(?i)order/", "ORDER", True),
        ("//", "a // b", True),
        ("/", "a / b", True),
        ("x", "", False),
        ("x", "\ud800 x", True),
    ],
)
def test_a_word_is_found_whole_and_an_expression_as_it_is(trigger: str, text: str, is_found: bool) -> None:
    assert bool(TriggerIndex([[trigger]]).owners(text)) is is_found


def test_the_skills_with_a_trigger_are_found_in_one_pass_however_many_there_are() -> None:
    index = TriggerIndex([[f"word{number}", f"/other{number}$/"] for number in range(300)])
    assert index.owners("word7 and Word299 and word") == {7, 299}
    assert index.owners("other150") == {150}
    assert TriggerIndex([]).owners("word") == set()


def test_only_the_beginning_of_a_long_message_is_searched() -> None:
    index = TriggerIndex([["word"]])
    assert index.owners("x " * (MAX_SEARCHED_CHARACTERS // 2 - 4) + " word")
    assert not index.owners("x " * (MAX_SEARCHED_CHARACTERS // 2) + " word")


@pytest.mark.parametrize("trigger", ["/(/", "/a(?=b)/", r"/(a)\1/", "/((a{1000}){1000}){1000}/", "/[z-a]/"])
def test_an_expression_that_re2_does_not_have_is_not_usable(trigger: str) -> None:
    assert not is_usable(trigger)
    with pytest.raises(ValueError):
        TriggerIndex([["word"], [trigger]])


def test_an_expression_that_would_blow_up_elsewhere_takes_linear_time() -> None:
    index = TriggerIndex([["/(a+)+$/"]])
    assert not index.owners("a" * 60_000 + "b")
