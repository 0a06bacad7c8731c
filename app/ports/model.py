"""Model port: engines, their profiles and errors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from app.domain.contract.messages import Message
from app.domain.contract.response import TokenUsage
from app.domain.model_call import AttemptFailureReason, EngineCall, Reply
from app.domain.tools import ToolDefinition


class TokenCounter(Protocol):
    """An estimate of how many tokens a model reads; never exact."""

    def text(self, text: str) -> int: ...

    def messages(self, messages: Sequence[Message]) -> int: ...

    def tools(self, tools: Sequence[ToolDefinition]) -> int: ...


class Progress(Protocol):
    """Where an engine says what has arrived so far, so that an attempt that is cut off is still accounted for."""

    def text(self, piece: str) -> None: ...

    def reasoning(self, piece: str) -> None: ...

    def usage(self, usage: TokenUsage) -> None: ...


@dataclass(eq=False)
class EngineError(Exception):
    """An attempt failed. `retry_after` is seconds; `message` names no key and no upstream text."""

    reason: AttemptFailureReason
    message: str
    retry_after: float | None = None

    def __post_init__(self) -> None:
        super().__init__(self.message)


@dataclass(frozen=True, slots=True)
class EngineCapabilities:
    """What an engine can do by itself. What it cannot is done another way, by rule, and the answer says so."""

    schema: bool = False
    """Keeps a JSON Schema while it writes."""
    schema_with_tools: bool = False
    """Does so although tools are offered."""
    grammar: bool = False
    """Keeps a GBNF grammar while it writes."""
    tools: bool = True
    forced_calls: bool = True
    """Can be made to call one tool."""
    parallel_tools: bool = True
    """Reads an answer that asks for several calls."""
    streaming_usage: bool = True
    """Can be asked for the usage of a stream."""
    system_role: bool = True
    images: bool = True
    embeddings: bool = False


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """What is known of a configured engine. `options` are the hints.options keys that may pass through."""

    name: str
    model: str
    scheme: str
    context_window: int
    response_reserve: int
    options: frozenset[str]
    price: tuple[float, float] | None = None
    capabilities: EngineCapabilities = EngineCapabilities()


class Engine(Protocol):
    """A configured model endpoint. Its name is `provider` on the wire."""

    @property
    def profile(self) -> EngineProfile: ...

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        """One try, without retries. Everything that is published goes through `progress` first. Options that the
        profile does not list are not passed on; they, and whatever else is not, are named in the reply's `withheld`.

        Raises: EngineFault. Cancelling it closes whatever it had opened, at once.
        """
        ...

    async def ping(self) -> str:
        """Makes sure that the endpoint answers, and says in a few words what it found. Raises: EngineFault."""
        ...
