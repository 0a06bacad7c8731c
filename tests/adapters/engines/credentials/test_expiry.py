"""Credentials that expire: one search at a time, early, in a thread; the old ones serve until they expire."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from threading import Event, current_thread, main_thread

import anyio
import pytest

from portico.adapters.engines.credentials.expiry import (
    AuthenticatedTransport,
    ExpiringCredentials,
    Found,
    with_headers,
)
from portico.adapters.engines.http.transport import HttpRequest, HttpResponse
from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import EngineError


class Vault:
    """Gives credentials out: each search takes the next of `expirations`, in seconds, or raises it."""

    def __init__(self, *expirations: float | Exception) -> None:
        self.now = 0.0
        self.searches = 0
        self.may_go_on = Event()
        self.may_go_on.set()
        self._expirations = list(expirations)

    def find(self) -> Found[str]:
        assert current_thread() is not main_thread()
        self.searches += 1
        assert self.may_go_on.wait(10)
        expires = self._expirations.pop(0)
        if isinstance(expires, Exception):
            raise expires
        return Found(f"token {self.searches}", lambda seconds: self.now + seconds >= expires)


async def settled(vault: Vault, searches: int) -> None:
    """Return when that many searches have begun and what they found has arrived."""
    while vault.searches < searches:
        await anyio.lowlevel.checkpoint()
    for _ in range(100):
        await anyio.lowlevel.checkpoint()


async def test_one_search_serves_all_who_wait_and_all_who_come_later() -> None:
    vault, found = Vault(3600), list[str]()
    credentials = ExpiringCredentials(vault.find)

    async def ask() -> None:
        found.append(await credentials.current())

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(ask)
    await ask()
    assert (set(found), len(found), vault.searches) == ({"token 1"}, 21, 1)


async def test_the_old_ones_serve_while_new_ones_are_sought_300_s_early() -> None:
    vault = Vault(3600, 7200)
    credentials = ExpiringCredentials(vault.find)
    await credentials.current()
    vault.now = 3299
    assert (await credentials.current(), vault.searches) == ("token 1", 1)
    vault.now = 3300
    vault.may_go_on.clear()
    assert [await credentials.current() for _ in range(5)] == ["token 1"] * 5
    vault.may_go_on.set()
    while await credentials.current() == "token 1":
        await anyio.lowlevel.checkpoint()
    assert (await credentials.current(), vault.searches) == ("token 2", 2)


async def test_a_search_that_fails_leaves_the_old_ones_until_they_expire() -> None:
    vault = Vault(400, OSError("host 10.0.0.1"), OSError("host 10.0.0.1"), 9000)
    credentials = ExpiringCredentials(vault.find)
    await credentials.current()
    vault.now = 200
    assert await credentials.current() == "token 1"
    await settled(vault, 2)
    vault.now = 400
    with pytest.raises(EngineError) as caught:
        await credentials.current()
    assert caught.value.reason is AttemptFailureReason.CREDENTIALS
    assert caught.value.message == "no credentials were found in the environment (OSError)"
    assert await credentials.current() == "token 4"


async def test_found_credentials_that_have_expired_are_none() -> None:
    with pytest.raises(EngineError, match="they have expired"):
        await ExpiringCredentials(Vault(0).find).current()


async def test_a_caller_who_leaves_does_not_stop_the_search_for_others() -> None:
    vault = Vault(3600)
    credentials = ExpiringCredentials(vault.find)
    vault.may_go_on.clear()
    with anyio.move_on_after(0):
        await credentials.current()
    vault.may_go_on.set()
    assert (await credentials.current(), vault.searches) == ("token 1", 1)


class Answer:
    """Implements `HttpResponse` with a status and no body."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        self.status = status
        self.headers = headers
        self.is_complete = True

    async def read(self) -> bytes:
        return b""


class Server:
    """Implements `Transport`: answers in turn, and keeps what came."""

    def __init__(self, *answers: tuple[int, dict[str, str]]) -> None:
        self._answers = list(answers)
        self.requests: list[HttpRequest] = []

    @asynccontextmanager
    async def exchange(self, request: HttpRequest) -> AsyncIterator[HttpResponse]:
        self.requests.append(request)
        yield Answer(*self._answers.pop(0))


def authorized(request: HttpRequest, token: str) -> HttpRequest:
    return with_headers(request, {"Authorization": token})


async def tokens(vault: Vault, answers: Sequence[tuple[int, dict[str, str]]]) -> list[str]:
    server = Server(*answers)
    transport = AuthenticatedTransport(server, ExpiringCredentials(vault.find), authorized)
    for _ in answers:
        async with transport.exchange(HttpRequest("POST", "http://127.0.0.1", {"Content-Type": "a/b"}, b"{}")):
            pass
    assert all(request.headers["Content-Type"] == "a/b" and request.body == b"{}" for request in server.requests)
    return [request.headers["Authorization"] for request in server.requests]


@pytest.mark.parametrize(
    ("status", "headers", "sent"),
    [
        (200, {}, ["token 1", "token 1"]),
        (403, {}, ["token 1", "token 1"]),
        (403, {"x-amzn-errortype": "AccessDeniedException"}, ["token 1", "token 1"]),
        (401, {}, ["token 1", "token 2"]),
        (403, {"x-amzn-errortype": "ExpiredTokenException:http://internal"}, ["token 1", "token 2"]),
        (403, {"x-amzn-errortype": "UnrecognizedClientException"}, ["token 1", "token 2"]),
    ],
)
async def test_credentials_that_the_provider_does_not_know_are_sought_anew(
    status: int, headers: dict[str, str], sent: list[str]
) -> None:
    assert await tokens(Vault(3600, 3600), [(status, headers), (200, {})]) == sent


def test_a_configured_header_replaces_that_of_the_credentials() -> None:
    request = HttpRequest("GET", "http://127.0.0.1", {"authorization": "mine"})
    assert with_headers(request, {"Authorization": "theirs", "x-goog-user-project": "p"}).headers == {
        "authorization": "mine",
        "x-goog-user-project": "p",
    }
