"""Cost of a search of the memory: 20,000 chunks with vectors of 256 numbers, on SQLite, which are in memory already."""

import random
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from string import ascii_lowercase
from tempfile import TemporaryDirectory

from bench.scenarios import BenchEnvironment, Numbers
from portico.adapters.stores.memory.documents import DatabaseDocuments, DatabaseEmbeddingQueue
from portico.adapters.stores.memory.index import DatabaseMemoryIndex
from portico.adapters.stores.sqlite import open_sqlite
from portico.adapters.system import SystemClock, SystemEntropy
from portico.adapters.thread_pool import WorkerThread
from portico.capabilities.memory.chunks import index_chunks
from portico.capabilities.memory.document_embedder import DocumentEmbedder
from portico.capabilities.memory.embedder import HashedNgramEmbedder
from portico.capabilities.memory.search import HybridSearch
from portico.capabilities.memory.vector_cache import VectorCache
from portico.domain.access.principal import LOCAL
from portico.domain.ids import DocumentId
from portico.domain.memory import private_scope
from portico.ports.memory import DocumentKey, NewDocument

DOCUMENTS, WORDS_PER_DOCUMENT, VOCABULARY = 20, 158_000, 30_000
DIMENSION = 256
SEARCHES, WORDS_PER_QUERY = 60, 8
EMBEDDING_SECONDS = 60.0


async def memory(_bench: BenchEnvironment) -> Numbers:
    """Measure the CPU of a search by words and vectors, and the time that it takes to cut a document of 1 MB."""
    chance = random.Random(1)
    words = ["".join(chance.choices(ascii_lowercase, k=chance.randint(2, 10))) for _ in range(VOCABULARY)]
    weights = [1 / (rank + 2) for rank in range(VOCABULARY)]
    with TemporaryDirectory() as folder:
        async with open_sqlite(Path(folder) / "portico.db") as database:
            clock, documents = SystemClock(), DatabaseDocuments(database)
            index, pool = DatabaseMemoryIndex(database), WorkerThread()
            embedder = HashedNgramEmbedder(pool, DIMENSION)
            worker = DocumentEmbedder(DatabaseEmbeddingQueue(database), embedder, clock, SystemEntropy(clock))
            cut_ms = []
            for number in range(DOCUMENTS):
                text = _text(chance.choices(words, weights, k=WORDS_PER_DOCUMENT))
                began_at = time.process_time()
                document = _document(f"d{number}", text)
                cut_ms.append((time.process_time() - began_at) * 1e3)
                await documents.put(document, max_bytes=None)
                await worker.embed(document.key, LOCAL, EMBEDDING_SECONDS)
            search = HybridSearch(index, embedder, VectorCache(index, embedder.space, pool), pool)
            queries = [" ".join(chance.choices(words, weights, k=WORDS_PER_QUERY)) for _ in range(SEARCHES)]
            await search.search(LOCAL, queries[0], max_chunks=5)
            spent = []
            for query in queries:
                began_at = time.process_time()
                await search.search(LOCAL, query, max_chunks=5)
                spent.append((time.process_time() - began_at) * 1e3)
    return {"memory_search_ms": median(spent), "memory_chunks_ms": median(cut_ms)}


def _text(words: Sequence[str]) -> str:
    return " ".join(f"{word}." if place % 17 == 0 else word for place, word in enumerate(words))


def _document(name: str, text: str) -> NewDocument:
    key = DocumentKey(LOCAL.tenant, LOCAL.user, DocumentId(name), name)
    chunks = index_chunks(text, private_scope(LOCAL.tenant, LOCAL.user))
    return NewDocument(key, text, {}, False, name, chunks, 0.0, 0.0, None)
