"""The member `portico` of requests and answers: what clients of foreign APIs could not say or read otherwise.

A request has it at the top level (`extra_body` of the SDKs). An answer has it only if its request has it, even `{}`.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from portico.domain.contract.constrained_types import SessionIdText, ToolReference
from portico.domain.contract.quote import Quote
from portico.domain.contract.request import (
    ContextOptions,
    FlowOptions,
    InputContract,
    Limits,
    OutputContract,
    PlanOptions,
    RedundancyOptions,
)
from portico.domain.contract.response import SystemResponse
from portico.domain.failures import invalid_request
from portico.domain.field_errors import invalid_fields, path_within
from portico.domain.ids import RequestId
from portico.domain.lifecycle import Mode

EXTENSION: Final = "portico"
"""The member's name."""
OWN_FIELDS: Final = frozenset({"quote", "deltas"})
"""Fields that no `SystemRequest` has."""
_METADATA: Final = ("provider", "model", "flags", "sources", "left_out")
_MEMBERS: Final = (
    *("request_id", "mode", "provider", "model", "confidence", "confidence_source", "vote", "plan", "final_answer"),
    *("validation_result", "cost", "flags", "sources", "left_out"),
)


class Extension(BaseModel):
    """The member `portico` of a request. All but the last two fields are those of a `SystemRequest`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    mode: Mode | None = Field(None, description="Pattern to run.")
    output: OutputContract | None = Field(None, description="Required format of the answer.")
    input: InputContract | None = Field(None, description="Requirements of the input.")
    tools: list[ToolReference] | None = Field(
        None, max_length=128, description="Tools of the service to offer beside those of the client."
    )
    context: ContextOptions | None = Field(None, description="Retrieval and skills.")
    plan: PlanOptions | None = Field(None, description="Options of plan mode.")
    redundancy: RedundancyOptions | None = Field(None, description="Options of redundant mode.")
    flow: FlowOptions | None = Field(None, description="Options of flow mode.")
    limits: Limits | None = Field(None, description="Limits of this execution.")
    on_limit: Literal["fail", "salvage"] | None = Field(None, description="Effect of a reached limit.")
    session_id: SessionIdText | None = Field(None, description="Id of a session.")
    if_session_busy: Literal["reject", "enqueue"] | None = Field(None, description="Effect of a busy session.")
    on_disconnect: Literal["cancel", "continue"] | None = Field(None, description="Effect of a closed connection.")
    quote: bool = Field(False, description="True to run nothing and to answer with the upper bounds only.")
    deltas: Literal["live", "settled"] | None = Field(
        None, description="When text is sent: as it is made, or once it cannot be taken back."
    )


NO_EXTENSION: Final = Extension()


def read_extension(found: object) -> Extension:
    """Return the member of a request. Raises: RequestFailure naming the field behind `portico.`."""
    try:
        return Extension.model_validate_json(orjson.dumps(found), strict=True)
    except ValidationError as invalid:
        errors = invalid.errors(include_url=False, include_context=True, include_input=False)
    schema = Extension.model_json_schema()
    fields = invalid_fields(errors, path_of=path_within(found), schema=schema)
    raise invalid_request(*((".".join((EXTENSION, *each.path)), each.message) for each in fields[:20]))


def requested_fields(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return those fields of a valid member that a `SystemRequest` has, without nulls."""
    return {name: value for name, value in found.items() if name not in OWN_FIELDS and value is not None}


def extension_of(response: SystemResponse) -> Mapping[str, Any]:
    """Return the member of an answer; what the response does not have is absent."""
    whole = response.model_dump(mode="json", by_alias=True, exclude_none=True)
    found = {**whole, **{name: whole["metadata"].get(name) for name in _METADATA}}
    return {name: found[name] for name in _MEMBERS if found.get(name) not in (None, [])}


def extension_of_quote(quote: Quote, request_id: RequestId) -> Mapping[str, Any]:
    """Return the member of an answer that has bounds only."""
    return {"request_id": request_id, "quote": quote.model_dump(mode="json", exclude_none=True)}
