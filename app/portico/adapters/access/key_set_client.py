"""Fetch of a key set over HTTP: no redirects, no environment, limited in size and time."""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Final

import anyio
from httpx2 import AsyncClient, HTTPError, InvalidURL

from portico.adapters.access.key_sets import Fetch
from portico.adapters.access.verification_key import MAX_BYTES, KeySetError

FETCH_S: Final = 5.0
_OK: Final = 200
_HEADERS: Mapping[str, str] = MappingProxyType(
    {"accept": "application/json", "accept-encoding": "identity", "user-agent": "portico"}
)


@asynccontextmanager
async def open_key_set_client(url: str, proxy: str | None) -> AsyncIterator[Fetch]:
    """Yield the fetch of the key set at that URL, through the proxy if there is one."""
    context = ssl.create_default_context()
    async with AsyncClient(
        follow_redirects=False, trust_env=False, verify=context, proxy=proxy, timeout=FETCH_S, headers=dict(_HEADERS)
    ) as client:

        async def fetch() -> bytes:
            try:
                with anyio.fail_after(FETCH_S):
                    return await _read(client, url)
            except TimeoutError:
                raise KeySetError("the issuer did not answer in time") from None
            except (HTTPError, InvalidURL) as error:
                raise KeySetError(f"the issuer cannot be reached: {type(error).__name__}") from None

        yield fetch


async def _read(client: AsyncClient, url: str) -> bytes:
    body = bytearray()
    async with client.stream("GET", url) as response:
        if response.status_code != _OK:
            raise KeySetError(f"the issuer answered with status {response.status_code}")
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_BYTES:
                raise KeySetError(f"the key set is larger than {MAX_BYTES} bytes")
    return bytes(body)
