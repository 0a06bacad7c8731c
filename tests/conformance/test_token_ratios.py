"""Conformance of stored corrections of the token estimate, over both databases."""

from portico.adapters.stores.access.token_ratios import DatabaseTokenRatios
from portico.domain.ids import TenantId
from portico.ports.model import TokenRatio
from tests.support.stores import StoreReplica

RED, BLUE = TenantId("red"), TenantId("blue")


async def test_the_ratios_that_were_learned_last_are_loaded_by_the_next_process(here: StoreReplica) -> None:
    stored = DatabaseTokenRatios(here.database)
    assert await stored.load(10) == []
    await stored.write([TokenRatio(RED, "m", 1.5), TokenRatio(BLUE, "m", 0.5)], 10.0)
    await stored.write([TokenRatio(RED, "n", 1.1)], 20.0)
    await stored.write([TokenRatio(BLUE, "m", 0.75)], 30.0)
    assert await DatabaseTokenRatios(here.database).load(10) == [
        *(TokenRatio(RED, "m", 1.5), TokenRatio(RED, "n", 1.1), TokenRatio(BLUE, "m", 0.75))
    ]
    assert await stored.load(1) == [TokenRatio(BLUE, "m", 0.75)]


async def test_ratios_that_were_not_learned_again_are_deleted(here: StoreReplica) -> None:
    stored = DatabaseTokenRatios(here.database)
    await stored.write([TokenRatio(RED, "m", 1.5)], 10.0)
    await stored.write([TokenRatio(RED, "n", 1.5)], 20.0)
    await stored.purge(20.0)
    assert await stored.load(10) == [TokenRatio(RED, "n", 1.5)]
