"""The interface of a dialect: how requests to a provider are encoded and its replies decoded.

A dialect is pure. It decodes a JSON body, or the events of a stream one by one, into `Delta`s, which `ReplyBuilder`
puts together: a JSON body is a stream of one event. A new provider is one folder with `encode`, `decode`,
`decode_chunk` and an error table.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from portico.adapters.engines.wire.deltas import Delta
from portico.domain.contract.messages import Message, ModelMessage
from portico.domain.model_call import AttemptFailureReason, EngineCall
from portico.domain.value import value
from portico.ports.memory import Embeddings
from portico.ports.model import EngineError, EngineProfile


@value
class EncodedRequest:
    """A request in a dialect: `path` is appended to the base URL, `body` becomes JSON.

    `withheld` names, by dotted name, the parts of the call that the request does not contain.
    """

    path: str
    body: dict[str, Any]
    withheld: tuple[str, ...] = ()


class Dialect(Protocol):
    """The protocol of one family of providers. It has no state and does no I/O.

    `finish_reasons` maps the provider's final words to `stop`, `length` or the reason of a failure; other words mean
    `stop`. `probe_path` answers without spending tokens. Of a dialect that `binds_kept` only the account that gave a
    block can read it.
    """

    @property
    def probe_path(self) -> str: ...

    @property
    def binds_kept(self) -> bool: ...

    @property
    def finish_reasons(self) -> Mapping[str, str | AttemptFailureReason]: ...

    def headers(self, key: str | None) -> dict[str, str]:
        """Return the headers that authenticate a request. A key is never part of a URL."""
        ...

    def encode(self, call: EngineCall, profile: EngineProfile, *, stream: bool) -> EncodedRequest:
        """Encode a call. Only options that the profile lists are sent; the others are named in `withheld`."""
        ...

    def decode(self, body: bytes) -> Delta:
        """Decode a whole JSON reply. Raises: EngineError."""
        ...

    def decode_chunk(self, data: bytes) -> Delta:
        """Decode one event of a stream. Raises: EngineError, also for an error that the provider reports in it."""
        ...

    def reported_fault(self, error: Any) -> EngineError:
        """Return the fault of an error, of any form, that the provider reports within a stream."""
        ...

    def failure_reason(self, status: int, body: bytes) -> AttemptFailureReason:
        """Return the reason that a failure status stands for. `body` may be anything and may be cut."""
        ...


@runtime_checkable
class RetryDelayDialect(Protocol):
    """A dialect whose provider names the time to wait in the body of a refusal, not in a header."""

    def retry_delay(self, body: bytes) -> float | None:
        """Return the seconds to wait; None where the body names none."""
        ...


@runtime_checkable
class EmbeddingDialect(Protocol):
    """A dialect whose provider makes vectors of texts."""

    def encode_embeddings(self, texts: Sequence[str], profile: EngineProfile, dimension: int | None) -> EncodedRequest:
        """Encode the request for the vectors of the texts, of that size if there is one."""
        ...

    def decode_embeddings(self, body: bytes) -> Embeddings:
        """Decode the reply to such a request. Raises: EngineError."""
        ...


def opaque_blocks(message: Message) -> Sequence[dict[str, Any]]:
    """Return the blocks of an answer that have to be sent back to this provider; none for other messages."""
    return message.kept if isinstance(message, ModelMessage) else ()
