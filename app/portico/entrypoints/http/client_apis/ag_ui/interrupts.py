"""Interrupts of AG-UI: an open suspension as what a page asks, and the answer of a page as a payload."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import orjson

from portico.domain.contract.response import Suspension, SuspensionKind
from portico.domain.ids import RequestId
from portico.domain.journal.suspensions import MAX_GRANT_SECONDS
from portico.entrypoints.http.client_apis.ag_ui.request import InterruptAnswer
from portico.entrypoints.http.client_apis.ids import digits


def _decision(*choices: str, **others: Any) -> Mapping[str, Any]:
    properties = {"decision": {"type": "string", "enum": [*choices]}, **others}
    return {"type": "object", "properties": properties, "required": ["decision"]}


_GRANT: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "for": {"type": "string", "enum": ["execution", "session"]},
        "seconds": {"type": "integer", "minimum": 1, "maximum": MAX_GRANT_SECONDS},
        "match": {"type": "string", "enum": ["tool", "arguments"]},
    },
    "required": ["for", "seconds"],
}
_SCHEMAS: Final[Mapping[SuspensionKind, Mapping[str, Any]]] = MappingProxyType(
    {
        SuspensionKind.APPROVAL: _decision(
            "approve", "deny", reason={"type": "string"}, arguments={"type": "object"}, grant=_GRANT
        ),
        SuspensionKind.UNKNOWN_OUTCOME: _decision("happened", "run", "give_up", result={"type": "string"}),
        SuspensionKind.QUESTION: {"type": "string"},
        SuspensionKind.FLOW: {},
        SuspensionKind.CLIENT_TOOL: {},
        SuspensionKind.AUTHORIZATION: _decision("deny", reason={"type": "string"}),
    }
)
REFUSED_BY_PAYLOAD: Final[Mapping[SuspensionKind, Mapping[str, str]]] = MappingProxyType(
    {
        SuspensionKind.APPROVAL: {"decision": "deny"},
        SuspensionKind.UNKNOWN_OUTCOME: {"decision": "give_up"},
        SuspensionKind.AUTHORIZATION: {"decision": "deny"},
    }
)
"""The payload that refuses a suspension, for the kinds that have one; any other one is refused by cancelling."""


def interrupt_of(request_id: RequestId, suspension: Suspension) -> dict[str, Any]:
    """Return the interrupt that asks for the answer to a suspension."""
    call = {} if suspension.tool_call_id is None else {"toolCallId": suspension.tool_call_id}
    return {
        "id": f"{digits(request_id)}/{suspension.suspension_id}",
        "reason": suspension.kind,
        "message": _message(suspension),
        **call,
        "responseSchema": _SCHEMAS[suspension.kind],
        "expiresAt": suspension.expires_at.isoformat().replace("+00:00", "Z"),
        "metadata": {"value": suspension.value, **_approvals(suspension)},
    }


def payload_of(answer: InterruptAnswer, kind: SuspensionKind) -> Any:
    """Return the payload that answers a suspension of this kind. Raises: KeyError if no payload refuses it."""
    return dict(REFUSED_BY_PAYLOAD[kind]) if answer.is_cancelled else answer.payload


def _approvals(suspension: Suspension) -> dict[str, Any]:
    """Return who has approved a call so far that more than one user must approve; empty for any other."""
    given = suspension.approvals
    return {} if given is None else {"approvals": given.model_dump(mode="json")}


def _message(suspension: Suspension) -> str:
    value = suspension.value
    match value:
        case str():
            return value
        case {"question": str(question)}:
            return question
        case _:
            return f"{suspension.tool_id}: {orjson.dumps(value).decode()}"
