"""The generateContent dialect of the Gemini API."""

from collections.abc import Sequence
from urllib.parse import quote

from portico.adapters.engines.dialect import EncodedRequest
from portico.adapters.engines.gemini import replies
from portico.adapters.engines.gemini.errors import error_of, reason_of, reported_fault, retry_delay
from portico.adapters.engines.gemini.request import PARAMETER_NAMES, build_request, has_level
from portico.adapters.engines.unsupported import unsent_message_parts, unsent_options
from portico.adapters.engines.wire.embeddings import token_count, vector_of
from portico.adapters.engines.wire.json_fields import as_objects, detail, parse_object
from portico.domain.model_call import AttemptFailureReason, EngineCall
from portico.ports.memory import Embeddings
from portico.ports.model import EngineProfile


class GeminiDialect:
    """Implements `Dialect`."""

    probe_path = "/v1beta/models?pageSize=1"
    binds_kept = False
    finish_reasons = replies.FINISH_REASONS

    def headers(self, key: str | None) -> dict[str, str]:
        return {"x-goog-api-key": key} if key else {}

    def encode(self, call: EngineCall, profile: EngineProfile, *, stream: bool) -> EncodedRequest:
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        body = build_request(call, profile)
        withheld = (
            *unsent_options(call, PARAMETER_NAMES, body, body["generationConfig"]),
            *unsent_message_parts(call.messages, ("system",)),
            *(() if has_level(call, profile, body["generationConfig"]) else ("hints.reasoning",)),
        )
        return EncodedRequest(f"{_path(profile.model)}:{method}", body, withheld)

    def encode_embeddings(self, texts: Sequence[str], profile: EngineProfile, dimension: int | None) -> EncodedRequest:
        size = {} if dimension is None else {"outputDimensionality": dimension}
        model = f"models/{profile.model.removeprefix('models/')}"
        requests = [{"model": model, "content": {"parts": [{"text": text}]}, **size} for text in texts]
        return EncodedRequest(f"{_path(profile.model)}:batchEmbedContents", {"requests": requests})

    def decode_embeddings(self, body: bytes) -> Embeddings:
        reply = parse_object(body)
        if reply.get("error"):
            raise reported_fault(reply["error"])
        vectors = [vector_of(each.get("values")) for each in as_objects(reply.get("embeddings"))]
        return Embeddings(vectors, token_count(detail(reply, "usageMetadata", "promptTokenCount")))

    decode = staticmethod(replies.decode_reply)
    decode_chunk = staticmethod(replies.decode_event)
    reported_fault = staticmethod(reported_fault)

    def retry_delay(self, body: bytes) -> float | None:
        return retry_delay(error_of(body))

    def failure_reason(self, status: int, body: bytes) -> AttemptFailureReason:
        return reason_of(status, error_of(body))


def _path(model: str) -> str:
    return f"/v1beta/models/{quote(model.removeprefix('models/'), safe='')}"
