"""Builder of engines of Anthropic."""

from portico.adapters.engines.anthropic.dialect import AnthropicDialect
from portico.bootstrap.engine_builders.build import EngineBuild
from portico.bootstrap.engine_builders.http import http_engine
from portico.ports.model import Engine


def build(spec: EngineBuild) -> Engine:
    return http_engine(spec, AnthropicDialect())
