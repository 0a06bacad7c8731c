"""Tools: their definition for the model and their safety for the service."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias

from portico.domain.ids import API, ChannelName, KeyId, RequestId, SessionId, TenantId, UserId
from portico.domain.value import value

AGENT_PREFIX: Final = "agent:"
"""Beginning of an agent's name in lists of tools: `agent:NAME`."""
AGENT_TOOL_PREFIX: Final = "agent__"
"""Beginning of the name of the tool that an agent is: `agent__NAME`."""
STEP_PREFIX: Final = "step:"
"""Beginning of the name under which a step type of a module runs, as a tool does: `step:NAME`. No tool has a colon."""
ArgumentViolation: TypeAlias = tuple[str, str]
"""Reason why a call has impossible arguments: the path, such as `arguments.count`, and a message without the value."""


PERSON: Final = "person"
"""Requirement of a tool that waits for the answer of a person."""


REPLICA_RULE: Final = "every replica would call it, and it acts or waits for a person"
"""Reason why a tool is refused where several replicas answer one question."""


class ServerFault(StrEnum):
    """Reasons why a server of tools cannot be used. They are the words that clients read."""

    NOT_STARTED = "not started"
    NO_ANSWER = "no answer"
    REFUSED = "refused"
    WRONG_PROTOCOL = "wrong protocol"


@value
class ToolServerStatus:
    """State of a server of tools: how many tools it has listed, and its fault if it cannot be used now.

    `detail` is for operators: it may name a command or a URL.
    """

    name: str
    tools: int
    fault: ServerFault | None = None
    detail: str = ""


class SideEffects(StrEnum):
    """Effect of a call on the outside world."""

    NONE = "none"
    READ = "read"
    WRITE = "write"
    EXTERNAL = "external"


class IsolationLevel(StrEnum):
    """Levels of isolation of a program that the service starts, the strongest first."""

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"
    LIMITS = "limits"


@value
class LevelState:
    """State of a level on this machine: the version of what makes it, and the reason if it does not start."""

    version: str = ""
    reason: str = ""


INTERPRETER: Final = "interpreter"
"""Isolation of code that an interpreter runs which has no system calls of its own."""


class NetworkAccess(StrEnum):
    """Hosts that a program reaches: none at all, or those that the service reaches."""

    NONE = "none"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Caller:
    """Caller for whom a tool acts: its tenant and user, its session if it has one, and its execution's request_id.

    `agent` is the one that acts, and `step_name` the step of a plan or the node of a flow in which it does. `metadata`
    are those of the request, so the client's. `key_id` is None without a key.
    """

    tenant: TenantId
    user: UserId
    session_id: SessionId | None
    request_id: RequestId
    key_id: KeyId | None = None
    agent: str | None = None
    channel: ChannelName = API
    step_name: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class ToolDefinition:
    """Definition that the model sees: `parameters` is a JSON Schema of an object.

    A tool returns the same object every time, so that values derived from it can be cached by identity.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolInfo:
    """Facts about a tool for the service. `timeout` is the tool's own limit in seconds; None for the deadline alone.

    `identity` stands for what a call reaches, such as a command or a URL: an approval does not outlive its change.
    `containment` is a sentence about how a call is contained; empty for one that runs in this process. `original_name`
    is the name at its server, if the tool is one of a server. `isolation` and `network` are those of a tool that
    starts a program. The same call of a `repeatable` one needs no approval, since it reaches its caller's files only.
    `credentials` are the names of those that it may have. A call of an `instant` one ends without waiting for anything,
    and touches nothing.
    """

    name: str
    type: str
    description: str
    side_effects: SideEffects
    idempotent: bool
    requires: tuple[str, ...] = ()
    timeout: float | None = None
    identity: str = ""
    containment: str = ""
    original_name: str = ""
    isolation: IsolationLevel | Literal["interpreter"] | None = None
    network: NetworkAccess | None = None
    repeatable: bool = False
    credentials: tuple[str, ...] = ()
    instant: bool = False

    @property
    def unsafe(self) -> bool:
        """Return True if a second run could act twice: not idempotent, with an effect on the outside world."""
        return not self.idempotent and self.side_effects in {SideEffects.WRITE, SideEffects.EXTERNAL}


@dataclass(frozen=True, slots=True)
class Availability:
    """Current availability of a tool, with the reason if it cannot run."""

    available: bool
    reason: str = ""


@value(slots=False)
class OfferedTool:
    """Tool as one inference offered it. Calls of an `unsafe` one are barriers; with `approval` each call waits for a
    person. `digest` is that of its source and definition. A call of an `agent` runs that agent, one of `code` the code
    in its arguments. Policy decides each call of one that is `decided`, and the decision is recorded. The results of a
    `trusted` one count as trusted text. The client runs one that is a `client` tool.
    """

    name: str
    unsafe: bool
    idempotent: bool = False
    approval: bool = False
    digest: str = ""
    agent: bool = False
    decided: bool = False
    trusted: bool = False
    client: bool = False
    code: bool = False


def concurrent_groups(names: Sequence[str], unsafe: frozenset[str]) -> list[list[int]]:
    """Return the calls of one reply as groups that may run concurrently, as indexes in call order.

    An unsafe call is a barrier: it is alone in its group, all calls before it have ended and none after it has begun.
    """
    groups: list[list[int]] = []
    barrier = True
    for index, name in enumerate(names):
        alone = name in unsafe
        if alone or barrier:
            groups.append([index])
        else:
            groups[-1].append(index)
        barrier = alone
    return groups


def tool_of(reference: str) -> str:
    """Return the name of the tool that a list of tools refers to; that of an agent may be written `agent:NAME`."""
    is_agent = reference.startswith(AGENT_PREFIX)
    return AGENT_TOOL_PREFIX + reference.removeprefix(AGENT_PREFIX) if is_agent else reference


def agent_of(tool: str) -> str | None:
    """Return the name of the agent that the tool is; None for any other tool."""
    return tool.removeprefix(AGENT_TOOL_PREFIX) if tool.startswith(AGENT_TOOL_PREFIX) else None


def reference_of(tool: str) -> str:
    """Return the name of the tool as lists of tools and permissions have it."""
    agent = agent_of(tool)
    return tool if agent is None else AGENT_PREFIX + agent
