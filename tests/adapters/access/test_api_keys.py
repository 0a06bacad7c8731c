"""Authentication by API key: the cache, revocation, expiry, and a database that is down."""

from pathlib import Path

import pytest

from portico.adapters.access.api_keys import MAX_AGE_S, USE_INTERVAL_S, ApiKeys
from portico.adapters.access.authenticators import BearerAuthenticator, NoAuthentication
from portico.adapters.access.bootstrap_key import CHECK_INTERVAL_S, BootstrapKey
from portico.domain.access.api_key import ApiKey
from portico.domain.access.principal import LOCAL, Principal
from portico.domain.failures import AccessFailure, Code, StorageFailure
from portico.domain.ids import KeyId, TenantId, UserId
from portico.ports.runtime import Clock
from tests.support.keys import MemoryKeys, api_key, stored

KEY = api_key()


async def refused(keys: ApiKeys, key: ApiKey) -> str:
    with pytest.raises(AccessFailure) as caught:
        await keys.authenticate(key)
    assert caught.value.code is Code.ACCESS_UNAUTHENTICATED
    assert key.secret not in str(caught.value)
    return caught.value.message


def test_a_key_has_a_public_and_a_secret_part() -> None:
    assert ApiKey.parse(KEY.reveal()) == KEY
    assert KEY.secret not in repr(KEY)
    assert len(KEY.reveal()) == len("ptk_") + 8 + 1 + 43


@pytest.mark.parametrize(
    "text", ["", "ptk_", KEY.reveal()[:-1], KEY.reveal() + "=", KEY.reveal() + "\n", "ptk_a b45678_" + "s" * 43]
)
def test_any_other_form_is_no_key(text: str) -> None:
    assert ApiKey.parse(text) is None


async def test_a_stored_key_is_a_principal(clock: Clock) -> None:
    store = MemoryKeys(stored(KEY, expires_at=clock.now() + 60))
    principal = await ApiKeys(store, clock).authenticate(KEY)
    assert (principal.tenant, principal.user, principal.key_id) == ("acme", "ann", KEY.key_id)
    assert principal.expires_at == clock.now() + 60


async def test_unknown_ids_and_wrong_secrets_are_refused_alike_and_never_remembered(clock: Clock) -> None:
    store = MemoryKeys(stored(KEY))
    keys = ApiKeys(store, clock)
    wrong = ApiKey(KEY.key_id, "x" * 43)
    unknown = api_key(2)
    assert await refused(keys, wrong) == await refused(keys, unknown)
    await store.add(stored(unknown))
    assert (await keys.authenticate(unknown)).key_id == unknown.key_id
    assert (await keys.authenticate(KEY)).key_id == KEY.key_id
    reads = store.reads
    await refused(keys, wrong)
    assert store.reads == reads


async def test_a_result_is_used_for_five_seconds_and_a_revocation_holds_then(clock: Clock) -> None:
    store = MemoryKeys(stored(KEY))
    keys = ApiKeys(store, clock)
    await keys.authenticate(KEY)
    await store.revoke(KEY.key_id, clock.now())
    await clock.sleep(MAX_AGE_S - 0.1)
    await keys.authenticate(KEY)
    assert store.reads == 1
    await clock.sleep(0.1)
    await refused(keys, KEY)


async def test_keys_in_use_are_read_again_in_the_background(clock: Clock) -> None:
    store = MemoryKeys(stored(KEY))
    keys = ApiKeys(store, clock)
    await keys.authenticate(KEY)
    for _ in range(30):
        before = store.reads
        await keys.authenticate(KEY)
        assert store.reads == before
        await keys.refresh()
        await clock.sleep(1.0)
    assert 10 <= store.reads <= 16


async def test_without_a_database_a_result_lives_five_seconds_and_then_it_is_a_503(clock: Clock) -> None:
    store = MemoryKeys(stored(KEY))
    keys = ApiKeys(store, clock)
    await keys.authenticate(KEY)
    store.is_down = True
    await clock.sleep(MAX_AGE_S - 0.1)
    await keys.authenticate(KEY)
    with pytest.raises(StorageFailure):
        await keys.refresh()
    await clock.sleep(0.1)
    with pytest.raises(StorageFailure) as caught:
        await keys.authenticate(KEY)
    assert caught.value.status == 503
    store.is_down = False
    await keys.authenticate(KEY)


