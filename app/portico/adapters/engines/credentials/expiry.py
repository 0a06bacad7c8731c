"""Credentials that expire: found in a thread, sought again early, and one search at a time.

They are sought when the first request needs them, so that the service starts without. A search that begins
`EARLY_SECONDS` before they expire delays no request, since the old ones serve until then.
"""

from asyncio import Future, get_running_loop
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Generic, NamedTuple, TypeVar

from anyio import Event

from portico.adapters.engines.http.transport import HttpRequest, HttpResponse, Transport
from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import EngineError

T = TypeVar("T")
EARLY_SECONDS: Final = 300.0
_UNAUTHORIZED: Final = 401
_NOT_VALID_AT_AWS: Final = ("ExpiredToken", "UnrecognizedClient")
"""Beginnings of the errors with which AWS refuses credentials, with status 403."""


class Found(NamedTuple, Generic[T]):
    """Credentials, and whether they expire within that many seconds."""

    credentials: T
    expires_within: Callable[[float], bool]


class ExpiringCredentials(Generic[T]):
    """Credentials of one engine. `find` seeks them in a thread; any exception of it means that there are none."""

    def __init__(self, find: Callable[[], Found[T]]) -> None:
        self._find = find
        self._found: Found[T] | None = None
        self._search: Event | None = None
        self._failure = ""

    async def current(self) -> T:
        """Return credentials that have not expired. Raises: EngineError (credentials) if there are none."""
        found = self._found
        if found is None or found.expires_within(EARLY_SECONDS):
            search = self._search or self._start_search()
            if found is None or found.expires_within(0):
                await search.wait()
                found = self._found
        if found is None or found.expires_within(0):
            message = f"no credentials were found in the environment ({self._failure or 'they have expired'})"
            raise EngineError(AttemptFailureReason.CREDENTIALS, message)
        return found.credentials

    def forget(self, credentials: T) -> None:
        """Seek others for the next request, as the provider has refused these."""
        if self._found is not None and self._found.credentials is credentials:
            self._found = None

    def _start_search(self) -> Event:
        self._search = Event()
        get_running_loop().run_in_executor(None, self._find).add_done_callback(self._end_search)
        return self._search

    def _end_search(self, search: Future[Found[T]]) -> None:
        error = None if search.cancelled() else search.exception()
        self._failure = "" if error is None else type(error).__name__
        if error is None and not search.cancelled():
            self._found = search.result()
        ended, self._search = self._search, None
        if ended is not None:
            ended.set()


class AuthenticatedTransport(Generic[T]):
    """Implements `Transport`: authenticates each request with the current credentials and sends it with another one.

    `authenticate` returns the request with what proves the credentials.
    """

    def __init__(
        self,
        transport: Transport,
        credentials: ExpiringCredentials[T],
        authenticate: Callable[[HttpRequest, T], HttpRequest],
    ) -> None:
        self._transport = transport
        self._credentials = credentials
        self._authenticate = authenticate

    @asynccontextmanager
    async def exchange(self, request: HttpRequest) -> AsyncIterator[HttpResponse]:
        credentials = await self._credentials.current()
        async with self._transport.exchange(self._authenticate(request, credentials)) as response:
            error = response.headers.get("x-amzn-errortype", "")
            if response.status == _UNAUTHORIZED or error.startswith(_NOT_VALID_AT_AWS):
                self._credentials.forget(credentials)
            yield response


def with_headers(request: HttpRequest, headers: dict[str, str]) -> HttpRequest:
    """Return the request with these headers beside its own, which come first: the configuration may replace them."""
    own = {name.lower() for name in request.headers}
    added = {name: value for name, value in headers.items() if name.lower() not in own}
    return HttpRequest(request.method, request.url, {**request.headers, **added}, request.body)
