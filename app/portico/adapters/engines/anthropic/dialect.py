"""Anthropic's Messages API."""

from typing import Final

from portico.adapters.engines.anthropic import replies
from portico.adapters.engines.anthropic.errors import error_of, reason_of, reported_fault
from portico.adapters.engines.anthropic.request import PARAMETER_NAMES, build_request
from portico.adapters.engines.dialect import EncodedRequest
from portico.adapters.engines.unsupported import unsent_message_parts, unsent_options
from portico.domain.model_call import AttemptFailureReason, EngineCall
from portico.ports.model import EngineProfile

VERSION: Final = "2023-06-01"
"""The version after it, 2026-10-21, refuses temperature and top_p for every model."""


class AnthropicDialect:
    """Implements `Dialect`."""

    probe_path = "/v1/models"
    binds_kept = False
    finish_reasons = replies.FINISH_REASONS

    def headers(self, key: str | None) -> dict[str, str]:
        return {"anthropic-version": VERSION} | ({"x-api-key": key} if key else {})

    def encode(self, call: EngineCall, profile: EngineProfile, *, stream: bool) -> EncodedRequest:
        body, withheld = build_request(call, profile)
        body["stream"] = stream
        asked = body if call.hints.max_tokens is None else {**body, "max_tokens": call.hints.max_tokens}
        return EncodedRequest(
            "/v1/messages",
            body,
            (
                *unsent_options(call, PARAMETER_NAMES, asked),
                *unsent_message_parts(call.messages, ("system",)),
                *(["messages.audio"] if any(message.audio for message in call.messages) else ()),
                *withheld,
            ),
        )

    decode = staticmethod(replies.decode_reply)
    decode_chunk = staticmethod(replies.decode_event)
    reported_fault = staticmethod(reported_fault)

    def failure_reason(self, status: int, body: bytes) -> AttemptFailureReason:
        return reason_of(status, error_of(body))
