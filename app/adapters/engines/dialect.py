"""What a dialect is: how a provider is asked, and how what it says is read.

A dialect is pure. Whatever arrives, one JSON body or the pieces of a stream, it turns into `Delta`s, and `Answer` puts
these together: a JSON body is a stream of one piece. So a new provider is one file with `encode`, `decode`,
`decode_chunk`, two tables, and the name of the member in which its stream has the text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from app.adapters.engines.wire.deltas import Delta
from app.domain.contract.messages import Message, ModelMessage
from app.domain.model_call import AttemptFailureReason, EngineCall
from app.ports.model import EngineProfile


@dataclass(frozen=True, slots=True)
class EncodedRequest:
    """A request in a dialect: `path` stands behind the base URL, `body` becomes JSON.

    `withheld` names what the call held and the request does not, by dotted name.
    """

    path: str
    body: dict[str, Any]
    withheld: tuple[str, ...] = ()


class Dialect(Protocol):
    """How one family of providers is spoken to. Holds no state and does no I/O.

    `finishes` says what the provider's words for an ending mean: `stop`, `length`, or why it is a failure; words
    that it lacks mean `stop`. `probe` is a path that answers without spending tokens.
    """

    @property
    def base_url(self) -> str:
        """Where it is reached unless configured otherwise."""
        ...

    @property
    def probe_path(self) -> str: ...

    @property
    def finish_reasons(self) -> Mapping[str, str | AttemptFailureReason]: ...

    def headers(self, key: str | None) -> dict[str, str]:
        """What says who asks. A key never stands in a URL."""
        ...

    def encode(self, call: EngineCall, profile: EngineProfile, *, stream: bool) -> EncodedRequest:
        """The request. Only options that the profile lists are sent; what is not is named beside it."""
        ...

    def decode(self, body: bytes) -> Delta:
        """A whole JSON reply. Raises: EngineFault."""
        ...

    def decode_chunk(self, data: bytes) -> Delta:
        """One event of a stream. Raises: EngineFault, also for an error that the provider put into the stream."""
        ...

    def failure_reason(self, status: int, body: bytes) -> AttemptFailureReason:
        """Why a reply that is no success came. `body` may be anything and may be cut."""
        ...


@runtime_checkable
class RetryDelayDialect(Protocol):
    """Where a provider says in the body of its refusal, not in a header, how long it wants to be left alone."""

    def retry_delay(self, body: bytes) -> float | None:
        """Seconds; None where it says nothing."""
        ...


def opaque_blocks(message: Message) -> Sequence[dict[str, Any]]:
    """What this provider said in that message and wants to be told again; nothing for other people's messages."""
    return message.kept if isinstance(message, ModelMessage) else ()
