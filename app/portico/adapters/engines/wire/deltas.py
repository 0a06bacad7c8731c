"""Deltas: what one part of a reply adds to it, in terms that all dialects share."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from portico.adapters.engines.wire.usage import TokenCounts
from portico.domain.value import value


@value
class ToolCallFragment:
    """A tool call or the next fragment of one. `arguments` is JSON text; `index` is None where the provider gives none.

    A call of a provider that never sends fragments `is_complete`: it always starts a new call. A call that
    `runs_at_provider` is not ours to answer and is dropped. `signature` has to be sent back with the call;
    `ReplyBuilder` stores it as an opaque block of `call` and `signature`.
    """

    index: int | None
    id: str
    name: str
    arguments: str
    signature: str = ""
    is_complete: bool = False
    runs_at_provider: bool = False


class OpaqueFragment(NamedTuple):
    """Part of a block that only the provider can read and that has to be sent back to it.

    Fragments of one number form one block: texts of the same key are joined, any other value replaces the earlier one.
    """

    number: int
    data: Mapping[str, Any]


class Delta(NamedTuple):
    """Additions to a reply by one part of it. `finish` is the provider's own word, None while the reply continues.

    `refused`: the model declined. `done`: the end of a stream, after which nothing counts. `needs_done`: such an end is
    still to come, so that `finish` alone does not complete the reply.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCallFragment, ...] = ()
    finish: str | None = None
    usage: TokenCounts | None = None
    model: str = ""
    refused: bool = False
    done: bool = False
    opaque: tuple[OpaqueFragment, ...] = ()
    needs_done: bool = False


NO_DELTA: Final = Delta()
"""The delta of a frame that adds nothing to the reply."""
UNKNOWN_FRAME: Final = Delta()
"""The delta of a frame that the dialect does not know and that speaks of no error. It is recognised by identity."""
