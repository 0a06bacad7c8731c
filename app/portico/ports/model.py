"""Model port: engines, their profiles and errors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from portico.domain.contract.messages import Message
from portico.domain.contract.request import ExecutionHints
from portico.domain.contract.response import TokenUsage
from portico.domain.ids import ExecutionId, TenantId
from portico.domain.model_call import AttemptFailureReason, EngineCall, Reply
from portico.domain.token_prices import TokenPrices
from portico.domain.tools import ToolDefinition
from portico.domain.value import value


class TokenCounter(Protocol):
    """Estimator of how many tokens one model reads; never exact.

    `ratio` is that of its counts to those of a counter without correction.
    """

    @property
    def ratio(self) -> float: ...

    def text(self, text: str) -> int: ...

    def message(self, message: Message) -> int: ...

    def tools(self, tools: Sequence[ToolDefinition]) -> int: ...


class TokenRatio(NamedTuple):
    """Correction of the estimate for a model, as one tenant's replies have taught it."""

    tenant: TenantId
    model: str
    ratio: float


class TokenEstimator(Protocol):
    """Token counters by model, corrected from the usage that providers report."""

    def counter(self, tenant: TenantId, model: str) -> TokenCounter:
        """Return the counter for that model, as the tenant's replies have corrected it."""
        ...

    def learn(self, tenant: TenantId, model: str, *, estimated: float, reported: int) -> None:
        """Correct the counts for that model: so many tokens were estimated without correction, and so many reported."""
        ...


class Progress(Protocol):
    """Receiver of what an engine has produced so far, so that a cancelled attempt is still accounted for."""

    def text(self, piece: str) -> None: ...

    def reasoning(self, piece: str) -> None: ...

    def usage(self, usage: TokenUsage) -> None: ...


@dataclass(eq=False)
class EngineError(Exception):
    """Failure of one attempt. `retry_after` is in seconds; `message` contains no credential and no text of the
    provider. `status` is that of the provider's reply, if it failed with one.
    """

    reason: AttemptFailureReason
    message: str
    retry_after: float | None = None
    status: int | None = None

    def __post_init__(self) -> None:
        super().__init__(self.message)


@value
class EngineCapabilities:
    """Features that an engine has itself. For each missing one there is a fallback, and the response names it."""

    schema: bool = False
    """Enforces a JSON Schema during generation."""
    schema_with_tools: bool = False
    """Enforces the schema even if tools are offered."""
    grammar: bool = False
    """Enforces a GBNF grammar during generation."""
    tools: bool = True
    forced_calls: bool = True
    """Can be forced to call one particular tool."""
    parallel_tools: bool = True
    """Accepts a conversation in which one reply has several calls."""
    streaming_usage: bool = True
    """Reports the token usage of a stream on request."""
    system_role: bool = True
    images: bool = True
    reasoning: bool = False
    """Takes a level of reasoning."""
    documents: bool = False
    """Reads PDF files and text files."""
    audio: bool = False
    embeddings: bool = False


@value
class EngineProfile:
    """Facts about a configured engine. `options` are the `hints.options` keys that are passed on.

    `known` names the facts that the configuration leaves out and that are known of the model.
    `max_connections` is the number of attempts that may run at the same time. An engine that `propagates_trace` gives
    its provider the trace context of the attempt. One that `caches_prompts` learns which prefixes are read again.
    `known_as` is the name of the model that the engine asks under another one.
    A `deployment` of an engine has that of its own, and the name of its `account`: one that `binds_kept` is given back
    only the kept blocks of that account.
    """

    name: str
    model: str
    scheme: str
    context_window: int
    response_reserve: int
    options: frozenset[str]
    price: TokenPrices | None = None
    capabilities: EngineCapabilities = EngineCapabilities()
    known: tuple[str, ...] = ()
    max_connections: int = 256
    propagates_trace: bool = False
    caches_prompts: bool = False
    known_as: str = ""
    deployment: str | None = None
    account: str | None = None
    binds_kept: bool = False


class ModelCallObserver(Protocol):
    """Receiver of what no event has of a model call. Must neither block nor raise."""

    def called(self, execution_id: ExecutionId, segment: str, hints: ExecutionHints, *, is_streamed: bool) -> None:
        """Take the call of that segment before it is sent."""
        ...


class ConfiguredEngine(Protocol):
    """Engine of the configuration. Its name is `provider` on the wire."""

    @property
    def profile(self) -> EngineProfile: ...


class Engine(ConfiguredEngine, Protocol):
    """Model endpoint: an engine, or one deployment of an engine that has several."""

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        """Make one attempt, without retries, and return the whole reply.

        Text, reasoning and usage are passed to `progress` as they arrive. Options that the profile does not list are
        not passed on; the reply's `withheld` names them and everything else that was left out. Cancelling the call
        closes its connection at once.

        Raises: EngineError.
        """
        ...

    async def ping(self) -> str:
        """Check that the endpoint answers and return a short description of it. Raises: EngineError."""
        ...
