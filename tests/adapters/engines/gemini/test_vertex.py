"""Gemini on Vertex AI: the bodies of the Gemini API at the paths that Google's own client uses."""

import pytest

from portico.adapters.engines.dialect import EmbeddingDialect
from portico.adapters.engines.gemini.dialect import GeminiDialect
from portico.adapters.engines.gemini.vertex import VertexGeminiDialect
from tests.adapters.engines.cases import DICE
from tests.adapters.engines.engine_calls import call, profile

DIALECT = VertexGeminiDialect("acme", "global")


@pytest.mark.parametrize(("stream", "verb"), [(False, "generateContent"), (True, "streamGenerateContent?alt=sse")])
def test_the_body_is_the_same_at_another_path(stream: bool, verb: str) -> None:
    sent = DIALECT.encode(call(tools=[DICE]), profile("gemini-3-flash"), stream=stream)
    assert sent.body == GeminiDialect().encode(call(tools=[DICE]), profile("gemini-3-flash"), stream=stream).body
    assert sent.path == f"/projects/acme/locations/global/publishers/google/models/gemini-3-flash:{verb}"


def test_it_takes_tokens_and_has_no_embeddings() -> None:
    assert DIALECT.headers("token") == {"Authorization": "Bearer token"}
    assert not isinstance(DIALECT, EmbeddingDialect)
