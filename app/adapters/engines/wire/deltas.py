"""What the pieces of a reply add to it, whoever sent them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from app.adapters.engines.wire.usage import UsageReport


@dataclass(frozen=True, slots=True)
class ToolCallFragment:
    """A tool call or the next fragment of one. `arguments` is JSON text; `index` is None where none was given.

    `whole` is for providers that never send fragments: such a piece begins a call whatever came before. `elsewhere`
    begins one that the provider runs by itself, which is none of ours. `signature` is what the provider wants to see
    again with the call; `Answer` keeps it as a block of `call` and `signature`.
    """

    index: int | None
    id: str
    name: str
    arguments: str
    signature: str = ""
    is_complete: bool = False
    runs_at_provider: bool = False


class OpaqueFragment(NamedTuple):
    """Part of a block that only the provider can read. Pieces of one number are one block: of a key that comes again
    texts are joined, and anything else replaces what was there.
    """

    number: int
    data: Mapping[str, Any]


class Delta(NamedTuple):
    """What one piece of a reply adds. `finish` is the provider's own word, None while the reply goes on.

    `refused` says that the model declined.
    `done` is the end of a stream, behind which nothing follows; `unclosed` says that it has yet to come, so that
    `finish` alone makes no reply whole.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCallFragment, ...] = ()
    finish: str | None = None
    usage: UsageReport | None = None
    model: str = ""
    refused: bool = False
    done: bool = False
    opaque: tuple[OpaqueFragment, ...] = ()
    needs_done: bool = False
