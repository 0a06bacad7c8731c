"""Memory in the composition root: its stores, the embedder, and the periodic jobs."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from anyio.abc import TaskGroup

from portico.adapters.runners.maintenance import run_maintenance
from portico.adapters.stores.memory.documents import DatabaseDocuments, DatabaseEmbeddingQueue
from portico.adapters.stores.memory.index import DatabaseMemoryIndex
from portico.adapters.stores.sqlite import SqliteDatabase
from portico.adapters.thread_pool import WorkerThread
from portico.bootstrap.engines import engine_profile
from portico.capabilities.memory.document_embedder import DocumentEmbedder
from portico.capabilities.memory.embedder import Embedder, EmbeddingAccounts, EngineEmbedder, HashedNgramEmbedder
from portico.capabilities.memory.search import HybridSearch
from portico.capabilities.memory.vector_cache import VectorCache
from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.value import value
from portico.orchestration.memory import MemoryParts
from portico.ports.memory import EmbeddingEngine
from portico.ports.model import ConfiguredEngine
from portico.ports.runtime import Clock, Entropy
from portico.settings import Settings

if TYPE_CHECKING:
    from portico.adapters.stores.postgres import PostgresDatabase


@value
class MemoryResources:
    """Everything that the memory shares with the rest of the service; `on_error` gets the errors of its jobs."""

    clock: Clock
    entropy: Entropy
    accounts: EmbeddingAccounts
    on_error: Callable[[Exception], None]


def start_memory(
    database: "SqliteDatabase | PostgresDatabase",
    settings: Settings,
    engines: Mapping[str, ConfiguredEngine],
    resources: MemoryResources,
    group: TaskGroup,
) -> MemoryParts:
    """Return the memory, whose jobs run in the group. Raises: ConfigurationFailure."""
    documents, index = DatabaseDocuments(database), DatabaseMemoryIndex(database)
    # A large document takes a second to be cut and embedded, for which no search should have to wait.
    writer, searcher = WorkerThread(), WorkerThread()
    embedder, query_embedder = (
        build_embedder(settings, engines, resources.accounts, thread) for thread in (writer, searcher)
    )
    parts = MemoryParts(
        documents,
        DocumentEmbedder(DatabaseEmbeddingQueue(database), embedder, resources.clock, resources.entropy),
        HybridSearch(index, query_embedder, VectorCache(index, embedder.space, searcher), searcher),
        embedder.space,
        writer,
        settings.limits.memory_bytes,
        query_embedder if isinstance(query_embedder, EngineEmbedder) else None,
    )
    jobs = [parts.embedder.embed_due]
    if isinstance(database, SqliteDatabase):
        jobs.append(documents.merge)
    group.start_soon(run_maintenance, resources.clock, jobs, resources.on_error)
    return parts


def check_embedder(settings: Settings) -> None:
    """Raise ConfigurationFailure (CONFIG_INVALID) if the configured embedder has no embeddings."""
    name = settings.memory.embedder
    if name is not None and not engine_profile(name, settings).capabilities.embeddings:
        raise _without_embeddings(name)


def build_embedder(
    settings: Settings, engines: Mapping[str, ConfiguredEngine], accounts: EmbeddingAccounts, thread_pool: WorkerThread
) -> Embedder:
    """Return the configured embedder. Raises: ConfigurationFailure (CONFIG_INVALID)."""
    name, dimension = settings.memory.embedder, settings.memory.dimensions
    if name is None:
        return HashedNgramEmbedder(thread_pool, dimension)
    engine: object = engines[name]
    if isinstance(engine, EmbeddingEngine):
        return EngineEmbedder(engine, accounts, dimension)
    raise _without_embeddings(name)


def _without_embeddings(name: str) -> ConfigurationFailure:
    return ConfigurationFailure(Code.CONFIG_INVALID, f"memory.embedder: the engine {name} has no embeddings")
