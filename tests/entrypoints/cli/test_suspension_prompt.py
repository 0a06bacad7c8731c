"""Questions of a suspended execution at a terminal."""

from collections.abc import Iterator

import pytest
from pydantic import JsonValue

from portico.bootstrap.service import open_service
from portico.domain.contract.response import SuspensionKind
from portico.domain.lifecycle import State
from portico.entrypoints.cli.display.suspension_prompt import Ask, ask_person, describe_suspension
from portico.entrypoints.cli.execution import run_once
from portico.entrypoints.cli.output import OutputOptions
from portico.entrypoints.cli.request import ExecuteOptions
from portico.settings import Settings
from tests.support.examples import SUSPENSION
from tests.support.portico import ASK_PERSON


def answering(*answers: str) -> tuple[Ask, list[str]]:
    """Return a person who gives these answers, and the questions that they were asked."""
    questions: list[str] = []
    left: Iterator[str] = iter(answers)

    def ask(question: str) -> str:
        questions.append(question)
        return next(left)

    return ask, questions


async def test_a_question_is_asked_and_its_answer_continues_the_execution(capsys: pytest.CaptureFixture[str]) -> None:
    ask, questions = answering("yes, you may")
    request = ExecuteOptions(ASK_PERSON, None, None, None, None, None).request()
    output = OutputOptions(stream=False, as_json=False, ask=ask)
    response = await run_once(open_service, Settings(), request, output)
    assert response.state is State.COMPLETE
    assert questions == ["ask_person: May I?"]
    assert "yes, you may" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "answers", "payload"),
    [
        (SuspensionKind.QUESTION, ["42"], "42"),
        (SuspensionKind.FLOW, ["go on"], "go on"),
        (SuspensionKind.FLOW, ['{"by": "ada"}'], {"by": "ada"}),
        (SuspensionKind.APPROVAL, ["maybe", "", "approve"], {"decision": "approve"}),
        (SuspensionKind.APPROVAL, ["deny"], {"decision": "deny"}),
        (SuspensionKind.UNKNOWN_OUTCOME, ["run"], {"decision": "run"}),
        (SuspensionKind.UNKNOWN_OUTCOME, ["happened", "sent"], {"decision": "happened", "result": "sent"}),
    ],
)
def test_each_kind_has_its_own_answer(kind: SuspensionKind, answers: list[str], payload: JsonValue) -> None:
    ask, questions = answering(*answers)
    assert ask_person(SUSPENSION.model_copy(update={"kind": kind}), ask) == payload
    assert len(questions) == len(answers)


def test_a_question_cannot_control_the_terminal() -> None:
    evil = SUSPENSION.model_copy(update={"value": {"question": "Sure?\x1b]0;title\x07"}})
    assert describe_suspension(evil) == "ask_person: Sure?\\x1b]0;title\\x07"
    assert describe_suspension(SUSPENSION.model_copy(update={"value": {"a": 1}})) == 'ask_person: {"a":1}'
