"""Gemini on Vertex AI: the same bodies at other paths."""

from portico.adapters.engines.dialect import EncodedRequest
from portico.adapters.engines.gemini import replies
from portico.adapters.engines.gemini.dialect import GeminiDialect
from portico.adapters.engines.gemini.errors import error_of, reason_of, reported_fault, retry_delay
from portico.adapters.engines.vertex_path import VertexPath
from portico.domain.model_call import AttemptFailureReason, EngineCall
from portico.ports.model import EngineProfile


class VertexGeminiDialect:
    """Implements `Dialect`."""

    binds_kept = False
    finish_reasons = replies.FINISH_REASONS

    def __init__(self, project: str, location: str) -> None:
        self._path = VertexPath(project, location, "google")
        self.probe_path = self._path.probe

    def headers(self, key: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}

    def encode(self, call: EngineCall, profile: EngineProfile, *, stream: bool) -> EncodedRequest:
        encoded = GeminiDialect().encode(call, profile, stream=stream)
        verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return EncodedRequest(self._path.method(profile.model, verb), encoded.body, encoded.withheld)

    decode = staticmethod(replies.decode_reply)
    decode_chunk = staticmethod(replies.decode_event)
    reported_fault = staticmethod(reported_fault)

    def retry_delay(self, body: bytes) -> float | None:
        return retry_delay(error_of(body))

    def failure_reason(self, status: int, body: bytes) -> AttemptFailureReason:
        return reason_of(status, error_of(body))
