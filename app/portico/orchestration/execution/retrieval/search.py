"""Retrieval: the search of the memory as an effect of an execution.

A replay reads what was found from the record and never searches again, so it needs no memory, and documents that were
deleted meanwhile change nothing. A search never fails its execution: what did not answer is part of the outcome.
"""

from collections.abc import Awaitable, Callable, Mapping

from pydantic import JsonValue

from portico.domain.access.principal import Principal
from portico.domain.fingerprints import digest, span_id
from portico.domain.journal.events import CorrelationContext, RetrievalEnd, RetrievalStart
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import AttemptCancelled, Outcome, RecordedStep, Retrieved
from portico.domain.journal.step_key import StepKey
from portico.domain.memory import DEFAULT_CHUNKS, LegState, MemorySearchResult
from portico.domain.value import value
from portico.orchestration.execution.effect import Effect
from portico.orchestration.execution.environment import ChunkCheck, Environment
from portico.orchestration.execution.execution import Execution

MAX_QUERY_CHARACTERS = 2_000
_SKIPPED = MemorySearchResult((), LegState.SKIPPED, LegState.SKIPPED)
_FAILED = MemorySearchResult((), LegState.FAILED, LegState.FAILED)


@value
class RetrievalQuery:
    """The text to search for, of which the beginning counts, and what to return of the chunks that are found."""

    text: str
    max_chunks: int | None = None
    min_score: float | None = None

    @property
    def searched_text(self) -> str:
        """The part of the text that is searched for."""
        return self.text.strip()[:MAX_QUERY_CHARACTERS]

    @property
    def top_k(self) -> int:
        """Maximum number of chunks."""
        return DEFAULT_CHUNKS if self.max_chunks is None else self.max_chunks


class Retrieval(Effect):
    """One search of the memory that the principal of the execution may read.

    Nothing is searched if `has_room` says that nothing of what could be found would be used. Chunks that the
    `chunk_check` refuses are dropped.
    """

    def __init__(
        self,
        execution: Execution,
        key: StepKey,
        correlation: CorrelationContext,
        query: RetrievalQuery,
        chunk_check: ChunkCheck | None,
        has_room: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self.key = key
        self.fingerprint = digest("retrieve", key, query.searched_text, query.max_chunks, query.min_score)
        self.correlation = correlation.child(span_id(execution.header.execution_id, key))
        self.start_event = RetrievalStart(query.top_k)
        self._execution = execution
        self._query = query
        self._chunk_check = chunk_check
        self._has_room = has_room

    def asked(self) -> JsonValue:
        """Return the query."""
        query = self._query
        return {"query": query.searched_text, "max_chunks": query.top_k, "min_score": query.min_score or 0.0}

    async def run(self, environment: Environment) -> Outcome:
        """Search."""
        clock, text = environment.clock, self._query.searched_text
        started_at = clock.monotonic()
        result = _SKIPPED
        if text and (self._has_room is None or await self._has_room()):
            result = await self._search(environment, text)
        refused: Mapping[int, str] = {}
        if self._chunk_check is not None and result.chunks:
            refused = await self._chunk_check(environment, [chunk.text for chunk in result.chunks])
        duration_ms = (clock.monotonic() - started_at) * 1000
        return Retrieved(
            text,
            tuple([chunk for index, chunk in enumerate(result.chunks) if index not in refused]),
            result.lexical,
            result.vector,
            duration_ms,
            result.embedding,
            {result.chunks[index].source: guard for index, guard in refused.items()},
        )

    def end_events(self, outcome: Outcome) -> list[RetrievalEnd]:
        """Return the end of the search; one that was cancelled found nothing."""
        top_k = self._query.top_k
        if isinstance(outcome, AttemptCancelled):
            return [RetrievalEnd(top_k, 0, LegState.FAILED, LegState.FAILED, outcome.duration_ms)]
        assert isinstance(outcome, Retrieved)  # noqa: S101 - the other outcome of a search
        found = len(outcome.chunks) + len(outcome.flagged)
        return [RetrievalEnd(top_k, found, outcome.lexical, outcome.vector, outcome.duration_ms)]

    def account(self, step: RecordedStep) -> None:
        """Add what was found to the ledger."""
        if isinstance(step.outcome, Retrieved):
            self._execution.ledger.record_retrieval(step, step.outcome)

    async def _search(self, environment: Environment, text: str) -> MemorySearchResult:
        if environment.memory is None:
            return _FAILED
        query = self._query
        return await environment.memory.search(
            principal_of(self._execution.header), text, max_chunks=query.top_k, min_score=query.min_score or 0.0
        )


def principal_of(header: ExecutionHeader) -> Principal:
    """Return the principal that the execution runs for, with the rights that it began with."""
    return Principal(header.tenant, header.user, header.key_id, header.permissions, limits=header.key_limits)
