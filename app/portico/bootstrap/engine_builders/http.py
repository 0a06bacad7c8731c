"""Builder of engines that ask a server over HTTP."""

from collections.abc import Callable, Mapping
from ssl import SSLContext

from portico.adapters.engines.dialect import Dialect
from portico.adapters.engines.http.aiohttp_transport import AiohttpTransport, Route
from portico.adapters.engines.http.engine import STREAM_PARSERS, Endpoint, HttpEngine, ReplyLimits, StreamParser
from portico.adapters.engines.http.tls import tls_context
from portico.adapters.engines.http.transport import Transport
from portico.bootstrap.engine_builders.build import EngineBuild
from portico.bootstrap.engine_urls import server_url
from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.value import replace
from portico.ports.model import Engine


def http_engine(
    spec: EngineBuild,
    dialect: Dialect,
    authenticated: Callable[[Transport], Transport] | None = None,
    stream_parsers: Mapping[str, Callable[[int], StreamParser]] = STREAM_PARSERS,
) -> Engine:
    """Return the engine of a server that speaks the dialect. Raises: ConfigurationFailure (CONFIG_INVALID)."""
    base_url = server_url(spec.engine)
    limits = ReplyLimits(spec.settings.limits.upstream_bytes, spec.settings.limits.upstream_line_bytes)
    headers = {name: value.read() or "" for name, value in spec.engine.headers.items()}
    endpoint = Endpoint(base_url, spec.engine.api_key.read, spec.timeouts, limits, headers, stream_parsers)
    proxy = spec.settings.proxy_for(spec.engine, base_url)
    route = Route(spec.timeouts.connect_seconds, proxy, _tls(spec))
    transport: Transport = AiohttpTransport(spec.resources.session, route)
    return HttpEngine(
        replace(spec.profile, binds_kept=dialect.binds_kept),
        dialect,
        endpoint=endpoint,
        transport=transport if authenticated is None else authenticated(transport),
        clock=spec.resources.clock,
        on_unknown_frames=spec.resources.on_unknown_frames,
        on_used_up=None if spec.limits is None else spec.limits.report,
    )


def _tls(spec: EngineBuild) -> SSLContext | None:
    if spec.engine.ca_file is None:
        return None
    try:
        return tls_context(spec.engine.ca_file)
    except OSError as error:
        name, deployment = spec.profile.name, spec.profile.deployment
        key = f"engines.{name}" if deployment is None else f"engines.{name}.deployments.{deployment}"
        raise ConfigurationFailure(
            Code.CONFIG_INVALID, f"{key}.ca_file: must be a file of certificates in PEM format"
        ) from error
