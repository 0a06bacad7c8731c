"""Conformance of the stored API keys."""

from dataclasses import replace

from portico.adapters.stores.access.api_keys import DatabaseKeys
from portico.domain.access.limits import AccessLimits, Rate
from portico.domain.access.principal import AccessScope, Permissions
from portico.domain.ids import KeyId, TenantId, UserId
from portico.ports.access import StoredKey
from tests.support.keys import api_key, stored
from tests.support.stores import StoreReplica

LIMITED = StoredKey(
    key_id=api_key(2).key_id,
    secret_hash=api_key(2).secret_hash,
    tenant=TenantId("other"),
    user=UserId("bob"),
    permissions=Permissions.of(("can_send_messages", "tool:search*")),
    created_at=1_000.5,
    limits=AccessLimits(Rate(600, 60), Rate(200_000, 60), Rate(1_250_000, 3_600), 4),
    expires_at=2_000.25,
    created_by=api_key(1).key_id,
)


async def test_a_key_is_found_as_it_was_added(here: StoreReplica) -> None:
    keys, plain = DatabaseKeys(here.database), stored(api_key())
    assert await keys.add(plain)
    assert await keys.add(LIMITED)
    assert await keys.find((plain.key_id, KeyId("unknown1"), LIMITED.key_id)) == [plain, LIMITED]
    assert await keys.find(()) == []
    assert list(await keys.all()) == [LIMITED, plain]
    assert list(await keys.all(TenantId("acme"))) == [plain]


async def test_a_public_id_is_given_once(here: StoreReplica) -> None:
    keys = DatabaseKeys(here.database)
    assert await keys.add(LIMITED)
    assert not await keys.add(stored(api_key(2)))
    assert await keys.find((LIMITED.key_id,)) == [LIMITED]


async def test_a_revocation_is_seen_by_other_replicas_and_stays(here: StoreReplica, there: StoreReplica) -> None:
    keys, elsewhere = DatabaseKeys(here.database), DatabaseKeys(there.database)
    await keys.add(LIMITED)
    revoked = await elsewhere.revoke(LIMITED.key_id, 1_500.0)
    assert revoked is not None
    assert revoked.revoked_at == 1_500.0
    assert await keys.find((LIMITED.key_id,)) == [revoked]
    assert await keys.revoke(LIMITED.key_id, 1_600.0) == revoked
    assert await keys.revoke(KeyId("unknown1"), 1_600.0) is None


async def test_pages_go_from_the_newest_key_on_and_stay_in_their_scope(here: StoreReplica) -> None:
    keys, times = DatabaseKeys(here.database), (5.5, 5.5, 5.5, 7.0, 6.0)
    added = [
        replace(stored(api_key(number)), created_at=at, user=UserId("bob" if number % 2 else "ann"))
        for number, at in enumerate(times, 1)
    ]
    for each in (*added, replace(LIMITED, key_id=api_key(9).key_id)):
        assert await keys.add(each)
    newest = sorted(added, key=lambda each: (each.created_at, each.key_id), reverse=True)
    for user, found in ((None, newest), ("ann", [each for each in newest if each.user == "ann"])):
        scope, seen, after = AccessScope(TenantId("acme"), None if user is None else UserId(user)), [], None
        while len(seen) < len(found):
            page = await keys.page(scope, after=after, limit=2)
            seen += page.items
            assert (page.next is None) == (len(seen) == len(found))
            after = page.next
        assert seen == found
    assert (await keys.page(AccessScope(TenantId("none")), limit=2)).items == []


async def test_a_use_is_stored_once_per_interval(here: StoreReplica, there: StoreReplica) -> None:
    keys, elsewhere = DatabaseKeys(here.database), DatabaseKeys(there.database)
    await keys.add(LIMITED)
    used = []
    for at, replica in ((100.0, keys), (159.0, elsewhere), (160.0, elsewhere), (161.0, keys)):
        await replica.mark_used({LIMITED.key_id: at}, interval=60.0)
        used.append((await keys.find((LIMITED.key_id,)))[0].last_used_at)
    assert used == [100.0, 100.0, 160.0, 160.0]
