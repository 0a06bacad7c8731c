"""The table `[memory]` of the configuration: how documents are embedded."""

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field, StringConstraints

from portico.settings.values import Table

EngineName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]


class MemorySettings(Table):
    """Documents for retrieval. What was embedded otherwise is searched by words only until it is stored again."""

    embedder: EngineName | None = Field(
        None, description="Engine that embeds documents and queries; hashed n-grams, which need no model, if absent"
    )
    dimensions: Annotated[int, Field(ge=8, le=8192)] | None = Field(
        None, description="Size of the vectors; what the engine gives if absent, and 256 without an engine"
    )


def memory_errors(memory: MemorySettings, engines: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the key and the error of an embedder that is not configured."""
    if memory.embedder is not None and memory.embedder not in engines:
        yield "memory.embedder", "must name an engine of [engines.NAME]"
