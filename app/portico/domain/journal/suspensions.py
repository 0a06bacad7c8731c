"""Suspensions and their valid answers [flow seed].

question, flow      any JSON: becomes the result
approval            {"decision": "approve", "reason"?, "arguments"?, "grant"?} | {"decision": "deny", "reason"?}
unknown_outcome     {"decision": "happened", "result"} | {"decision": "run"} | {"decision": "give_up"}
client_tool         {"result", "is_error"?}
authorization       {"decision": "authorized"} | {"decision": "deny", "reason"?}
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from portico.domain.contract.response import SuspensionKind
from portico.domain.field_errors import invalid_fields, path_within

MAX_REASON: Final = 4_096
"""Characters of the comment of a decision about a call."""
MAX_GRANT_SECONDS: Final = 86_400
"""Seconds for which a grant may hold."""
EXPIRY: Final[Mapping[str, JsonValue]] = MappingProxyType({"decision": "deny", "reason": "nobody answered in time"})
"""The answer to an approval that had none in time, where that denies the call."""


class _Decision(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class GrantTerms(_Decision):
    """Later calls of the tool that need no answer of their own: where, for how long, and with which arguments."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)

    scope: Literal["execution", "session"] = Field(alias="for")
    seconds: int = Field(ge=1, le=MAX_GRANT_SECONDS)
    match: Literal["tool", "arguments"] = "tool"


class Approve(_Decision):
    """Decision: the call may run, with these arguments if there are any in place of its own."""

    decision: Literal["approve"]
    reason: str | None = Field(None, max_length=MAX_REASON)
    arguments: dict[str, JsonValue] | None = None
    grant: GrantTerms | None = None


class Deny(_Decision):
    """Decision: the call must not run; the model sees the reason."""

    decision: Literal["deny"]
    reason: str | None = Field(None, max_length=MAX_REASON)


class Happened(_Decision):
    """Decision: the call has run, with this result."""

    decision: Literal["happened"]
    result: JsonValue


class RunAgain(_Decision):
    """Decision: the call has not run and may run now."""

    decision: Literal["run"]


class GiveUp(_Decision):
    """Decision: the outcome stays unknown; the call is not run again."""

    decision: Literal["give_up"]


class Authorized(_Decision):
    """Decision: the credential has a value now, and the call goes on."""

    decision: Literal["authorized"]


class ClientResult(_Decision):
    """Result of a call that the client has run."""

    result: JsonValue
    is_error: bool = False


MAX_CLIENT_RESULT_BYTES: Final = 256 * 1024
"""Bytes of the text of a client's result."""
ABOUT_CALLS: Final = frozenset({SuspensionKind.APPROVAL, SuspensionKind.UNKNOWN_OUTCOME})
"""Kinds that ask about a call: whether it may run, or what has become of it."""
DECISION_KINDS: Final = ABOUT_CALLS | {SuspensionKind.AUTHORIZATION}
"""Kinds that a decision about a call answers."""
UNKNOWN_OUTCOME_TEXT = "it is not known whether this call has happened"
"""The result of a call whose outcome stays unknown."""
AUTHORIZED: Final[Mapping[str, JsonValue]] = MappingProxyType({"decision": "authorized"})
"""The answer that the arrival of a credential gives."""
_AT_FIRST_USE: Final = ConfigDict(defer_build=True)
"""Configuration of an adapter that is built when the first decision is read."""
AUTHORIZATION_DECISIONS: TypeAdapter[Authorized | Deny] = TypeAdapter(
    Annotated[Authorized | Deny, Field(discriminator="decision")], config=_AT_FIRST_USE
)
ApprovalDecision = Annotated[Approve | Deny, Field(discriminator="decision")]
UnknownOutcomeDecision = Annotated[Happened | RunAgain | GiveUp, Field(discriminator="decision")]
APPROVAL_DECISIONS: TypeAdapter[Approve | Deny] = TypeAdapter(ApprovalDecision, config=_AT_FIRST_USE)
UNKNOWN_OUTCOME_DECISIONS: TypeAdapter[Happened | RunAgain | GiveUp] = TypeAdapter(
    UnknownOutcomeDecision, config=_AT_FIRST_USE
)
CLIENT_RESULTS: TypeAdapter[ClientResult] = TypeAdapter(ClientResult)
_ADAPTERS: Mapping[SuspensionKind, TypeAdapter[Any]] = MappingProxyType(
    {
        SuspensionKind.APPROVAL: APPROVAL_DECISIONS,
        SuspensionKind.UNKNOWN_OUTCOME: UNKNOWN_OUTCOME_DECISIONS,
        SuspensionKind.CLIENT_TOOL: CLIENT_RESULTS,
        SuspensionKind.AUTHORIZATION: AUTHORIZATION_DECISIONS,
    }
)


def payload_errors(kind: SuspensionKind, payload: JsonValue) -> list[tuple[str, str]]:
    """Return the errors of an answer to a suspension of that kind, as pairs of path and message."""
    if kind not in _ADAPTERS:
        return []
    try:
        answer = _ADAPTERS[kind].validate_python(payload)
    except ValidationError as error:
        fields = invalid_fields(error.errors(include_url=False, include_input=False), path_of=path_within(payload))
        return [(".".join(("payload", *each.path)), each.message) for each in fields]
    if isinstance(answer, ClientResult) and len(answer_text(answer.result).encode()) > MAX_CLIENT_RESULT_BYTES:
        return [("payload.result", f"must have at most {MAX_CLIENT_RESULT_BYTES} bytes as text")]
    return []


def answer_text(answer: JsonValue) -> str:
    """Return the answer to a question as the text that the model sees."""
    return answer if isinstance(answer, str) else orjson.dumps(answer).decode()


def denial_text(decision: Deny, refusal: str = "not approved") -> str:
    """Return the result of a call that was not approved, or got no credential."""
    return refusal if decision.reason is None else f"{refusal}: {decision.reason}"
