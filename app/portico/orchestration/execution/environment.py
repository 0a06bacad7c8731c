"""The environment of executions: every port that effects use."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from portico.capabilities.guards.catalogue import NO_GUARDS, GuardCatalogue
from portico.capabilities.limits.quotas import Quota, Quotas
from portico.capabilities.limits.usage_meter import UsageMeter
from portico.capabilities.models.catalogue import EngineCatalogue
from portico.capabilities.models.health import ProviderHealth
from portico.capabilities.prompting.registry import PromptRegistry, default_registry
from portico.capabilities.skills.library import SkillLibrary
from portico.capabilities.tools.agents import NO_AGENTS, AgentCatalogue
from portico.capabilities.tools.client_tools import client_definitions
from portico.capabilities.tools.credentials import CredentialSource
from portico.capabilities.tools.executor import ToolExecutor
from portico.capabilities.tools.registry import ToolRegistry
from portico.domain.access.tool_policy import ToolCaller
from portico.domain.journal.header import ExecutionHeader
from portico.domain.raised_exception import ExceptionReport
from portico.domain.tools import ToolDefinition
from portico.domain.value import value
from portico.ports.code import CodeInterpreter
from portico.ports.events import EventFeed
from portico.ports.files import FileStore
from portico.ports.grants import GrantStore
from portico.ports.journal import Journal
from portico.ports.media import MediaFetcher
from portico.ports.memory import MemorySearch
from portico.ports.model import ModelCallObserver, TokenEstimator
from portico.ports.runtime import Clock, Entropy, ThreadPool
from portico.ports.storage import SessionStore
from portico.ports.validation import AnswerValidator


@value
class Environment:
    """Ports and capabilities that an execution may use.

    `concurrent_inferences` is the number of inferences of one execution that may run at the same time, and
    `suspension_seconds` the time after which a suspension expires.
    """

    journal: Journal
    clock: Clock
    entropy: Entropy
    event_feed: EventFeed
    catalogue: EngineCatalogue
    tool_registry: ToolRegistry
    tool_executor: ToolExecutor
    health: ProviderHealth
    token_estimator: TokenEstimator
    thread_pool: ThreadPool
    answer_validator: AnswerValidator
    conversations: SessionStore
    concurrent_inferences: int
    prompts: PromptRegistry
    quotas: Quotas
    usage: UsageMeter
    agents: AgentCatalogue = NO_AGENTS
    code: CodeInterpreter | None = None
    """The interpreter of code that calls tools; None without one."""
    memory: MemorySearch | None = None
    media: MediaFetcher | None = None
    """Fetches what is behind URLs of messages; None if nothing is fetched."""
    grants: GrantStore | None = None
    """Grants for later calls of tools; None if there are none."""
    credentials: CredentialSource | None = None
    """Credentials of the configuration, which tools present elsewhere; None without any."""
    files: FileStore | None = None
    """Files of sessions and executions; None without them, or if those of a tenant are in one place."""
    guards: GuardCatalogue = NO_GUARDS
    compacts_sessions: bool = False
    """True if turns of a session that do not fit any more are summed up."""
    skills: SkillLibrary | None = None
    suspension_seconds: float = 7 * 24 * 3600
    stream_tool_content: bool = True
    """False if event streams show no arguments and results of tool calls."""
    call_observer: ModelCallObserver | None = None
    on_exception: Callable[[ExceptionReport], None] | None = None
    """Takes exceptions of other people's code to the log."""


ChunkCheck: TypeAlias = Callable[[Environment, Sequence[str]], Awaitable[Mapping[int, str]]]
"""Returns those of the texts of found chunks that a guard refuses, by index, with the name of the guard."""


@value
class Facts:
    """Facts of an execution that follow from its header, found once for a run.

    `quota` has the limits under which the execution was admitted, with those that its tenant has now; it is None
    without, and in an offline replay. The outermost pattern calls tools for the `caller`. `prompts` are those in force,
    in a replay the shipped ones. `client_tools` are the definitions of the tools that the client runs. `code` is the
    interpreter of code that calls tools, and `instant_tools` are the names of tools that wait for nothing; an offline
    replay needs none. The request `has_parts` if a message of it is a list of them.
    """

    quota: Quota | None
    caller: ToolCaller
    prompts: PromptRegistry
    client_tools: tuple[ToolDefinition, ...] = ()
    code: CodeInterpreter | None = None
    has_parts: bool = False
    instant_tools: frozenset[str] = frozenset()


def facts_of(header: ExecutionHeader, environment: Environment | None) -> Facts:
    """Return the facts of the execution; without an environment those of an offline replay."""
    caller = ToolCaller(header.tenant, header.user, header.key_id, header.request.agent, header.channel)
    client_tools = client_definitions(header.request.client_tools) if header.request.client_tools else ()
    has_parts = False
    for message in header.request.messages:
        has_parts = has_parts or message.content.__class__ is list
    if environment is None:
        return Facts(None, caller, default_registry(), client_tools, has_parts=has_parts)
    quota = environment.quotas.of(header.tenant, header.key_id, header.key_limits)
    instant = environment.tool_registry.by_kind.instant
    return Facts(quota, caller, environment.prompts, client_tools, environment.code, has_parts, instant)
