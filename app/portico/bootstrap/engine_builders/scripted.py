"""Builder of engines that answer from a file."""

from pathlib import Path

from portico.adapters.engines.scripted import ScriptedEngine
from portico.bootstrap.engine_builders.build import EngineBuild
from portico.ports.model import Engine


def build(spec: EngineBuild) -> Engine:
    return ScriptedEngine.from_file(spec.profile, Path(spec.engine.model.model), spec.resources.clock)
