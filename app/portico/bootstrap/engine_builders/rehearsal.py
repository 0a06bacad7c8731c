"""Builder of engines that need no model."""

from portico.adapters.engines.rehearsal.engine import RehearsalEngine
from portico.bootstrap.engine_builders.build import EngineBuild
from portico.ports.model import Engine


def build(spec: EngineBuild) -> Engine:
    return RehearsalEngine(spec.profile, spec.resources.clock)
