"""The title of an execution."""

from dataclasses import replace

import pytest

from portico.capabilities.context.title import MAX_TITLE, title_of
from portico.domain.contract.messages import ImagePart, Message, TextPart
from portico.domain.journal.fork import Fork
from portico.domain.journal.header import ExecutionHeader
from tests.support.stored_executions import journaled

CARD = "4111 1111 1111 1111"
IMAGE = ImagePart(type="image", media_type="image/png", data="QUJD")


def said(*messages: Message) -> ExecutionHeader:
    header = journaled("e-1")
    return replace(header, request=header.request.model_copy(update={"messages": list(messages)}))


def user(content: str | list[TextPart | ImagePart]) -> Message:
    return Message(role="user", content=content)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("  Roll\n two\tdice.\u00a0 ", "Roll two dice."),
        ("a" * 81, "a" * 80),
        (" " * 70_000 + "late", "late"),
        (f"{'a' * 70} {CARD}", f"{'a' * 70} [redacted"),
        (CARD.replace(" ", "\n\n"), "[redacted:card]"),
        (f"password: {'x' * 70_000}", "password: [redacted:password]"),
        ("\ud800 \x00", "\ud800 \x00"),
        (" \n", None),
        ("", None),
    ],
)
def test_the_title_is_collapsed_then_redacted_and_then_cut(text: str, title: str | None) -> None:
    assert title_of(said(user(text))) == title
    assert title is None or len(title) <= MAX_TITLE


def test_the_title_is_of_the_last_user_message_that_of_a_fork_included() -> None:
    asked = said(user("first"), user("last"), Message(role="assistant", content="answer"))
    assert title_of(asked) == "last"
    fork = Fork("r-1", 0, messages=(user("more"),), earlier=(Fork("r-0", 0, messages=(user("earlier"),)),))
    assert title_of(replace(asked, fork=fork)) == "more"
    assert title_of(replace(asked, fork=replace(fork, messages=()))) == "earlier"


def test_without_text_there_is_no_title() -> None:
    assert title_of(said(user([IMAGE]))) is None
    assert title_of(said(Message(role="system", content="Be brief."))) is None
    assert title_of(said(user([IMAGE, TextPart(type="text", text="What is it?")]))) == "What is it?"
