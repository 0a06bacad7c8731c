"""Builder of engines of the Gemini API."""

from portico.adapters.engines.gemini.dialect import GeminiDialect
from portico.bootstrap.engine_builders.build import EngineBuild
from portico.bootstrap.engine_builders.http import http_engine
from portico.ports.model import Engine


def build(spec: EngineBuild) -> Engine:
    return http_engine(spec, GeminiDialect())
