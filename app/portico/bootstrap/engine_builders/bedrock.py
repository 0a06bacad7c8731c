"""Builder of engines for models of Amazon Bedrock."""

from portico.adapters.engines.bedrock.dialect import BedrockDialect
from portico.adapters.engines.credentials.expiry import AuthenticatedTransport, ExpiringCredentials
from portico.bootstrap.engine_builders.build import EngineBuild
from portico.bootstrap.engine_builders.http import http_engine
from portico.ports.model import Engine


def build(spec: EngineBuild) -> Engine:
    from portico.adapters.engines.wire.aws_event_stream import AwsEventStreamParser  # noqa: PLC0415 - an extra

    dialect, parsers = BedrockDialect(), {"application/vnd.amazon.eventstream": AwsEventStreamParser}
    if spec.engine.api_key.read():
        return http_engine(spec, dialect, None, parsers)
    from portico.adapters.engines.credentials.aws import find_credentials, signer  # noqa: PLC0415 - an extra

    [region] = spec.engine.model.places
    credentials, sign = ExpiringCredentials(find_credentials), signer(region)
    return http_engine(spec, dialect, lambda transport: AuthenticatedTransport(transport, credentials, sign), parsers)
