"""Builder of engines for one of the two APIs of OpenAI."""

from portico.adapters.engines.openai import models
from portico.adapters.engines.openai.chat_completions import ChatCompletionsDialect
from portico.adapters.engines.openai.responses import ResponsesDialect
from portico.adapters.engines.openai.vendors import OPENAI, VENDORS
from portico.bootstrap.engine_builders.build import EngineBuild
from portico.bootstrap.engine_builders.http import http_engine
from portico.ports.model import Engine


def build(spec: EngineBuild) -> Engine:
    """Build an engine; compatible providers have the older API."""
    vendor = VENDORS[spec.engine.vendor or OPENAI]
    return http_engine(spec, ResponsesDialect() if api(spec) == "responses" else ChatCompletionsDialect(vendor))


def api(spec: EngineBuild) -> str:
    """Return the API that is configured, or the one that the model needs."""
    if spec.engine.api is not None:
        return spec.engine.api
    name = spec.profile.known_as or spec.profile.model
    return "responses" if models.requires_responses_api(name) else "chat_completions"
