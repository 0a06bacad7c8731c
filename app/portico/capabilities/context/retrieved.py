"""Retrieved context: the message with the found chunks that fit, in the order of their rank."""

from collections.abc import Sequence

from portico.capabilities.prompting.definition import PromptId
from portico.capabilities.prompting.prompts.retrieval import QuotedChunk, RetrievedContextInput
from portico.capabilities.prompting.registry import PromptRegistry
from portico.domain.context.report import ContextChunk
from portico.domain.context.selection import NOTHING_RETRIEVED, RetrievedContext
from portico.domain.contract.messages import Origin, TracedMessage
from portico.domain.memory import FoundChunk
from portico.ports.model import TokenCounter


def retrieved_context(
    found: Sequence[FoundChunk], room: int, prompts: PromptRegistry, counter: TokenCounter, mark: str
) -> RetrievedContext:
    """Return the message with the chunks, best first, that fit into so many tokens.

    A chunk that does not fit is skipped, and a smaller one of a lower rank may take its place. The fence around the
    chunks carries the `mark`, which is 8 hex digits.
    """
    if not found:
        return NOTHING_RETRIEVED
    sizes = [counter.message(_message([chunk], prompts, mark)) for chunk in found]
    used = list[int]()
    for rank, size in enumerate(sizes):
        # Each size includes what all chunks share, so their sum is an upper bound.
        if size + sum(sizes[each] for each in used) > room:
            together = _message([found[each] for each in (*used, rank)], prompts, mark)
            if size > room or counter.message(together) > room:
                continue
        used.append(rank)
    message = _message([found[each] for each in used], prompts, mark) if used else None
    chunks = [
        ContextChunk(chunk.document_id, chunk.number, chunk.score, size, rank in used)
        for rank, (chunk, size) in enumerate(zip(found, sizes, strict=True))
    ]
    return RetrievedContext(message, tuple(chunks))


def _message(chunks: Sequence[FoundChunk], prompts: PromptRegistry, mark: str) -> TracedMessage:
    quoted = tuple([QuotedChunk(source=chunk.source, content=chunk.text) for chunk in chunks])
    text = prompts.get_prompt(PromptId.RETRIEVED_CONTEXT_USER, RetrievedContextInput(chunks=quoted), mark)
    return TracedMessage(role="user", content=text, origin=Origin.RETRIEVED)
