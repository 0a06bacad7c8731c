"""Open suspensions as forms, and what a person has filled in as the answer.

A form shows the tool and all of its arguments, without characters that do not show. What is too long for that is not
asked in a form: a person approves only what was shown. The fields of a flow's question are those of the answer that its
node takes, if that is flat; else the answer is one text.
"""

from collections.abc import Mapping
from types import MappingProxyType
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
"""What a person does with a form."""
_TEXT: Final[Mapping[str, Any]] = {"type": "string"}
_ABOUT: Final = frozenset({"type", "title", "description", "default"})
_OF_FIELDS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "string": _ABOUT | {"minLength", "maxLength", "enum"},
        "integer": _ABOUT | {"minimum", "maximum"},
        "number": _ABOUT | {"minimum", "maximum"},
        "boolean": _ABOUT,
    }
)
"""What a form may say of a field, by its type."""


@value
class LeftOpen:
    """A question that the person did not answer."""


LEFT_OPEN: Final = LeftOpen()


@value
class Form:
    """A question to a person: its text, and the JSON Schema of its flat fields."""

    message: str
    schema: Mapping[str, Any]


def form_of(suspension: Suspension, answer_schema: Mapping[str, Any] | None = None) -> Form | None:
    """Return the form of a suspension; None if it is too long to be shown whole, or is nothing to ask a person.

    `answer_schema` is that of a flow's answer.
    """
    schema = _schema_of(suspension, answer_schema)
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


def answer_of(
    suspension: Suspension,
    action: Action,
    content: Mapping[str, Any] | None,
    answer_schema: Mapping[str, Any] | None = None,
) -> JsonValue | LeftOpen:
    """Return the answer that a person's action means. Raises: RequestFailure (REQUEST_INVALID)."""
    if action != "accept":
        return LEFT_OPEN if action == "cancel" else _declined(suspension)
    filled = {name: each for name, each in (content or {}).items() if each is not None}
    if suspension.kind in DECISION_KINDS:
        changed = _changed_arguments(suspension)
        return (
            {**filled, "arguments": changed} if changed is not None and filled.get("decision") == "approve" else filled
        )
    if suspension.kind is SuspensionKind.FLOW and _flat(answer_schema) is not None:
        return filled
    text = filled.get("answer")
    if not isinstance(text, str):
        raise invalid_request((f"{suspension.suspension_id}.answer", "must be a text"))
    return text if suspension.kind is SuspensionKind.QUESTION else _json_or_text(text)


def _json_or_text(text: str) -> JsonValue:
    try:
        value: JsonValue = loads(text.encode())
    except (StrictJsonError, UnicodeEncodeError):
        return text
    return value


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


def _schema_of(suspension: Suspension, answer_schema: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    match suspension.kind:
        case SuspensionKind.APPROVAL:
            return _form({"decision": {"type": "string", "enum": ["approve", "deny"]}, "reason": _TEXT}, "decision")
        case SuspensionKind.UNKNOWN_OUTCOME:
            decision = {"type": "string", "enum": ["happened", "run", "give_up"]}
            return _form({"decision": decision, "result": _TEXT}, "decision")
        case SuspensionKind.QUESTION:
            return _form({"answer": _TEXT}, "answer")
        case SuspensionKind.FLOW:
            as_text = _form({"answer": {**_TEXT, "description": "JSON, or plain text."}}, "answer")
            return _flat(answer_schema) or as_text
        case SuspensionKind.AUTHORIZATION:
            return _form({"decision": {"type": "string", "enum": ["deny"]}, "reason": _TEXT}, "decision")
        case SuspensionKind.CLIENT_TOOL:
            return None


def _form(properties: Mapping[str, Any], required: str) -> Mapping[str, Any]:
    return {"type": "object", "properties": properties, "required": [required]}


def _flat(schema: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the schema as that of a form; None unless it is one of an object whose fields are all simple."""
    properties = None if schema is None else schema.get("properties")
    if schema is None or not isinstance(properties, Mapping) or schema.get("type") != "object":
        return None
    fields: dict[str, Any] = {}
    for name, field in properties.items():
        known = _OF_FIELDS.get(str(field.get("type")))
        if known is None:
            return None
        fields[name] = {key: each for key, each in field.items() if key in known}
    return {"type": "object", "properties": fields, "required": [*schema.get("required", ())]}
