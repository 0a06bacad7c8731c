"""Open suspensions as forms, and what a person has filled in as the answer.

A form shows the tool and all of its arguments, without characters that do not show. What is too long for that is not
asked in a form: a person approves only what was shown.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

import orjson
from pydantic import JsonValue

from portico.domain.contract.response import Suspension, SuspensionKind
from portico.domain.failures import invalid_request
from portico.domain.journal.suspensions import DECISION_KINDS
from portico.domain.strict_json import StrictJsonError, loads
from portico.domain.value import value

MAX_SHOWN: Final = 2_000
"""Characters of a question that a form may have."""
Action = Literal["accept", "decline", "cancel"]
"""Kinds that are answered by a decision."""
_TEXT: Final[Mapping[str, Any]] = {"type": "string"}


@value
class LeftOpen:
    """A question that the person did not answer."""


LEFT_OPEN: Final = LeftOpen()


@value
class Form:
    """A question to a person: its text, and the JSON Schema of its flat fields."""

    message: str
    schema: Mapping[str, Any]


def form_of(suspension: Suspension) -> Form | None:
    """Return the form of a suspension; None if it is too long to be shown whole, or is nothing to ask a person."""
    schema = _schema_of(suspension)
    message = question_of(suspension)
    if schema is None or len(message) > MAX_SHOWN:
        return None
    return Form(message, schema)


def question_of(suspension: Suspension) -> str:
    """Return the tool and what it asks with all arguments, without characters that do not show."""
    asked_about = suspension.value
    if isinstance(asked_about, dict) and (changed := _changed_arguments(suspension)) is not None:
        asked_about = {**asked_about, "arguments": changed}
    shown = asked_about if isinstance(asked_about, str) else orjson.dumps(asked_about).decode()
    if isinstance(suspension.value, dict) and [*suspension.value] == ["question"]:
        shown = str(suspension.value["question"])
    asked = {
        SuspensionKind.APPROVAL: "asks to run",
        SuspensionKind.UNKNOWN_OUTCOME: "may have run, and what became of it is not known",
        SuspensionKind.AUTHORIZATION: "needs a credential, which is set elsewhere",
    }.get(suspension.kind, "asks")
    return escaped(f"{suspension.tool_id} {asked}: {shown}")


def answer_of(suspension: Suspension, action: Action, content: Mapping[str, Any] | None) -> JsonValue | LeftOpen:
    """Return the answer that a person's action means. Raises: RequestFailure (REQUEST_INVALID)."""
    if action == "cancel":
        return LEFT_OPEN
    if action == "decline":
        return _declined(suspension)
    filled = {name: each for name, each in (content or {}).items() if each is not None}
    if suspension.kind in DECISION_KINDS:
        changed = _changed_arguments(suspension)
        return (
            {**filled, "arguments": changed} if changed is not None and filled.get("decision") == "approve" else filled
        )
    if not isinstance(filled.get("answer"), str):
        raise invalid_request((f"{suspension.suspension_id}.answer", "must be a text"))
    if suspension.kind is SuspensionKind.QUESTION:
        return str(filled["answer"])
    try:
        answer: JsonValue = loads(str(filled["answer"]).encode())
    except (StrictJsonError, UnicodeEncodeError):
        return str(filled["answer"])
    return answer


def escaped(text: str) -> str:
    """Return the text with every character that does not show as its code."""
    return "".join(each if each.isprintable() else f"\\u{{{ord(each):04x}}}" for each in text)


def _changed_arguments(suspension: Suspension) -> dict[str, Any] | None:
    """Return the arguments that another user has approved in place of the call's; None without any."""
    return None if suspension.approvals is None else suspension.approvals.arguments


def _declined(suspension: Suspension) -> JsonValue | LeftOpen:
    if suspension.kind in {SuspensionKind.APPROVAL, SuspensionKind.AUTHORIZATION}:
        return {"decision": "deny"}
    if suspension.kind is SuspensionKind.UNKNOWN_OUTCOME:
        return {"decision": "give_up"}
    return LEFT_OPEN


def _schema_of(suspension: Suspension) -> Mapping[str, Any] | None:
    match suspension.kind:
        case SuspensionKind.APPROVAL:
            return _form({"decision": {"type": "string", "enum": ["approve", "deny"]}, "reason": _TEXT}, "decision")
        case SuspensionKind.UNKNOWN_OUTCOME:
            decision = {"type": "string", "enum": ["happened", "run", "give_up"]}
            return _form({"decision": decision, "result": _TEXT}, "decision")
        case SuspensionKind.QUESTION:
            return _form({"answer": _TEXT}, "answer")
        case SuspensionKind.FLOW:
            return _form({"answer": {**_TEXT, "description": "JSON, or plain text."}}, "answer")
        case SuspensionKind.AUTHORIZATION:
            return _form({"decision": {"type": "string", "enum": ["deny"]}, "reason": _TEXT}, "decision")
        case SuspensionKind.CLIENT_TOOL:
            return None


def _form(properties: Mapping[str, Any], required: str) -> Mapping[str, Any]:
    return {"type": "object", "properties": properties, "required": [required]}
