"""Checks of what a configuration names outside of the service: the database, the issuer of tokens, the collector."""

from functools import partial
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from portico.adapters.stores.factory import check_database, is_writable_file
from portico.adapters.system import SystemClock, SystemEntropy
from portico.domain.failures import AccessFailure, Code, ConfigurationFailure
from portico.settings import Settings

TRACES_SECONDS: Final = 5.0


async def check_storage(settings: Settings) -> str:
    """Return in a few words what the service would find at `storage.url`. Raises: as `open_service`."""
    clock = SystemClock()
    return await check_database(settings.storage.url, clock, SystemEntropy(clock))


async def check_audit(settings: Settings) -> str:
    """Return that the audit log can be written; nothing is written. Raises: ConfigurationFailure (CONFIG_INVALID)."""
    path = Path(settings.audit.file or "")
    try:
        found = is_writable_file(path)
    except OSError as error:
        reason = (error.strerror or "").lower()
        raise ConfigurationFailure(Code.CONFIG_INVALID, f"audit.file: cannot write {path}: {reason}") from error
    return f"{path} found" if found else f"no file {path} yet; the service creates it"


async def check_issuer(settings: Settings) -> str:
    """Return how many keys of the issuer can be used; mode jwt has one.

    Raises: AccessFailure (ACCESS_UNAVAILABLE) with the reason if there are none; ConfigurationFailure.
    """
    from portico.adapters.access.key_set_client import open_key_set_client  # noqa: PLC0415 - only for mode jwt
    from portico.adapters.access.verification_key import KeySetError, read_key_set  # noqa: PLC0415 - see above

    url = settings.auth.jwks_url or ""
    async with open_key_set_client(url, settings.proxy_of_environment(url)) as fetch:
        try:
            count = len(read_key_set(await fetch(), settings.auth.algorithms))
        except KeySetError as error:
            raise AccessFailure(Code.ACCESS_UNAVAILABLE, str(error)) from error
    return "1 key" if count == 1 else f"{count} keys"


async def check_traces(settings: Settings) -> str:
    """Send an empty export to the collector, which has to take it within 5 s.

    Raises: ConfigurationFailure (CONFIG_INVALID) if it does not.
    """
    from opentelemetry.sdk.trace.export import SpanExportResult  # noqa: PLC0415 - only for traces

    from portico.adapters.telemetry.tracing.exporters import Exporter, silence_exporters  # noqa: PLC0415 - see above

    telemetry = settings.telemetry
    endpoint, file = telemetry.otlp_endpoint or "", telemetry.otlp_headers_file
    silence_exporters()
    exporter = Exporter(endpoint, telemetry.otlp_protocol, dict if file is None else file.read)
    result = None
    with anyio.move_on_after(TRACES_SECONDS):
        export = partial(exporter.current().export, ())
        result = await to_thread.run_sync(export, abandon_on_cancel=True)
    exporter.close()
    if result is not SpanExportResult.SUCCESS:
        raise ConfigurationFailure(Code.CONFIG_INVALID, f"{endpoint} does not take spans")
    return "an empty export was taken"
