"""Settings of a branch, which its pattern hands on with changes."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Final, NamedTuple

from portico.capabilities.prompting.prompts.assessment import SemanticCheckOutput
from portico.capabilities.prompting.prompts.task_profile import TaskProfileOutput
from portico.capabilities.prompting.template import fill_template
from portico.domain.access.principal import ALL, Permissions
from portico.domain.access.tool_policy import ToolCaller
from portico.domain.agents import ConfiguredAgent
from portico.domain.contract.messages import Message, last_question
from portico.domain.contract.request import ExecutionHints, OutputContract, RedundancyOptions
from portico.domain.ids import ToolCallId
from portico.domain.journal.events import CorrelationContext
from portico.domain.journal.fork import Fork
from portico.domain.journal.header import EffectiveLimits, ExecutionHeader
from portico.domain.journal.outcomes import Plan, PlanningInputs
from portico.domain.journal.step_key import StepKey
from portico.domain.lifecycle import Mode
from portico.domain.pattern_result import PatternResult
from portico.domain.tools import Caller, ToolDefinition
from portico.domain.value import replace, value
from portico.orchestration.execution.environment import ChunkCheck, Environment
from portico.ports.tool import FlowContext

DEFAULT_REDUNDANCY: Final = RedundancyOptions()


class AgentPattern(NamedTuple):
    """A pattern that the call of an agent may run, with its version; `run` takes the agent's context."""

    run: Callable[..., Awaitable[PatternResult | str]]
    version: int


@value
class ReasoningStart:
    """The state before the first pass over a plan: the passes that it may have, the profile of its task, the inputs of
    planning, the semantic check of the plan if there is one, and how often the plan was refined.
    """

    ttl: int
    profile: TaskProfileOutput
    inputs: PlanningInputs
    semantic_check: SemanticCheckOutput | None = None
    refinements: int = 0


@value
class BranchSettings:
    """Settings of a branch.

    Tools are called for the `caller`, whose agent is the one that acts in the branch: that of the request until another
    one is entered. `messages` begin its conversation. `tools` may be offered; `allowed_tools` are those that the
    request and its agent allow, `requested_tools` those that the request itself names, for agents at any depth: all if
    it is None, within the `permissions` of the principal. `model` is the route or engine that is asked. `replica` is
    the number of the branch where several answer the same question. `plan` was made at `planned_at`, in Unix seconds.
    Its steps run in pass `pass_number`, if there are several. The execution began at `started_at`. A side question is
    no part of the response.
    """

    output: OutputContract
    hints: ExecutionHints
    correlation: CorrelationContext
    caller: ToolCaller
    messages: Sequence[Message] = ()
    tools: Sequence[str] = ()
    allowed_tools: Sequence[str] | None = None
    requested_tools: Sequence[str] | None = None
    permissions: Permissions = ALL
    redundancy: RedundancyOptions = DEFAULT_REDUNDANCY
    model: str | None = None
    replica: int | None = None
    pass_number: int | None = None
    plan: Plan | None = None
    planned_at: float = 0.0
    started_at: float = 0.0
    reasoning: ReasoningStart | None = None
    is_side_question: bool = False
    submit: ToolDefinition | None = None
    """The tool with which the model hands in its answer, offered beside the others; the pattern answers its call."""
    client_tools: Sequence[ToolDefinition] = ()
    """The tools that are offered beside the others and that the client runs."""
    tool_id_prefix: str = ""
    """The beginning of the `tool_id` of every suspended call."""
    agent_patterns: Mapping[Mode, AgentPattern] = field(default_factory=dict)
    """The patterns of the agents that calls may run, by mode."""
    agent_depth: int = 0
    """The number of agents that called each other down to this branch."""
    agent_limits: EffectiveLimits | None = None
    """The limits of an agent that a call runs; None for those of the execution."""
    chunk_check: ChunkCheck | None = None
    """The check of what searches find by the guards of the request; None without a check."""
    code_call: ToolCallId | None = None
    """The call whose code makes the calls of this branch; None if no code does."""
    flow: FlowContext | None = None
    """The context of the flow whose agent acts in the branch; None outside of a flow."""
    barriers: tuple[StepKey, ...] = ()
    """The calls that this branch is within and that began after the earlier calls of their rounds had ended."""

    @property
    def is_strict(self) -> bool:
        """True if an answer that breaks a rule, or that a judge rejects, is a failure after its last attempt."""
        return self.output.strict_validation

    @property
    def last_user_text(self) -> str:
        """The text of the last user message; empty if there is none."""
        return last_question(self.messages)

    def allows_tool(self, name: str) -> bool:
        """Return True if the request and the rights of its principal let a tool of that name be called."""
        return (self.allowed_tools is None or name in self.allowed_tools) and self.permissions.allows_tool(name)

    def caller_in(self, header: ExecutionHeader) -> Caller:
        """Return for whom code of other people acts in the branch of this execution."""
        return Caller(
            header.tenant,
            header.user,
            header.request.session_id,
            header.request_id,
            header.key_id,
            self.caller.agent,
            header.channel,
            self.correlation.step_name,
            header.request.metadata,
        )

    def prompt_of(self, agent: ConfiguredAgent, header: ExecutionHeader) -> str | None:
        """Return the system prompt of an agent that is entered in the branch of this execution."""
        if agent.system_prompt is None or agent.timezone is None:
            return agent.system_prompt
        caller = replace(self.caller_in(header), agent=agent.name)
        return fill_template(agent.system_prompt, agent.timezone, self.started_at, caller)

    def with_fork(self, fork: Fork) -> "BranchSettings":
        """Return the settings with what the fork overrides."""
        tools = self.tools if fork.tools is None else fork.tools
        return replace(
            self,
            permissions=fork.permissions,
            model=fork.model or self.model,
            hints=merge_hints(self.hints, fork.hints),
            tools=fork.permissions.permitted_tools(tools),
            allowed_tools=self.allowed_tools if fork.tools is None else fork.tools,
            requested_tools=self.requested_tools if fork.tools is None else fork.tools,
        )


def merge_hints(hints: ExecutionHints, others: ExecutionHints | None) -> ExecutionHints:
    """Return the hints with those of the others that are not absent."""
    return hints.model_copy(update={name: value for name, value in others or () if value is not None and value != {}})


def permitted_tools(environment: Environment, settings: BranchSettings, names: Sequence[str]) -> list[str]:
    """Return those of the tools that policy offers in the branch now; a replica is offered none that acts or waits."""
    registry, caller = environment.tool_registry, settings.caller
    is_replica = settings.replica is not None
    return [
        name
        for name in names
        if registry.policy.offers(name, caller) and not (is_replica and not registry.may_replicate(name))
    ]
