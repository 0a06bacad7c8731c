"""Key sets: fetched in the background, cached, rotated, and used for a day while the issuer is down."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import orjson
import pytest

from portico.adapters.access.key_set_client import FETCH_S, open_key_set_client
from portico.adapters.access.key_sets import FIRST_RETRY_S, FRESH_S, RETRY_S, STALE_S, WAIT_S, KeySets
from portico.adapters.access.verification_key import MAX_BYTES, KeySetError
from portico.domain.failures import AccessFailure, Code
from portico.ports.runtime import Clock
from tests.support.issuer import SigningKey, ec_key, key_set, rsa_key, running_issuer

OLD, NEW = rsa_key("old"), ec_key("new")


class Source:
    """A source of key sets that a test changes; while `failure` is set, it fails, and it takes `delay` seconds."""

    def __init__(self, *keys: SigningKey) -> None:
        self.keys = keys
        self.failure: str | None = None
        self.delay = 0.0
        self.body: bytes | None = None
        self.fetches = self.at_once = self.most_at_once = 0

    async def fetch(self) -> bytes:
        self.fetches += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await anyio.sleep(self.delay)
        self.at_once -= 1
        if self.failure is not None:
            raise KeySetError(self.failure)
        return key_set(*self.keys) if self.body is None else self.body


@asynccontextmanager
async def key_sets_of(source: Source, clock: Clock, reasons: list[str] | None = None) -> AsyncIterator[KeySets]:
    key_sets = KeySets(source.fetch, ("RS256", "ES256"), clock, (reasons if reasons is not None else []).append)
    async with anyio.create_task_group() as group:
        group.start_soon(key_sets.run)
        yield key_sets
        group.cancel_scope.cancel()


async def refusal(key_sets: KeySets, kid: str = "unknown") -> AccessFailure:
    with pytest.raises(AccessFailure) as caught:
        await key_sets.find(kid, "RS256")
    return caught.value


async def test_a_set_is_fetched_once_and_again_when_it_is_old(clock: Clock) -> None:
    source = Source(OLD)
    async with key_sets_of(source, clock) as key_sets:
        for _ in range(20):
            assert (await key_sets.find("old", "RS256")).kid == "old"
        assert source.fetches == 1
        await clock.sleep(FRESH_S - 1)
        assert source.fetches == 1
        await clock.sleep(2)
        assert source.fetches == 2


async def test_keys_are_rotated_under_load_without_a_refusal(clock: Clock) -> None:
    source = Source(OLD)
    source.delay = 1.0
    async with key_sets_of(source, clock) as key_sets, anyio.create_task_group() as load:

        async def ask(kid: str, algorithm: str) -> None:
            for _ in range(40):
                assert (await key_sets.find(kid, algorithm)).kid == kid
                await clock.sleep(0.1)

        for _ in range(20):
            load.start_soon(ask, "old", "RS256")
        await clock.sleep(2)
        source.keys = (OLD, NEW)
        for _ in range(20):
            load.start_soon(ask, "new", "ES256")
    assert (source.fetches, source.most_at_once) == (2, 1)


async def test_a_flood_of_unknown_keys_reaches_the_issuer_every_thirty_seconds(clock: Clock) -> None:
    source = Source(OLD)
    async with key_sets_of(source, clock) as key_sets:
        await key_sets.find("old", "RS256")
        for second in range(90):
            for number in range(5):
                assert (await refusal(key_sets, f"{second}-{number}")).code is Code.ACCESS_UNAUTHENTICATED
            await clock.sleep(1)
        assert source.fetches == 1 + 90 / RETRY_S


async def test_a_key_that_the_issuer_has_withdrawn_is_refused_after_the_next_fetch(clock: Clock) -> None:
    source = Source(OLD, NEW)
    async with key_sets_of(source, clock) as key_sets:
        await key_sets.find("old", "RS256")
        source.keys = (NEW,)
        await clock.sleep(FRESH_S + 1)
        assert (await refusal(key_sets, "old")).code is Code.ACCESS_UNAUTHENTICATED


async def test_a_set_is_used_for_a_day_while_the_issuer_is_down(clock: Clock) -> None:
    source, reasons = Source(OLD), list[str]()
    async with key_sets_of(source, clock, reasons) as key_sets:
        await key_sets.find("old", "RS256")
        source.failure = "down"
        await clock.sleep(STALE_S - 1)
        await key_sets.find("old", "RS256")
        assert (await refusal(key_sets)).code is Code.ACCESS_UNAUTHENTICATED
        await clock.sleep(2)
        gone = await refusal(key_sets, "old")
        assert (gone.code, gone.status, gone.retryable) == (Code.ACCESS_UNAVAILABLE, 503, True)
        source.failure = None
        await clock.sleep(RETRY_S + 1)
        await key_sets.find("old", "RS256")
    assert reasons == ["down"]


async def test_without_a_set_it_is_503_until_the_issuer_answers(clock: Clock) -> None:
    source = Source(OLD)
    source.failure = "down"
    async with key_sets_of(source, clock) as key_sets:
        for _ in range(3):
            failure = await refusal(key_sets, "old")
            assert failure.code is Code.ACCESS_UNAVAILABLE
            assert failure.retry_after is not None
            await clock.sleep(FIRST_RETRY_S)
        source.failure = None
        await clock.sleep(FIRST_RETRY_S)
        assert (await key_sets.find("old", "RS256")).kid == "old"


async def test_a_slow_issuer_holds_up_no_token_with_a_known_key(clock: Clock) -> None:
    source = Source(OLD)
    async with key_sets_of(source, clock) as key_sets:
        await key_sets.find("old", "RS256")
        source.delay = 3_600.0
        began = clock.monotonic()
        assert (await refusal(key_sets)).code is Code.ACCESS_UNAUTHENTICATED
        assert clock.monotonic() - began <= 2 * WAIT_S
        began = clock.monotonic()
        await key_sets.find("old", "RS256")
        assert clock.monotonic() == began


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"keys": {}}',
        b'{"keys": []}',
        b'{"keys": [{}, 1, null]}',
        b'{"keys": [], "keys": []}',
        b'{"keys": ' + b"[" * 1_000 + b"]" * 1_000 + b"}",
        orjson.dumps({"keys": [{"kty": "oct", "k": "AAAA", "kid": "old"}]}),
        b"\xff\xfe",
    ],
)
async def test_garbage_replaces_no_set(clock: Clock, body: bytes) -> None:
    source, reasons = Source(OLD), list[str]()
    async with key_sets_of(source, clock, reasons) as key_sets:
        await key_sets.find("old", "RS256")
        source.body = body
        await clock.sleep(FRESH_S + RETRY_S + 1)
        assert source.fetches > 1
        assert (await key_sets.find("old", "RS256")).kid == "old"
    assert len(reasons) == 1
    assert not body or body.decode("latin-1") not in reasons[0]


async def test_a_key_set_is_fetched_over_http() -> None:
    async with running_issuer(OLD) as issuer, open_key_set_client(issuer.url, None) as fetch:
        assert await fetch() == key_set(OLD)
    assert b"accept-encoding: identity" in issuer.requests[0].lower()
    assert b"authorization" not in issuer.requests[0].lower()


@pytest.mark.parametrize("status", [204, 301, 302, 307, 401, 404, 500, 503])
async def test_no_redirect_is_followed_and_no_other_status_accepted(status: int) -> None:
    async with running_issuer(OLD) as target, running_issuer(OLD) as issuer:
        issuer.status, issuer.headers = status, (f"Location: {target.url}",)
        async with open_key_set_client(issuer.url, None) as fetch:
            with pytest.raises(KeySetError, match=str(status)):
                await fetch()
    assert target.requests == []


async def test_a_key_set_that_is_too_large_is_refused() -> None:
    async with running_issuer(OLD) as issuer, open_key_set_client(issuer.url, None) as fetch:
        issuer.body = b" " * (MAX_BYTES - len(key_set(OLD))) + key_set(OLD)
        assert len(await fetch()) == MAX_BYTES
        issuer.body += b" "
        with pytest.raises(KeySetError, match="larger"):
            await fetch()


async def test_an_issuer_that_does_not_answer_is_given_up(clock: Clock) -> None:
    async with running_issuer(OLD) as issuer, open_key_set_client(issuer.url, None) as fetch:
        issuer.delay, began = 3_600.0, clock.monotonic()
        with pytest.raises(KeySetError):
            await fetch()
        assert clock.monotonic() - began <= FETCH_S + 1
    async with open_key_set_client(issuer.url, None) as fetch:
        with pytest.raises(KeySetError, match="cannot be reached"):
            await fetch()
