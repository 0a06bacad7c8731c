"""Questions that an MCP server asks in the middle of a call, and the answers that go back to it.

A form becomes a question to a person. A visit to a URL is declined, sampling and lists of roots are refused. The state
that the server gave is opaque; it goes back with the answers.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import mcp_types as types
import orjson
from pydantic import JsonValue, ValidationError

from portico.adapters.tools.plain_text import plain_text
from portico.ports.tool import ToolContinuation, ToolError

_MAX_MESSAGE: Final = 4_000


class Answers(NamedTuple):
    """Answers to the questions of a call, by the server's keys, and the state that goes back with them."""

    responses: types.InputResponses | None = None
    state: str | None = None


NO_ANSWERS: Final = Answers()


class Questions:
    """The questions of one result. Raises: ToolError for one that is refused."""

    def __init__(self, result: types.InputRequiredResult) -> None:
        self._state = result.request_state
        self.forms: dict[str, types.ElicitRequestFormParams] = {}
        """The questions for a person, by the server's keys."""
        self._declined: list[str] = []
        for key, request in (result.input_requests or {}).items():
            if not isinstance(request, types.ElicitRequest):
                raise ToolError(f"the server asks for {request.method}, which is refused")
            if isinstance(request.params, types.ElicitRequestFormParams):
                self.forms[key] = request.params
            else:
                self._declined.append(key)

    def shown(self) -> dict[str, JsonValue]:
        """Return the questions as a person sees them: one alone, or several by their keys."""
        shown: dict[str, JsonValue] = {
            key: {"question": _plain(form.message), "schema": dict(form.requested_schema)}
            for key, form in self.forms.items()
        }
        if len(shown) > 1:
            return {"questions": shown}
        [only] = shown.values()
        assert isinstance(only, dict)  # noqa: S101 - made above
        return only

    @property
    def state(self) -> str:
        """State of the suspended call: the keys of its questions, and the server's own state."""
        forms = {key: _only_property(form.requested_schema) for key, form in self.forms.items()}
        return orjson.dumps({"forms": forms, "declined": self._declined, "state": self._state}).decode()

    def refusals(self) -> types.InputResponses | None:
        """Return the answers if there is nothing for a person to answer."""
        return dict.fromkeys(self._declined, _DECLINED) or None


def answers_of(continuation: ToolContinuation) -> Answers:
    """Return the answers that a person's payload gives: by key if there were several questions.

    Null declines a question. A value that is no object is that of the form's only property. Raises: ToolError for a
    payload that does not answer the questions.
    """
    kept = orjson.loads(continuation.state)
    forms: dict[str, str | None] = kept["forms"]
    payload = continuation.answer
    by_key = {next(iter(forms)): payload} if len(forms) == 1 else payload
    if not isinstance(by_key, dict):
        raise ToolError("the answer must be an object with an answer for each question")
    responses: types.InputResponses = {key: _response(by_key.get(key), only) for key, only in forms.items()}
    responses |= dict.fromkeys(kept["declined"], _DECLINED)
    return Answers(responses, kept["state"])


def _response(answer: JsonValue, only_property: str | None) -> types.ElicitResult:
    if answer is None:
        return _DECLINED
    content = answer if isinstance(answer, dict) else {only_property or "value": answer}
    try:
        return types.ElicitResult.model_validate({"action": "accept", "content": content})
    except ValidationError as cause:
        raise ToolError("the answer does not fit the server's form") from cause


def _only_property(schema: Mapping[str, object]) -> str | None:
    properties = schema.get("properties")
    return next(iter(properties)) if isinstance(properties, dict) and len(properties) == 1 else None


def _plain(text: str) -> str:
    return plain_text(text.encode(errors="replace"))[:_MAX_MESSAGE]


_DECLINED: Final = types.ElicitResult(action="decline")