async def test_a_key_expires_while_it_is_in_memory(clock: Clock) -> None:
    keys = ApiKeys(MemoryKeys(stored(KEY, expires_at=clock.now() + 2)), clock)
    principal = await keys.authenticate(KEY)
    assert await keys.is_current(principal.key_id or KeyId(""))
    await clock.sleep(2)
    await refused(keys, KEY)
    assert not await keys.is_current(KEY.key_id)


async def test_the_last_use_is_stored_at_most_once_a_minute(clock: Clock) -> None:
    store = MemoryKeys(stored(KEY))
    keys = ApiKeys(store, clock)
    began = clock.now()
    for _ in range(int(2 * USE_INTERVAL_S)):
        await keys.authenticate(KEY)
        await keys.refresh()
        await clock.sleep(1.0)
    assert [each[KEY.key_id] - began for each in store.uses] == [0.0, USE_INTERVAL_S]


async def test_the_number_of_keys_in_memory_is_bounded(clock: Clock) -> None:
    several = [api_key(number) for number in range(1, 6)]
    store = MemoryKeys(*map(stored, several))
    keys = ApiKeys(store, clock, cache_size=3)
    for key in several:
        await keys.authenticate(key)
    assert store.reads == 5
    await keys.authenticate(several[-1])
    assert store.reads == 5
    await keys.authenticate(several[0])
    assert store.reads == 6


async def test_the_bootstrap_key_is_valid_while_it_stands_in_its_file(clock: Clock, tmp_path: Path) -> None:
    file, store = tmp_path / "key", MemoryKeys()
    file.write_text(KEY.reveal() + "\n")
    keys = ApiKeys(store, clock, BootstrapKey(file, TenantId("acme"), UserId("root"), clock))
    assert (await keys.authenticate(KEY)).user == "root"
    assert store.reads == 0
    other = api_key(2)
    file.write_text(other.reveal())
    assert (await keys.authenticate(other)).user == "root"
    await refused(keys, KEY)
    file.unlink()
    await clock.sleep(CHECK_INTERVAL_S)
    await refused(keys, other)
    assert not await keys.is_current(other.key_id)
    file.write_text("garbage")
    await refused(keys, other)
    file.write_text(other.reveal())
    assert (await keys.authenticate(other)).user == "root"


async def test_a_given_bootstrap_key_is_valid_without_a_database(clock: Clock) -> None:
    store = MemoryKeys()
    keys = ApiKeys(store, clock, BootstrapKey(KEY, TenantId("acme"), UserId("root"), clock))
    await clock.sleep(CHECK_INTERVAL_S)
    assert (await keys.authenticate(KEY)).tenant == "acme"
    assert store.reads == 0
    await refused(keys, api_key(2))


async def test_without_authentication_every_caller_is_the_local_one() -> None:
    for credentials in (None, "anything", KEY.reveal()):
        assert await NoAuthentication().authenticate(credentials) is LOCAL


@pytest.mark.parametrize("credentials", [None, "", "secret", "a.b.c", "ptk_short", "ptk_" + "é" * 52])
async def test_with_keys_nothing_else_is_taken(clock: Clock, credentials: str | None) -> None:
    authenticator = BearerAuthenticator(clock, ApiKeys(MemoryKeys(), clock))
    with pytest.raises(AccessFailure) as caught:
        await authenticator.authenticate(credentials)
    assert caught.value.status == 401
    assert not credentials or credentials not in caught.value.message


async def test_a_token_without_a_key_is_current_until_it_expires(clock: Clock) -> None:
    authenticator = BearerAuthenticator(clock, ApiKeys(MemoryKeys(), clock))
    principal = Principal(TenantId("acme"), UserId("ann"), expires_at=clock.now() + 5)
    assert await authenticator.is_current(principal)
    await clock.sleep(5)
    assert not await authenticator.is_current(principal)
