"""Builder of engines for models of Azure OpenAI, over one of OpenAI's two APIs."""

from functools import partial

from portico.adapters.engines.credentials.expiry import AuthenticatedTransport, ExpiringCredentials, with_headers
from portico.adapters.engines.openai.azure import AzureChatCompletionsDialect, AzureResponsesDialect
from portico.bootstrap.engine_builders.build import EngineBuild
from portico.bootstrap.engine_builders.http import http_engine
from portico.bootstrap.engine_builders.openai import api
from portico.ports.model import Engine


def build(spec: EngineBuild) -> Engine:
    dialect = AzureResponsesDialect() if api(spec) == "responses" else AzureChatCompletionsDialect()
    if spec.engine.auth != "entra":
        return http_engine(spec, dialect)
    from portico.adapters.engines.credentials.entra import find_token  # noqa: PLC0415 - its package is an extra

    credentials = ExpiringCredentials(partial(find_token, spec.resources.clock))
    return http_engine(spec, dialect, lambda transport: AuthenticatedTransport(transport, credentials, with_headers))
