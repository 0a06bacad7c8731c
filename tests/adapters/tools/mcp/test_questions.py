"""Questions of an MCP server and the answers of persons."""

from typing import Any

import mcp_types as types
import orjson
import pytest

from portico.adapters.tools.mcp.questions import Questions, answers_of
from portico.ports.tool import ToolContinuation, ToolError

TEXT: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}}


def form(message: str) -> types.ElicitRequest:
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=TEXT))


def visit() -> types.ElicitRequest:
    return types.ElicitRequest(params=types.ElicitRequestURLParams(message="Log in", url="https://a.test"))


def required(**requests: Any) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=requests, request_state="opaque")


def test_several_forms_are_shown_and_answered_by_their_keys() -> None:
    questions = Questions(required(a=form("Who?\x1b[2J"), b=form("Where?"), c=visit()))
    asked = {"a": {"question": "Who?", "schema": TEXT}, "b": {"question": "Where?", "schema": TEXT}}
    assert questions.shown() == {"questions": asked}
    answers = answers_of(ToolContinuation(questions.state, {"a": {"name": "Ada"}, "b": None}))
    assert answers.state == "opaque"
    assert {key: each.action for key, each in (answers.responses or {}).items()} == {
        "a": "accept",
        "b": "decline",
        "c": "decline",
    }


@pytest.mark.parametrize(
    ("answer", "content"), [({"name": "Ada"}, {"name": "Ada"}), ("Ada", {"name": "Ada"}), (3, {"name": 3})]
)
def test_a_value_alone_is_that_of_the_only_property(answer: Any, content: dict[str, Any]) -> None:
    answers = answers_of(ToolContinuation(Questions(required(a=form("Who?"))).state, answer))
    assert answers.responses == {"a": types.ElicitResult(action="accept", content=content)}


def test_an_answer_that_no_form_takes_is_an_error() -> None:
    state = Questions(required(a=form("Who?"))).state
    with pytest.raises(ToolError, match=r"^the answer does not fit the server's form$"):
        answers_of(ToolContinuation(state, {"name": {"first": "Ada"}}))
    state = Questions(required(a=form("Who?"), b=form("Where?"))).state
    with pytest.raises(ToolError, match=r"^the answer must be an object with an answer for each question$"):
        answers_of(ToolContinuation(state, "Ada"))


def test_sampling_and_roots_are_refused_and_a_visit_alone_is_declined() -> None:
    with pytest.raises(ToolError, match=r"^the server asks for roots/list, which is refused$"):
        Questions(required(a=types.ListRootsRequest()))
    questions = Questions(required(c=visit()))
    assert (questions.forms, questions.refusals()) == ({}, {"c": types.ElicitResult(action="decline")})
    assert orjson.loads(questions.state)["state"] == "opaque"
