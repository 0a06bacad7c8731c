"""Tool port: tools, their context and errors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import IO, Any, Protocol, TypeAlias, TypeVar

from pydantic import JsonValue

from portico.domain.ids import IdempotencyKey, ToolCallId
from portico.domain.tools import Availability, Caller, ToolDefinition, ToolInfo, ToolServerStatus
from portico.domain.value import value
from portico.ports.runtime import Clock, Entropy

T = TypeVar("T")
OnProgress: TypeAlias = Callable[[float, str], None]
"""Takes how far a call is, from 0 to 1, with a message; on any thread."""


class ToolThreads(Protocol):
    """Threads for the blocking functions of tools, which nothing can stop."""

    @property
    def is_exhausted(self) -> bool:
        """Return True if calls that never returned hold every thread."""
        ...

    async def run(self, work: Callable[[], T]) -> T:
        """Do the work on a thread and return what it returns; a cancelled call abandons its thread.

        Raises: what the work raises.
        """
        ...


class FlowContext(Protocol):
    """Surroundings of a flow's functions, as the tools of its agents see them."""

    working_dir: Path
    commands: frozenset[str]
    http_timeout: float

    def resolve(self, path: str | Path) -> Path:
        """Return the canonical path beneath the working directory."""
        ...

    def open(self, path: str | Path, mode: str = "r") -> IO[Any]:
        """Open a regular file beneath the working directory, in a mode of the built-in `open`; text is UTF-8."""
        ...

    def check_command(self, command: str) -> None:
        """Raise an error unless the flow may run the command."""
        ...

    def require(self, kind: type[T]) -> T:
        """Return the first dependency of that type."""
        ...


@value
class ToolContinuation:
    """The answer to a tool's question, and the state that the tool gave with it."""

    state: str
    answer: JsonValue


class ToolCredentials(Protocol):
    """Credentials that the tool of a running call declares.

    Raises, in every method: ToolError for one that it does not; CredentialNeeded without a value that a person can
    give; CredentialUnavailable without any other.
    """

    async def value(self, name: str) -> str:
        """Return the value."""
        ...

    async def header(self, name: str) -> tuple[str, str]:
        """Return the header in which the value is sent, and its text. Raises: ToolError for one that cannot be sent."""
        ...

    async def renew(self, name: str) -> tuple[str, str]:
        """Return the header with another value after a 401, once a call; after a second one it raises."""
        ...


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Environment of a running tool. `seconds_left` is its time limit; `clock` and `entropy` are its only sources of
    time and chance.

    `idempotency_key` is the same for every attempt at this call, in every process, and for no other call. `threads` run
    blocking functions; None outside of the service. `continuation` is there if the call goes on after a question.
    `caller` is for whom the tool acts; None outside of an execution. `flow` is the context of the flow whose agent
    calls the tool; None outside of a flow.
    """

    tool_call_id: ToolCallId
    seconds_left: float
    clock: Clock
    entropy: Entropy
    idempotency_key: IdempotencyKey
    threads: ToolThreads | None = None
    continuation: ToolContinuation | None = None
    caller: Caller | None = None
    on_progress: OnProgress | None = None
    flow: FlowContext | None = None
    credentials: ToolCredentials | None = None

    async def credential(self, name: str) -> str:
        """Return the value of a credential that the tool declares, for its caller.

        Without a value the call waits for one, and the tool is called again. Raises: ToolError for a credential that it
        does not declare.
        """
        return await self.credentials_of(name).value(name)

    def credentials_of(self, name: str) -> ToolCredentials:
        """Return what has the credential of that name. Raises: ToolError where there are none."""
        if self.credentials is None:
            raise ToolError(f"the tool does not declare the credential {name!a:.80}")
        return self.credentials

    def progress(self, progress: float, message: str = "") -> None:
        """Tell those who watch how far the call is, from 0 to 1, and in words of at most 500 characters.

        Of more than five reports a second some are left out, but not the last one of the call. Nothing of them is
        stored. It may be called on a thread of the service, too. Raises: ValueError for what is no number.
        """
        if isnan(progress):
            raise ValueError("progress must be a number from 0 to 1")
        if self.on_progress is not None:
            self.on_progress(min(1.0, max(0.0, float(progress))), message)


class ToolError(Exception):
    """Error of a tool; its text is for the model."""

    @staticmethod
    def suspend(value: JsonValue, state: str | None = None) -> "ToolSuspended":
        """Return an exception to raise in order to ask a question; the answer becomes the result of the call.

        With a `state` of at most 64 KiB the tool is called again instead, with the same arguments; then the context's
        `continuation` has the answer and the state.
        """
        return ToolSuspended(value, state)


class ToolSuspended(ToolError):  # noqa: N818 - a question, not an error
    """Question of a tool that must be answered from outside before the call has a result."""

    credential: str | None = None
    """The credential that is asked for; None for a question of the tool itself."""

    def __init__(self, value: JsonValue, state: str | None = None) -> None:
        super().__init__("the tool waits for an answer")
        self.value = value
        self.state = state


class CredentialNeeded(ToolSuspended):
    """Question for the value of a credential; the tool is called again when there is one."""

    def __init__(self, name: str, kind: str, description: str) -> None:
        super().__init__({"credential": name, "type": kind, "description": description}, "")
        self.credential = name


class CredentialUnavailable(ToolError):  # noqa: N818 - a state, which passes
    """A credential has no value that can be used, and no person is asked for one."""


class ToolOutcomeUnknown(ToolError):  # noqa: N818 - the call may have succeeded
    """The call was sent and its connection was lost: nothing here knows whether it has acted."""


class Tool(Protocol):
    """Tool as the service calls it: the four methods of the tool seed."""

    def info(self) -> ToolInfo: ...

    def definition(self) -> ToolDefinition: ...

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Run with arguments that match the definition, and return the text for the model, or a value that is shown to
        it as JSON. Raises: ToolError, with a text for the model.
        """
        ...

    def available(self) -> Availability: ...


class ToolSource(Protocol):
    """Origin of tools, such as the modules or the MCP servers of the configuration."""

    @property
    def name(self) -> str:
        """Return the name of the source, as messages and views show it."""
        ...

    @property
    def tools(self) -> Sequence[Tool]:
        """Return the tools that the source has now: the same object until they change."""
        ...

    @property
    def servers(self) -> Sequence[ToolServerStatus]:
        """Return the state of each server that the source lists tools of; none for tools of this process."""
        ...
