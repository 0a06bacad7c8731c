"""Constrained types of contract fields, and the maximum lengths of lists.

Every list has a maximum length, or its validation ends at the first error, since reporting each one takes time.
"""

from enum import StrEnum
from functools import partial
from typing import Annotated, Final

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator, StringConstraints, WithJsonSchema

from portico.domain.access.limits import MILLIONTHS, Rate, format_rate, parse_rate
from portico.domain.contract.messages import TOOL_NAME_PATTERN
from portico.domain.ids import CHANNEL_PATTERN, ChannelName, DocumentId, GrantId, KeyId, RequestId, SessionId, TraceId
from portico.domain.time_zones import require_time
from portico.domain.tools import tool_of

MAX_MESSAGES: Final = 10_000
MAX_STEPS: Final = 1_000
MAX_REPLICAS: Final = 100
MAX_CLIENT_TOOLS: Final = 128
MAX_PASSES: Final = 100
"""Upper bounds of the configurable limits."""
MAX_SKILLS: Final = 1_000
_ID: Final = StringConstraints(pattern=r"^[A-Za-z0-9._:-]{1,128}$")
RequestIdText = Annotated[RequestId, _ID]
SessionIdText = Annotated[SessionId, _ID]
DocumentIdText = Annotated[DocumentId, _ID]
ChannelText = Annotated[ChannelName, StringConstraints(pattern=rf"^{CHANNEL_PATTERN}$")]
ScheduleNameText = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
GrantIdText = Annotated[GrantId, _ID]
KeyIdText = Annotated[KeyId, StringConstraints(pattern=r"^[A-Za-z0-9]{8}$")]
TraceIdText = Annotated[TraceId, StringConstraints(pattern=r"^[0-9a-fA-F]{32}$", to_lower=True)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=128)]
NameList = Annotated[list[Name], Field(fail_fast=True)]
ToolName = Annotated[str, StringConstraints(pattern=TOOL_NAME_PATTERN)]
ToolReference = Annotated[
    str, StringConstraints(pattern=r"^(agent:[a-zA-Z0-9_-]{1,57}|[a-zA-Z0-9_-]{1,64})$"), AfterValidator(tool_of)
]
"""The name of a tool, or `agent:NAME`, which is read as the name of the tool that the agent is."""
MAX_WEBHOOKS: Final = 4
"""Endpoints that a request or an agent may name."""
WebhookName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
"""The name of an endpoint of webhooks."""
CallerName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._@|:-]{1,128}$")]
"""The name of a tenant or a user."""
TimeText = Annotated[str, AfterValidator(require_time), WithJsonSchema({"type": "string", "format": "date-time"})]
"""A time of RFC 3339 with its offset."""
StopText = Annotated[str, StringConstraints(min_length=1, max_length=256)]
MAX_EDITED_BYTES: Final = 1 << 20
"""Bytes of an edited result."""


def _within_edited_bytes(text: str) -> str:
    if len(text.encode("utf-8", "surrogatepass")) > MAX_EDITED_BYTES:
        raise ValueError(f"must have at most {MAX_EDITED_BYTES} bytes")
    return text


EditedText = Annotated[str, AfterValidator(_within_edited_bytes)]
Intent = Annotated[str, StringConstraints(min_length=1)]
UnitInterval = Annotated[float, Field(ge=0, le=1)]


def _unit_rate(given: object) -> Rate:
    return _rate(given, 1)


def _cost_rate(given: object) -> Rate:
    return _rate(given, MILLIONTHS)


def _rate(given: object, units: int) -> Rate:
    """Return the rate, whose amounts have so many units in 1."""
    if isinstance(given, Rate):
        return given
    if not isinstance(given, str):
        raise ValueError('must be a text such as "600/60"')  # noqa: TRY004 - pydantic reports ValueError
    return parse_rate(given, units=units)


UnitRate = Annotated[
    Rate, PlainValidator(_unit_rate, json_schema_input_type=str), PlainSerializer(format_rate, return_type=str)
]
"""A rate `N/S`: so many in so many seconds."""
CostRate = Annotated[
    Rate,
    PlainValidator(_cost_rate, json_schema_input_type=str),
    PlainSerializer(partial(format_rate, units=MILLIONTHS), return_type=str),
]
"""A rate `N/S` of the currency, in millionths."""


class ConfidenceSource(StrEnum):
    """Source of a confidence."""

    VOTING = "voting"
    VALIDATION = "validation"
    RETRIEVAL = "retrieval"


class FormatEnforcement(StrEnum):
    """Way in which the format of an answer was enforced: by the engine itself, by a `submit` tool, or by the prompt."""

    SCHEMA = "schema"
    GRAMMAR = "grammar"
    SUBMIT = "submit"
    CONTRACT = "contract"
