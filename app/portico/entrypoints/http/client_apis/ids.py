"""Ids of client APIs, which are made of the `request_id` of an execution; there is no table of them.

HEX stands for the 32 digits of a request id that is a UUID. `chatcmpl-HEX`, `resp_HEX` and `msg_HEX` name an answer,
`resp_HEX_k` the answer behind the k-th approval, `call_HEX_N` the N-th call of a client. N counts from 0 by kind. A
client call's id has at most 40 characters, the most that OpenAI takes.
"""

import re
from typing import Final

from portico.domain.ids import RequestId
from portico.domain.value import value

_NAMED = re.compile(r"[a-z]+[_-](?P<digits>[0-9a-f]{32})(?:_(?P<number>0|[1-9][0-9]{0,5}))?")
_VERSION_7 = re.compile("[0-9a-f]{12}7[0-9a-f]{19}")
_CALL: Final = "call"


@value
class NamedExecution:
    """The execution that an id names, and the number behind it, if there is one."""

    request_id: RequestId
    number: int | None


def digits(request_id: RequestId) -> str:
    """Return the digits of a request id, without its dashes."""
    return request_id.replace("-", "")


def client_call_id(request_id: RequestId, number: int) -> str:
    """Return the id of the client call with that number, counted from 0 in its execution."""
    return f"{_CALL}_{digits(request_id)}_{number}"


def named_execution(text: str, prefix: str) -> NamedExecution | None:
    """Return the execution that an id with this prefix names; None for an id that the service cannot have made."""
    match = _NAMED.fullmatch(text)
    if match is None or not text.startswith((f"{prefix}_", f"{prefix}-")):
        return None
    found, number = match["digits"], match["number"]
    dashed = "-".join((found[:8], found[8:12], found[12:16], found[16:20], found[20:]))
    return NamedExecution(RequestId(dashed), None if number is None else int(number))


def called_execution(call_id: str) -> NamedExecution | None:
    """Return the execution that handed out the client call of that id, and the call's number; None for other ids."""
    named = named_execution(call_id, _CALL)
    return None if named is None or named.number is None else named


def created_at(request_id: RequestId) -> int:
    """Return the Unix seconds that a UUIDv7 contains [RFC 9562]; 0 for any other id."""
    found = digits(request_id)
    return int(found[:12], 16) // 1000 if _VERSION_7.fullmatch(found) else 0
