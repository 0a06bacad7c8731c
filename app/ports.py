"""What we need from outside, on one page."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pydantic import JsonValue

from app.domain.boundary import TokenUsage
from app.domain.effects import EngineCall, Header, Reason, Reply, Row
from app.domain.events import Anchored, CorrelationContext, InferenceDelta, Live, Recorded
from app.domain.lifecycle import State
from app.domain.messages import Message
from app.domain.pausing import Pausing
from app.domain.tools import Availability, ToolDefinition, ToolInfo

T = TypeVar("T")


class Clock(Protocol):
    """Time. `now` is Unix seconds, `monotonic` seconds of no particular origin."""

    def now(self) -> float: ...

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls back once after that time; the returned function calls it off."""
        ...


class Entropy(Protocol):
    """Randomness and new ids."""

    def uuid7(self) -> str: ...

    def token(self, size: int) -> str:
        """`size` random bytes as lower-case hex."""
        ...

    def below(self, bound: int) -> int:
        """A uniform integer from 0 to `bound` - 1."""
        ...


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
class EngineFault(Exception):  # noqa: N818 - a fault is a value the failover reads, not an error of ours
    """An attempt failed. `retry_after` is seconds; `message` names no key and no upstream text."""

    reason: Reason
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

    async def reach(self) -> str:
        """Makes sure that the endpoint answers, and says in a few words what it found. Raises: EngineFault."""
        ...


class Embedder(Protocol):
    """Whoever turns texts into vectors."""

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """One vector a text, in order. Raises: EngineFault, also when the provider makes none."""
        ...


class ExactCounter(Protocol):
    """Whoever knows, rather than estimates, how many tokens a model reads."""

    async def count(self, call: EngineCall) -> int | None:
        """Tokens; None when the provider does not say. Raises: EngineFault."""
        ...


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a running tool may know. `seconds_left` is the time it has; `entropy` and `clock` are the only ones.

    `idempotency_key` is the same for every attempt at this call, whichever process makes it, and for no other call.
    """

    tool_call_id: str
    seconds_left: float
    clock: Clock
    entropy: Entropy
    idempotency_key: str


class ToolError(Exception):
    """A tool says that it failed; the text is for the model."""

    @staticmethod
    def suspend(value: JsonValue) -> "ToolQuestion":
        """What a tool raises to ask somebody outside; the answer will be its result, and it is not run again."""
        return ToolQuestion(value)


class ToolQuestion(ToolError):  # noqa: N818 - a question is no error; the executor tells it apart
    """A tool asks somebody outside before it has a result."""

    def __init__(self, value: JsonValue) -> None:
        super().__init__("it waits for an answer")
        self.value = value


class Tool(Protocol):
    """The four methods of the tool seed."""

    def info(self) -> ToolInfo: ...

    def definition(self) -> ToolDefinition: ...

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Runs with arguments that fit the definition. Raises: ToolError for the model to read."""
        ...

    def available(self) -> Availability: ...


@dataclass(frozen=True, slots=True)
class Record:
    """What a journal holds of one execution: its header, its steps by key, its events in order.

    `commits` is how many commits it took, the header's aside; `epoch` counts its owners, the reader included.
    """

    header: Header
    rows: Mapping[str, Row]
    events: Sequence[Recorded]
    commits: int = 0
    epoch: int = 1


@dataclass(frozen=True, slots=True)
class Claim:
    """The Idempotency-Key an execution is opened under; `body_digest` is that of the canonical body."""

    key: str
    body_digest: str


@dataclass(frozen=True, slots=True)
class Earlier:
    """The execution that an Idempotency-Key belongs to already, and where it stands."""

    execution_id: str
    request_id: str
    state: State
    same_body: bool


