"""Claude on Vertex AI: Anthropic's bodies, where the path names the model and a member of the body the version.

A cache is marked at the last block of the last message, since `cache_control` at the top level is refused here.
"""

from typing import Any, Final

from portico.adapters.engines.anthropic.dialect import AnthropicDialect
from portico.adapters.engines.dialect import EncodedRequest
from portico.adapters.engines.vertex_path import VertexPath
from portico.domain.model_call import EngineCall
from portico.ports.model import EngineProfile

VERSION: Final = "vertex-2023-10-16"
MARK: Final = "cache_control"
UNMARKED: Final = frozenset({"thinking", "redacted_thinking"})
"""Types of blocks that cannot end a cached prefix."""


class VertexAnthropicDialect(AnthropicDialect):
    """Implements `Dialect`."""

    def __init__(self, project: str, location: str) -> None:
        self._path = VertexPath(project, location, "anthropic")
        self.probe_path = self._path.probe

    def headers(self, key: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}

    def encode(self, call: EngineCall, profile: EngineProfile, *, stream: bool) -> EncodedRequest:
        encoded = super().encode(call, profile, stream=stream)
        body = {name: value for name, value in encoded.body.items() if name not in {"model", MARK}}
        body["anthropic_version"] = VERSION
        if MARK in encoded.body:
            body["messages"] = _marked(body["messages"], encoded.body[MARK])
        verb = "streamRawPredict" if stream else "rawPredict"
        return EncodedRequest(self._path.method(profile.model, verb), body, encoded.withheld)


def _marked(messages: list[dict[str, Any]], mark: Any) -> list[dict[str, Any]]:
    """Return the messages with the mark at the last block of the last one, if it can have one."""
    if not messages or messages[-1]["content"][-1]["type"] in UNMARKED:
        return messages
    *before, last = messages
    *blocks, block = last["content"]
    return [*before, {**last, "content": [*blocks, {**block, MARK: mark}]}]
