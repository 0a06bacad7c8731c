"""The Converse API of Amazon Bedrock, which all models there have."""

from urllib.parse import quote

from portico.adapters.engines.bedrock import replies
from portico.adapters.engines.bedrock.errors import error_of, reason_of, reported_fault
from portico.adapters.engines.bedrock.request import PARAMETER_NAMES, build_request
from portico.adapters.engines.dialect import EncodedRequest
from portico.adapters.engines.unsupported import unsent_message_parts, unsent_options
from portico.domain.model_call import AttemptFailureReason, EngineCall
from portico.ports.model import EngineProfile


class BedrockDialect:
    """Implements `Dialect`. Without a key the requests are signed where they are sent."""

    probe_path = "/ping"
    binds_kept = False
    finish_reasons = replies.FINISH_REASONS

    def headers(self, key: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}

    def encode(self, call: EngineCall, profile: EngineProfile, *, stream: bool) -> EncodedRequest:
        body, left_out = build_request(call, profile)
        parts = (body.get(name, {}) for name in ("inferenceConfig", "toolConfig", "additionalModelRequestFields"))
        withheld = (
            *unsent_options(call, PARAMETER_NAMES, body, *parts),
            *unsent_message_parts(call.messages, ("system", "assistant")),
            *(["messages.audio"] if any(message.audio for message in call.messages) else ()),
            *left_out,
        )
        method = "converse-stream" if stream else "converse"
        return EncodedRequest(f"/model/{quote(profile.model, safe='')}/{method}", body, withheld)

    decode = staticmethod(replies.decode_reply)
    decode_chunk = staticmethod(replies.decode_event)
    reported_fault = staticmethod(reported_fault)

    def failure_reason(self, status: int, body: bytes) -> AttemptFailureReason:
        return reason_of(status, error_of(body))
