"""Conformance of the stored memory: documents, their index and vectors, and the queue of those without vectors."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import pytest

from portico.capabilities.memory.embedder import EmbeddedTexts, EmbeddingError
from portico.capabilities.memory.words import query_words, word_hash, words
from portico.domain.access.principal import Principal
from portico.domain.failures import Code, RequestFailure
from portico.domain.ids import DocumentId, TenantId, UserId
from portico.domain.memory import LegState, private_scope, shared_scope
from portico.ports.memory import VectorSpace
from portico.ports.runtime import Clock
from tests.support.stored_memory import StoredMemory, new_document
from tests.support.stores import StoreReplica

ADA = Principal(TenantId("red"), UserId("ada"))
EVE = Principal(TenantId("red"), UserId("eve"))
BOB = Principal(TenantId("blue"), UserId("ada"))
ULM = "Ulm has the tallest church. It stands on the Danube."
BONN = "Bonn was a capital. It stands on the Rhine."


@pytest.fixture
def memory(here: StoreReplica, clock: Clock) -> StoredMemory:
    return StoredMemory(here.database, clock)


@pytest.fixture
def elsewhere(there: StoreReplica, clock: Clock) -> StoredMemory:
    return StoredMemory(there.database, clock)


async def test_a_document_is_found_by_its_words_and_by_similar_ones(memory: StoredMemory) -> None:
    await memory.put(ADA, "ulm", ULM)
    await memory.put(ADA, "bonn", BONN)
    assert (await memory.found(ADA, "Which church is the tallest?"))[0] == "ulm#1"
    assert (await memory.found(ADA, "churches"))[0] == "ulm#1"
    result = await memory.search.search(ADA, "RHINE", max_chunks=1)
    assert [(each.document_id, each.text, each.score) for each in result.chunks] == [("bonn", BONN, 1.0)]
    assert (result.lexical, result.vector) == (LegState.ANSWERED, LegState.ANSWERED)


async def test_documents_are_of_one_user_unless_they_are_shared(memory: StoredMemory) -> None:
    await memory.put(ADA, "ulm", ULM)
    await memory.put(ADA, "bonn", BONN, shared=True)
    await memory.put(BOB, "ulm", "The Danube is blue.")
    assert await memory.found(ADA, "Danube Rhine stands") == ["bonn#1", "ulm#1"]
    assert await memory.found(EVE, "Danube Rhine stands") == ["bonn#1"]
    assert await memory.found(BOB, "Danube Rhine stands") == ["ulm#1"]
    space = memory.embedder.space
    for principal, names in ((ADA, ["bonn", "ulm"]), (EVE, ["bonn"]), (BOB, ["ulm"])):
        page = await memory.documents.page(principal.own, space, after=None, limit=10)
        assert [each.key.document_id for each in page.items] == names
    assert await memory.documents.find(EVE.own, DocumentId("ulm"), space) is None
    shown = await memory.documents.find(EVE.own, DocumentId("ulm"), space, of_tenant=True)
    assert shown is not None
    assert (shown.text, shown.entry.key.user) == (ULM, "ada")
    assert not await memory.documents.delete(EVE.own, DocumentId("bonn"), "next")
    assert await memory.found(EVE, "Rhine") == ["bonn#1"]


async def test_the_own_document_wins_over_a_shared_one_with_its_id(memory: StoredMemory) -> None:
    await memory.put(ADA, "city", ULM, shared=True)
    await memory.put(EVE, "city", BONN)
    found = await memory.documents.find(EVE.own, DocumentId("city"), memory.embedder.space)
    assert found is not None
    assert found.text == BONN
    assert await memory.found(EVE, "Danube Rhine") == ["city#1"]
    assert (await memory.search.search(EVE, "Danube", max_chunks=5)).chunks == ()
    await memory.documents.delete(EVE.own, DocumentId("city"), "next")
    assert await memory.found(EVE, "Danube Rhine") == ["city#1"]
    with pytest.raises(RequestFailure) as refused:
        await memory.put(EVE, "city", BONN, shared=True)
    assert refused.value.code is Code.REQUEST_ID_CONFLICT


async def test_a_deleted_chunk_never_returns_also_from_the_vectors_of_another_replica(
    memory: StoredMemory, elsewhere: StoredMemory
) -> None:
    await memory.put(ADA, "ulm", ULM)
    await memory.put(ADA, "bonn", BONN)
    for replica in (memory, elsewhere):
        assert await replica.found(ADA, "Danube") == ["ulm#1"]
        assert replica.vectors.size > 0
    assert await elsewhere.documents.delete(ADA.own, DocumentId("ulm"), "next")
    assert await memory.found(ADA, "Danube church") == []
    await elsewhere.put(ADA, "bonn", "Bonn is quiet.")
    assert await memory.found(ADA, "Rhine capital") == []
    assert await memory.found(ADA, "quiet") == ["bonn#1"]
    assert await elsewhere.documents.delete(ADA.own, DocumentId("bonn"), "last")
    result = await memory.search.search(ADA, "quiet", max_chunks=5)
    assert (result.chunks, result.vector) == ((), LegState.SKIPPED)


async def test_sharing_moves_a_document_to_another_scope(memory: StoredMemory) -> None:
    await memory.put(ADA, "ulm", ULM)
    assert await memory.found(EVE, "church") == []
    await memory.put(ADA, "ulm", ULM, shared=True)
    assert await memory.found(EVE, "church") == ["ulm#1"]
    assert await memory.found(ADA, "church") == ["ulm#1"]
    await memory.put(ADA, "ulm", ULM + " Its spire is high.")
    assert await memory.found(EVE, "church") == []


async def test_the_size_of_a_tenant_is_limited(memory: StoredMemory) -> None:
    key = await memory.put(ADA, "ulm", ULM)
    size = len('{"text":"","metadata":{}}') + len(ULM)
    with pytest.raises(RequestFailure) as refused:
        await memory.put(EVE, "bonn", BONN, max_bytes=size + len(BONN))
    assert refused.value.code is Code.REQUEST_TOO_LARGE
    await memory.put(ADA, "ulm", ULM, shared=True, max_bytes=size)
    await memory.put(BOB, "bonn", BONN, max_bytes=2 * size)
    await memory.documents.delete(ADA.own, key.document_id, "next")
    await memory.put(EVE, "bonn", BONN, max_bytes=size)


async def test_pages_are_in_the_order_of_ids(memory: StoredMemory) -> None:
    names = [f"d{number}" for number in range(7)]
    for name in reversed(names):
        await memory.put(ADA if name < "d4" else EVE, name, ULM, shared=True, embed=False)
    listed, after = [], None
    while True:
        page = await memory.documents.page(ADA.own, memory.embedder.space, after=after, limit=3)
        listed += [each.key.document_id for each in page.items]
        assert not any(each.is_embedded for each in page.items)
        after = page.next
        if after is None:
            break
    assert listed == names


async def test_the_words_of_a_query_have_no_syntax(memory: StoredMemory) -> None:
    await memory.put(ADA, "ulm", ULM)
    hostile = (
        '"',
        "church AND",
        "NEAR(church",
        "church*",
        "terms:church",
        "church' OR 'x",
        "^church",
        "-church",
        "(",
        ":*",
    )
    for query in (*hostile, "church\0", "church \ud800", "'church' & | !"):
        result = await memory.search.search(ADA, query, max_chunks=5)
        assert LegState.FAILED not in {result.lexical, result.vector}
        assert [each.source for each in result.chunks] == (["ulm#1"] if "church" in query else []), query
    many = " ".join(f"w{number}" for number in range(5_000))
    assert await memory.found(ADA, many) in ([], ["ulm#1"])


async def test_scores_by_words_are_those_of_the_readable_documents_alone(memory: StoredMemory) -> None:
    texts = {"a": "red red blue", "b": "red green", "c": "blue blue blue green yellow", "d": "grey"}
    for name, text in texts.items():
        await memory.put(ADA, name, text, shared=name in "bc")
    for number in range(20):
        await memory.put(BOB, f"n{number}", "red blue yellow")
        await memory.put(EVE, f"n{number}", "red red red")
    scopes = (private_scope(ADA.tenant, ADA.user), shared_scope(ADA.tenant))
    terms = [[word_hash(word, scope) for scope in scopes] for word in query_words("red yellow blue missing")]
    matches = await memory.index.matches(scopes, terms)
    from portico.capabilities.memory.scores import rank_by_words  # noqa: PLC0415 - as the product imports numpy

    ranked = rank_by_words(matches, 10)
    texts_by_id = {each.chunk_id: each.text for each in await memory.index.texts(scopes, [each for each, _ in ranked])}
    expected = bm25("red yellow blue missing", list(texts.values()))
    assert {texts_by_id[chunk_id]: round(score, 9) for chunk_id, score in ranked} == expected
    assert [texts_by_id[chunk_id] for chunk_id, _ in ranked] == sorted(expected, key=lambda text: -expected[text])


def bm25(query: str, texts: Sequence[str]) -> dict[str, float]:
    """Return the score of each text that has one of the words, as the textbook says."""
    bags = {text: Counter(words(text)) for text in texts}
    average = sum(map(Counter.total, bags.values())) / len(bags)
    scores: dict[str, float] = {}
    for word in query_words(query):
        having = sum(word in bag for bag in bags.values())
        weight = log((len(bags) - having + 0.5) / (having + 0.5) + 1)
        for text, bag in bags.items():
            if bag[word]:
                norm = 1.2 * (1 - 0.75 + 0.75 * bag.total() / average)
                scores[text] = scores.get(text, 0.0) + weight * bag[word] * 2.2 / (bag[word] + norm)
    return {text: round(score, 9) for text, score in scores.items()}


@dataclass
class FlakyEmbedder:
    """An embedder whose vectors have a size that changes, and that fails without one."""

    size: int | None = None
    dimension: int | None = None

    @property
    def space(self) -> VectorSpace:
        return VectorSpace("flaky", "m", self.dimension)

    async def embed(self, texts: Sequence[str], principal: Principal) -> EmbeddedTexts:
        if self.size is None:
            raise EmbeddingError("down")
        return EmbeddedTexts([b"\0\0\x80?" * self.size for _ in texts])


async def test_a_document_that_cannot_be_embedded_is_found_by_words_and_embedded_later(
    here: StoreReplica, there: StoreReplica, clock: Clock
) -> None:
    flaky = FlakyEmbedder()
    memory, other = StoredMemory(here.database, clock, flaky), StoredMemory(there.database, clock, flaky)
    key = await memory.put(ADA, "ulm", ULM, embed=False)
    result = await memory.search.search(ADA, "church", max_chunks=5)
    assert ([each.source for each in result.chunks], result.vector) == (["ulm#1"], LegState.SKIPPED)
    assert result.chunks[0].score == 1.0
    waits = []
    for _ in range(3):
        await memory.worker.embed_due()
        began_at = clock.now()
        while not (due := await other.queue.claim(now=clock.now(), until=clock.now(), limit=4)):
            await clock.sleep(1)
        assert [each.key for each in due] == [key]
        waits.append(round(clock.now() - began_at))
    assert waits == [15, 30, 60]
    flaky.size = 8
    await other.worker.embed_due()
    assert await memory.queue.claim(now=clock.now() + 1e6, until=0, limit=4) == []
    found = await memory.documents.find(ADA.own, key.document_id, flaky.space)
    assert found is not None
    assert found.entry.is_embedded
    assert (await memory.search.search(ADA, "nothing alike", max_chunks=5)).chunks[0].score == 0.5
    flaky.size = None
    result = await memory.search.search(ADA, "church", max_chunks=5)
    assert ([each.score for each in result.chunks], result.vector) == ([1.0], LegState.FAILED)


async def test_vectors_of_another_size_are_refused(here: StoreReplica, clock: Clock) -> None:
    flaky = FlakyEmbedder(size=8)
    memory = StoredMemory(here.database, clock, flaky)
    await memory.put(ADA, "ulm", ULM)
    flaky.size = 16
    second = new_document(ADA, "bonn", BONN, at=clock.now())
    await memory.documents.put(second, max_bytes=None)
    assert not await memory.worker.embed(second.key, ADA, 2.0)
    result = await memory.search.search(ADA, "church Rhine", max_chunks=5)
    assert (result.lexical, result.vector) == (LegState.ANSWERED, LegState.FAILED)
    assert {each.document_id for each in result.chunks} == {"ulm", "bonn"}
    # Another tenant has no vectors yet, so its first ones decide.
    await memory.put(BOB, "bonn", BONN)
    # A configured size is a space of its own.
    resized = StoredMemory(here.database, clock, FlakyEmbedder(size=16, dimension=16))
    assert await resized.worker.embed(second.key, ADA, 2.0)
    assert await resized.found(ADA, "zzz") == ["bonn#1"]


async def test_vectors_of_an_earlier_version_are_dropped(memory: StoredMemory) -> None:
    earlier = await memory.put(ADA, "ulm", ULM, embed=False)
    await memory.put(ADA, "ulm", BONN)
    assert await memory.queue.texts(earlier) == []
    assert await memory.queue.finish(earlier, memory.embedder.space, [b"\0\0\x80?" * 64], "late")
    assert await memory.found(ADA, "Rhine") == ["ulm#1"]


async def test_a_scope_without_room_in_memory_is_searched_page_by_page(here: StoreReplica, clock: Clock) -> None:
    memory = StoredMemory(here.database, clock, max_vector_bytes=600)
    await memory.put(ADA, "ulm", ULM)
    assert await memory.found(ADA, "churches") == ["ulm#1"]
    assert memory.vectors.size > 0
    await memory.put(ADA, "bonn", BONN)
    await memory.put(ADA, "third", "Berlin is large.")
    assert (await memory.found(ADA, "churches"))[0] == "ulm#1"
    assert memory.vectors.size == 0
    await memory.put(BOB, "bonn", BONN)
    assert await memory.found(BOB, "capital") == ["bonn#1"]
    assert 0 < memory.vectors.size <= 600
