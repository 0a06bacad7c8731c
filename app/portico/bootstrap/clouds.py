"""Dialects and credentials of the engines on clouds, by their scheme.

What a cloud's packages are needed for is imported where an engine needs it: they take much memory, and are extras.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from portico.adapters.engines.anthropic.vertex import VertexAnthropicDialect
from portico.adapters.engines.bedrock.dialect import BedrockDialect
from portico.adapters.engines.credentials.expiry import AuthenticatedTransport, ExpiringCredentials, with_headers
from portico.adapters.engines.dialect import Dialect
from portico.adapters.engines.gemini.vertex import VertexGeminiDialect
from portico.adapters.engines.http.engine import STREAM_PARSERS, StreamParser
from portico.adapters.engines.http.transport import Transport
from portico.adapters.engines.openai.azure import AzureChatCompletionsDialect, AzureResponsesDialect
from portico.adapters.engines.openai.chat_completions import ChatCompletionsDialect
from portico.ports.engine_schemes import SCHEMES
from portico.ports.runtime import Clock
from portico.settings import EngineSettings, ModelUrl

_VERTEX_HOSTS: Final[Mapping[str, str]] = MappingProxyType(
    {"global": "aiplatform", "us": "aiplatform.us.rep", "eu": "aiplatform.eu.rep"}
)
"""The beginning of the host of each location that has another one than `LOCATION-aiplatform`."""


class Connection(NamedTuple):
    """The dialect of an engine, what authenticates its requests where a key does not, and the parsers of streams."""

    dialect: Dialect
    authenticated: Callable[[Transport], Transport] | None = None
    stream_parsers: Mapping[str, Callable[[int], StreamParser]] = STREAM_PARSERS


def azure(engine: EngineSettings, api: str, clock: Clock) -> Connection:
    """Return the connection of an engine for a model of Azure OpenAI, over one of OpenAI's two APIs."""
    dialect = AzureResponsesDialect() if api == "responses" else AzureChatCompletionsDialect()
    if engine.auth != "entra":
        return Connection(dialect)
    from portico.adapters.engines.credentials.entra import find_token  # noqa: PLC0415 - see above

    credentials = ExpiringCredentials(partial(find_token, clock))
    return Connection(dialect, lambda transport: AuthenticatedTransport(transport, credentials, with_headers))


def bedrock(engine: EngineSettings) -> Connection:
    """Return the connection of an engine for a model of Amazon Bedrock."""
    from portico.adapters.engines.wire.aws_event_stream import AwsEventStreamParser  # noqa: PLC0415 - see above

    dialect, parsers = BedrockDialect(), {"application/vnd.amazon.eventstream": AwsEventStreamParser}
    if engine.api_key.read():
        return Connection(dialect, None, parsers)
    from portico.adapters.engines.credentials.aws import find_credentials, signer  # noqa: PLC0415 - see above

    [region] = engine.model.places
    credentials, sign = ExpiringCredentials(find_credentials), signer(region)
    return Connection(dialect, lambda transport: AuthenticatedTransport(transport, credentials, sign), parsers)


def vertex(engine: EngineSettings, clock: Clock) -> Connection:
    """Return the connection of an engine for a model of Vertex AI."""
    dialect = _vertex_dialect(engine.model)
    if engine.api_key.read():
        return Connection(dialect)
    from portico.adapters.engines.credentials.google import find_token  # noqa: PLC0415 - see above

    credentials = ExpiringCredentials(partial(find_token, clock))
    return Connection(dialect, lambda transport: AuthenticatedTransport(transport, credentials, with_headers))


def _vertex_dialect(url: ModelUrl) -> Dialect:
    project, location = url.places
    if url.model.startswith("gemini-"):
        return VertexGeminiDialect(project, location)
    if url.model.startswith("claude-"):
        return VertexAnthropicDialect(project, location)
    return ChatCompletionsDialect()


def cloud_url(url: ModelUrl) -> str:
    """Return the URL of the server of a model of a cloud."""
    base = SCHEMES[url.scheme].base_url
    for name, place in zip(SCHEMES[url.scheme].places, url.places, strict=True):
        base = base.replace(name, place)
    if url.scheme != "vertex":
        return base
    _project, location = url.places
    return base.replace(f"{location}-aiplatform", _VERTEX_HOSTS.get(location, f"{location}-aiplatform"))


def vertex_path(url: ModelUrl) -> str:
    """Return what Vertex AI has between the server's URL and the paths of a dialect of its own."""
    if url.scheme != "vertex" or url.model.startswith(("gemini-", "claude-")):
        return ""
    project, location = url.places
    return f"/projects/{project}/locations/{location}/endpoints/openapi"
