"""Builder of engines for models of Vertex AI."""

from functools import partial

from portico.adapters.engines.anthropic.vertex import VertexAnthropicDialect
from portico.adapters.engines.credentials.expiry import AuthenticatedTransport, ExpiringCredentials, with_headers
from portico.adapters.engines.dialect import Dialect
from portico.adapters.engines.gemini.vertex import VertexGeminiDialect
from portico.adapters.engines.openai.chat_completions import ChatCompletionsDialect
from portico.bootstrap.engine_builders.build import EngineBuild
from portico.bootstrap.engine_builders.http import http_engine
from portico.ports.model import Engine
from portico.settings import ModelUrl


def build(spec: EngineBuild) -> Engine:
    dialect = _dialect(spec.engine.model)
    if spec.engine.api_key.read():
        return http_engine(spec, dialect)
    from portico.adapters.engines.credentials.google import find_token  # noqa: PLC0415 - its package is an extra

    credentials = ExpiringCredentials(partial(find_token, spec.resources.clock))
    return http_engine(spec, dialect, lambda transport: AuthenticatedTransport(transport, credentials, with_headers))


def _dialect(url: ModelUrl) -> Dialect:
    project, location = url.places
    if url.model.startswith("gemini-"):
        return VertexGeminiDialect(project, location)
    if url.model.startswith("claude-"):
        return VertexAnthropicDialect(project, location)
    return ChatCompletionsDialect()
