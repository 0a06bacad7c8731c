"""Sources: the parts of documents that an execution was given to read, and how far they cover what was asked."""

import re
from collections.abc import Sequence
from typing import Final

from portico.domain.contract.response import Source
from portico.domain.journal.outcomes import Prepared
from portico.domain.journal.step_key import RETRIEVAL_KEY
from portico.domain.memory import FoundChunk, LegState
from portico.domain.value import value
from portico.orchestration.execution.ledger import Ledger

_WORD: Final = re.compile(r"\w{3,}")


@value
class RetrievedTexts:
    """The query of a search that was made, and those of the found chunks that were read."""

    query: str
    chunks: tuple[FoundChunk, ...]


def retrieved_texts(ledger: Ledger, prepared: Prepared | None) -> list[RetrievedTexts]:
    """Return the searches in the order of their steps, that of PREPARE first; one without any answer is left out."""
    keys = sorted(ledger.retrievals, key=lambda key: () if key == RETRIEVAL_KEY else key.numbers)
    found = ((key, ledger.retrievals[key]) for key in keys)
    return [
        RetrievedTexts(each.query, _in_context(each.chunks, prepared) if key == RETRIEVAL_KEY else each.chunks)
        for key, each in found
        if LegState.ANSWERED in {each.lexical, each.vector}
    ]


def sources_of(retrieved: Sequence[RetrievedTexts]) -> list[Source]:
    """Return each chunk once, with its best score, best first."""
    best: dict[str, FoundChunk] = {}
    for each in retrieved:
        for chunk in each.chunks:
            if chunk.source not in best or chunk.score > best[chunk.source].score:
                best[chunk.source] = chunk
    chunks = sorted(best.values(), key=lambda chunk: -chunk.score)
    return [Source(source=chunk.source, document_id=chunk.document_id, score=chunk.score) for chunk in chunks]


def coverage(retrieved: Sequence[RetrievedTexts]) -> float | None:
    """Return the share of the distinct words of the queries, of at least 3 characters, that the chunks contain.

    None without such a word.
    """
    words = found = 0
    for each in retrieved:
        wanted = _words(each.query)
        words += len(wanted)
        found += len(wanted & frozenset[str]().union(*(_words(chunk.text) for chunk in each.chunks)))
    return found / words if words else None


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.casefold()))


def _in_context(chunks: tuple[FoundChunk, ...], prepared: Prepared | None) -> tuple[FoundChunk, ...]:
    """Return the chunks that PREPARE has put into the context."""
    report = None if prepared is None else prepared.context
    used = set() if report is None else {(each.document_id, each.chunk) for each in report.chunks if each.used}
    return tuple([chunk for chunk in chunks if (chunk.document_id, chunk.number) in used])
