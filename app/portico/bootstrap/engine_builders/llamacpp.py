"""Builder of engines for models in this process."""

from portico.adapters.engines.llama_cpp.engine import LlamaCppEngine
from portico.bootstrap.engine_builders.build import EngineBuild
from portico.ports.model import Engine


def build(spec: EngineBuild) -> Engine:
    engine = LlamaCppEngine(spec.profile, spec.timeouts)
    spec.resources.stack.push_async_exit(engine)
    return engine
