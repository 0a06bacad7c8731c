"""Transcripts: the conversation that an execution ended with, from what is stored of it."""

from dataclasses import replace

import pytest

from portico.domain.contract.messages import Message, ModelMessage, joined
from portico.domain.failures import Code, RequestFailure
from portico.domain.journal.fork import Fork
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.status import ExecutionStatus
from portico.domain.lifecycle import Mode, State
from portico.orchestration.runtime.transcript import require_ended, transcript_of
from portico.ports.storage import StoredExecution
from tests.support.examples import header, response
from tests.support.stored_format import MODEL_MESSAGE

PROMPT, OTHER_PROMPT = (Message(role="system", content=text) for text in ("Be brief.", "Be verbose."))
ASKED, MORE = (Message(role="user", content=text) for text in ("hello", "more"))
ANSWER = Message(role="assistant", content=response().content or "")


def asking(*messages: Message, **changes: object) -> ExecutionHeader:
    before = header("a")
    request = before.request.model_copy(update={"messages": list(messages)})
    return replace(before, request=request, **changes)


def stored(state: State, owner: str | None = None) -> StoredExecution:
    return StoredExecution(
        "a", "local", "r-1", None, Mode.CHAT, 0.0, ExecutionStatus(0.0, state), owner, 1, 0, "local"
    )  # fmt: skip


def test_a_transcript_keeps_what_only_its_provider_can_read() -> None:
    answered = response().model_copy(update={"messages": [MODEL_MESSAGE]})
    found = transcript_of(asking(ASKED), answered, ())
    assert found.messages == (ASKED, MODEL_MESSAGE)
    assert isinstance(found.messages[-1], ModelMessage)


def test_a_response_of_an_earlier_version_is_continued_after_its_content() -> None:
    assert transcript_of(asking(ASKED), response(), ()).messages == (ASKED, ANSWER)


def test_a_transcript_begins_with_what_its_execution_inherited_and_names_all_ancestors() -> None:
    later = asking(MORE, inherited_messages=(PROMPT, ASKED, ANSWER), ancestors=("first",))
    found = transcript_of(later, response(), ())
    assert found.messages == (PROMPT, ASKED, ANSWER, MORE, ANSWER)
    assert found.ancestors == ("first", "a")


def test_the_messages_of_a_fork_follow_those_of_its_request() -> None:
    fork = Fork("r-0", 2, messages=(MORE,), earlier=(Fork("r-00", 0, messages=(ASKED,)),))
    assert transcript_of(asking(ASKED, fork=fork), response(), ()).messages == (ASKED, ASKED, MORE, ANSWER)


def test_a_turn_of_a_session_has_the_conversation_of_the_session_but_a_fork_in_it_has_its_own() -> None:
    assert transcript_of(asking(MORE), response(), (ASKED, ANSWER, MORE, ANSWER)).messages == (
        ASKED, ANSWER, MORE, ANSWER,
    )  # fmt: skip
    assert transcript_of(asking(ASKED, fork=Fork("r-0", 0)), response(), (MORE, ANSWER)).messages == (ASKED, ANSWER)


def test_a_turn_without_an_answer_follows_what_it_began_with_and_its_partial_text_is_no_message() -> None:
    cut = response().model_copy(update={"state": State.CANCELLED})
    assert transcript_of(asking(MORE), cut, (ASKED, ANSWER)).messages == (ASKED, ANSWER, MORE)


@pytest.mark.parametrize(
    ("earlier", "own", "whole"),
    [
        ((), (ASKED,), (ASKED,)),
        ((PROMPT, ASKED), (MORE,), (PROMPT, ASKED, MORE)),
        ((PROMPT, ASKED), (OTHER_PROMPT, MORE), (OTHER_PROMPT, ASKED, MORE)),
        ((ASKED, PROMPT, ANSWER), (MORE,), (ASKED, PROMPT, ANSWER, MORE)),
    ],
)
def test_system_messages_at_the_beginning_of_what_is_new_replace_the_earlier_ones(
    earlier: tuple[Message, ...], own: tuple[Message, ...], whole: tuple[Message, ...]
) -> None:
    assert joined(earlier, own) == whole


@pytest.mark.parametrize(
    ("state", "owner", "code"),
    [
        (State.EXECUTE, "replica", Code.REQUEST_IN_PROGRESS),
        (State.INIT, None, Code.REQUEST_IN_PROGRESS),
        (State.SUSPENDED, "replica", Code.REQUEST_IN_PROGRESS),
        (State.SUSPENDED, None, Code.REQUEST_RESUME_REQUIRED),
    ],
)
def test_only_what_has_ended_is_continued(state: State, owner: str | None, code: Code) -> None:
    for ended in (State.COMPLETE, State.ERROR, State.CANCELLED):
        require_ended(stored(ended))
    with pytest.raises(RequestFailure) as refused:
        require_ended(stored(state, owner))
    assert refused.value.code is code
