"""Stores of the facade over one database."""

from portico.adapters.stores.database import Database
from portico.adapters.stores.erasure import DatabaseRecords
from portico.adapters.stores.executions.store import DatabaseExecutionStore
from portico.adapters.stores.grants import DatabaseGrants
from portico.orchestration.facade import FacadeStores
from portico.orchestration.keys import KeyParts
from portico.orchestration.memory import MemoryParts
from portico.orchestration.webhooks import WebhookParts


def facade_stores(
    database: Database,
    executions: DatabaseExecutionStore,
    memory: MemoryParts,
    keys: KeyParts,
    webhooks: WebhookParts,
) -> FacadeStores:
    """Return the stores that the facade reads and changes."""
    return FacadeStores(executions, DatabaseRecords(database), memory, keys, webhooks, DatabaseGrants(database))
