"""Stored corrections of the token estimate."""

from collections.abc import Sequence

from sqlalchemy import Insert, bindparam, delete, select

from portico.adapters.stores.database import Database, Insertion, Statement, execute, execute_each
from portico.adapters.stores.schema import token_ratios
from portico.domain.ids import TenantId
from portico.ports.model import TokenRatio


class DatabaseTokenRatios:
    """Ratios by tenant and model, which replicas share when they start. Every method raises StorageFailure."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self, limit: int) -> list[TokenRatio]:
        """Return at most so many ratios: those that were learned last, in the order in which they were."""
        rows = await self._database.read(lambda: execute(_LATEST, {"most": limit}))
        return [TokenRatio(TenantId(row[0]), row[1], float(row[2])) for row in reversed(rows)]

    async def write(self, ratios: Sequence[TokenRatio], now: float) -> None:
        """Store ratios in place of earlier ones."""
        rows = [{**each._asdict(), "learned_at": now} for each in ratios]
        await self._database.write(lambda: execute_each(_REPLACE, rows), idempotent=True)

    async def purge(self, before: float) -> None:
        """Delete what was learned before that time, in Unix seconds."""
        await self._database.write(lambda: execute(_PURGE, {"before": before}), idempotent=True)


def _replace(insert: Insertion) -> Insert:
    names = ("tenant", "model", "ratio", "learned_at")
    return (
        insert(token_ratios)
        .values({name: bindparam(name) for name in names})
        .on_conflict_do_update(index_elements=["tenant", "model"], set_={name: bindparam(name) for name in names[2:]})
    )


_LATEST = Statement(
    lambda _: (
        select(token_ratios.c.tenant, token_ratios.c.model, token_ratios.c.ratio)
        .order_by(token_ratios.c.learned_at.desc(), token_ratios.c.tenant, token_ratios.c.model)
        .limit(bindparam("most"))
    )
)
_REPLACE = Statement(_replace)
_PURGE = Statement(lambda _: delete(token_ratios).where(token_ratios.c.learned_at < bindparam("before")))
