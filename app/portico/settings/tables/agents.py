"""Agents of the configuration: their tables, and checks between them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from portico.capabilities.prompting.template import check_template
from portico.domain.agents import ConfiguredAgent, cycle_of
from portico.domain.contract.constrained_types import MAX_SKILLS, MAX_WEBHOOKS, ToolReference, WebhookName
from portico.domain.contract.request import ExecutionHints, Limits, OutputContract
from portico.domain.lifecycle import Mode
from portico.domain.time_zones import require_time_zone
from portico.domain.tools import agent_of
from portico.settings.tables.skills import SkillName


def _prompt_file(path: str) -> str:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    if not text.strip():
        raise ValueError("is empty")
    return path


AgentName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]{1,57}$")]
"""The name of an agent; `agent__NAME` is the name of a tool, of at most 64 characters."""
Text = Annotated[str, StringConstraints(min_length=1)]
PromptFile = Annotated[str, AfterValidator(_prompt_file)]


class AgentSettings(BaseModel):
    """An agent: a system prompt, and what goes with it, under one name."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True)

    description: Text = Field(description="What the agent does, for people and for the models that may call it")
    system_prompt: Text | None = Field(None, description="System prompt")
    system_prompt_file: PromptFile | None = Field(None, description="File that holds the system prompt, read at start")
    template: bool = Field(
        False, description="True if places in the system prompt are filled at the start: `{date}`, `{user}`, …"
    )
    timezone: Annotated[str, AfterValidator(require_time_zone)] = Field(
        "UTC", description="Time zone of the places `{date}`, `{time}` and `{weekday}`"
    )
    model: Text | None = Field(None, description="Route or engine; absent: the request's or its session's")
    mode: Literal["chat", "structured", "redundant", "plan"] = Field("chat", description="Mode of its executions")
    tools: Annotated[tuple[ToolReference, ...], Field(strict=False)] = Field(
        (), description="Tools that it may use, and no others; `agent:NAME` is another agent"
    )
    skills: Annotated[tuple[SkillName, ...], Field(max_length=MAX_SKILLS, strict=False)] = Field(
        (), description="Skills that it reads as far as they fit, and no others; `context.skills` may narrow them"
    )
    webhooks: Annotated[tuple[WebhookName, ...], Field(max_length=MAX_WEBHOOKS, strict=False)] = Field(
        (), description="Endpoints of `[webhooks]` that hear of its executions, beside those that hear of all"
    )
    limits: Limits = Field(default_factory=Limits, description="Limits of its executions, as in a request")
    output: OutputContract = Field(default_factory=OutputContract, description="Output contract, as in a request")
    hints: ExecutionHints = Field(default_factory=ExecutionHints, description="Hints that a request does not give")

    def _prompt(self) -> str | None:
        if self.system_prompt_file is None:
            return self.system_prompt
        return Path(self.system_prompt_file).read_text(encoding="utf-8").strip()

    def template_errors(self) -> Iterator[tuple[str, str]]:
        """Yield why the system prompt is no template, with the key, unless it is one or is to be none."""
        if not self.template:
            if "timezone" in self.model_fields_set:
                yield "timezone", "has no meaning without template = true"
            return
        prompt, key = self._prompt(), "system_prompt" if self.system_prompt_file is None else "system_prompt_file"
        if prompt is None:
            yield "template", "must be false without a system_prompt or a system_prompt_file"
            return
        try:
            check_template(prompt)
        except ValueError as error:
            yield key, str(error)

    def agent(self, name: str) -> ConfiguredAgent:
        """Return the agent. Raises: OSError if the file of its prompt cannot be read any more."""
        return ConfiguredAgent(
            name=name,
            description=self.description,
            system_prompt=self._prompt(),
            timezone=self.timezone if self.template else None,
            model=self.model,
            mode=Mode(self.mode),
            tools=self.tools,
            skills=self.skills,
            webhooks=self.webhooks,
            limits=self.limits,
            output=self.output,
            hints=self.hints,
        )


def agent_errors(agents: Mapping[str, AgentSettings]) -> Iterator[tuple[str, str]]:
    """Yield the errors of agents and of the agents that they call, each with its key."""
    for name, agent in agents.items():
        here = f"agents.{name}"
        if agent.system_prompt is not None and agent.system_prompt_file is not None:
            yield f"{here}.system_prompt_file", f"must not be set together with {here}.system_prompt"
        yield from ((f"{here}.{key}", message) for key, message in agent.template_errors())
        if len(set(agent.tools)) < len(agent.tools):
            yield f"{here}.tools", "must not name a tool twice"
        if len(set(agent.skills)) < len(agent.skills):
            yield f"{here}.skills", "must not name a skill twice"
        if agent.skills and agent.mode == "plan":
            yield f"{here}.skills", "has no effect in mode plan"
        for index, called in enumerate(map(agent_of, agent.tools)):
            if called is not None and called not in agents:
                yield f"{here}.tools.{index}", "must name an agent of the configuration"
            elif called is not None:
                yield from ((f"{here}.tools.{index}", why) for why in _misuses(called, agents[called]))
    edges = ((name, [called for tool in agent.tools if (called := agent_of(tool))]) for name, agent in agents.items())
    cycle = cycle_of(edges)
    if cycle is not None:
        yield f"agents.{cycle[0]}.tools", f"must not lead back to the agent itself: {' -> '.join(cycle)}"


def _misuses(name: str, agent: AgentSettings) -> Iterator[str]:
    """Yield the reasons why another agent cannot call this one."""
    if agent.mode == "plan":
        yield f"must not name {name}: an agent of mode plan is no tool"
    if agent.mode in {"structured", "redundant"} and agent.output.schema_ is None and agent.output.grammar is None:
        yield f"must not name {name}: its mode {agent.mode} needs agents.{name}.output.schema"