class Journal(Protocol):
    """The list of recorded outcomes and events of every execution.

    One ordered writer: what is put for one execution commits in that order, an outcome together with its events, so
    what is stored is always a prefix. Publication to sinks follows the commit. What its header calls journaled is
    committed step by step. What it calls held in memory is published at once, and kept when it ends, if at all.
    """

    async def open(
        self, header: Header, claim: Claim | None = None, *, rows: Sequence[Row] = (), waits: bool = False
    ) -> Earlier | None:
        """Begins a record; None when it did. The execution that holds the claimed key already is returned instead.

        With `rows` it begins with these steps, in the commit of its header; it is journaled then, and claims no key.
        Nobody owns one that `waits` for its turn, and it is not open here.

        Raises: RequestFailure (REQUEST_ID_CONFLICT, REQUEST_SESSION_BUSY, REQUEST_RESUME_REQUIRED); StorageFailure.
        """
        ...

    def adopt(self, record: Record) -> None:
        """Goes on with a record that another owner, or an earlier run, left. Publishes nothing."""
        ...

    def put(self, execution_id: str, row: Row | None, events: Sequence[Anchored], turn: Sequence[Message] = ()) -> None:
        """Queues one commit; numbers the events. Never waits.

        `turn` is what the session's conversation grows by, with the terminal event.
        """
        ...

    def delta(self, execution_id: str, correlation: CorrelationContext, delta: InferenceDelta) -> None:
        """Publishes a delta behind all that was put before it. Nothing is kept."""
        ...

    async def durable(self, execution_id: str) -> None:
        """Returns when all that was put is committed. What is held in memory becomes journaled by it, unless it ended.

        Raises: StorageFailure; RequestFailure (REQUEST_ID_CONFLICT) when it cannot become journaled.
        """
        ...

    async def load(self, execution_id: str) -> Record | None:
        """What is committed of an execution that is open here."""
        ...

    async def written(self) -> None:
        """Returns when every record that ended so far is written, or given up."""
        ...

    def close(self, execution_id: str) -> None:
        """Nothing more is put here: the execution has ended, or another owner goes on with it."""
        ...


class EventSink(Protocol):
    """Whoever listens to all events: telemetry, live readers."""

    def publish(self, execution_id: str, items: Sequence[Recorded | Live]) -> None:
        """Takes events of one execution, in order. Must not block and must not raise."""
        ...


class Subscription(Protocol):
    """A live reader of one execution, behind a bounded queue. It is read by `next`, or by `notify` and `take`."""

    async def next(self) -> Sequence[Recorded | Live]:
        """All that waits, at least one; empty when the subscription ended."""
        ...

    def notify(self, callback: Callable[[], None] | None) -> None:
        """Calls back whenever something has arrived or the subscription has ended, at once and so in few steps."""
        ...

    def take(self) -> Sequence[Recorded | Live]:
        """All that waits, without waiting."""
        ...

    @property
    def ended(self) -> bool:
        """Whether nothing more will arrive than what waits."""
        ...

    @property
    def overflowed(self) -> bool:
        """Whether the reader was dropped because it fell behind."""
        ...

    def close(self) -> None:
        """The reader leaves. Closing twice is fine."""
        ...


class Watchers(Protocol):
    """Live readers."""

    def watch(self, execution_id: str, *, past_suspension: bool = False) -> Subscription:
        """A reader of all that is published from now on, to the terminal event, or to a suspension before it."""
        ...

    def dismiss(self, execution_id: str) -> None:
        """Ends all readers of that execution behind what waits for them; they may come back."""
        ...

    def dismiss_all_but(self, running: Collection[str]) -> None:
        """The same for every execution that is not one of these."""
        ...

    def watched(self, execution_id: str) -> bool:
        """Whether anybody reads this execution live right now."""
        ...


class Workers(Protocol):
    """Threads for what computes long enough to hold up everybody else, and lets go of the interpreter."""

    async def run(self, work: Callable[[], T]) -> T:
        """What the work returns or raises."""
        ...


class Turns(Protocol):
    """Who does what would hold up everybody else, a piece at a time."""

    async def do(self, work: Pausing[T]) -> T:
        """What the work comes to, or raises."""
        ...


@dataclass(frozen=True, slots=True)
class Ticket:
    """A stored execution that waits for its turn to run. It is of use while the execution is in that epoch."""

    tenant: str
    execution_id: str
    epoch: int


class Runner(Protocol):
    """Who runs executions: admission, in-flight limit, tasks, the line of those that wait, drain."""

    def start(self, execution_id: str, body: Callable[[], Awaitable[None]]) -> None:
        """Runs `body` here and now, in a task of its own, which outlives the caller.

        Raises: RequestFailure (REQUEST_OVERLOADED, REQUEST_SHUTTING_DOWN).
        """
        ...

    async def admit(self) -> None:
        """Makes sure that one more may wait for its turn.

        Raises: RequestFailure (REQUEST_OVERLOADED, REQUEST_SHUTTING_DOWN); StorageFailure.
        """
        ...

    async def queue(self, ticket: Ticket) -> None:
        """Has the execution advanced, here or elsewhere, when its turn comes; once, however often it is queued.

        Raises: StorageFailure.
        """
        ...

    @property
    def draining(self) -> bool: ...
