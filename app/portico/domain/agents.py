"""Agents of the configuration, and the names under which they are tools."""

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Final

from portico.domain.contract.messages import Message
from portico.domain.contract.request import ExecutionHints, Limits, OutputContract
from portico.domain.lifecycle import Mode
from portico.domain.value import value

MAX_AGENT_DEPTH: Final = 4
"""Levels of agents that an execution may call beneath each other."""


@value
class ConfiguredAgent:
    """An agent: its system prompt, and what a request that names it is given and may narrow.

    `tools` are names of tools, agents among them as the tools that they are; it may use no others, and no other
    `skills`. Without a `model` the request chooses one. With a `timezone` the system prompt is a template, and its
    times are those of that zone.
    """

    name: str
    description: str
    system_prompt: str | None = None
    model: str | None = None
    mode: Mode = Mode.CHAT
    tools: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    output: OutputContract = field(default_factory=OutputContract)
    hints: ExecutionHints = field(default_factory=ExecutionHints)
    skills: tuple[str, ...] = ()
    webhooks: tuple[str, ...] = ()
    timezone: str | None = None


@value(slots=False)
class RequestedAgent:
    """The agent of a request as it was at admission.

    `tools` are those that the principal may use; the others are `left_out`. The endpoints of `webhooks` hear of it.
    """

    system_prompt: str | None
    tools: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    webhooks: tuple[str, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages that come before those of the client."""
        return () if self.system_prompt is None else (Message(role="system", content=self.system_prompt),)

    def allowed(self, requested: Sequence[str] | None) -> tuple[str, ...]:
        """Return the tools of the agent that the request allows, all if it names none."""
        return tuple([tool for tool in self.tools if requested is None or tool in requested])


def models_of(agents: Iterable[ConfiguredAgent]) -> list[str]:
    """Return the routes and engines that these agents name."""
    return [agent.model for agent in agents if agent.model is not None]


def cycle_of(edges: Iterable[tuple[str, Iterable[str]]]) -> list[str] | None:
    """Return the names along a cycle of agents, the first one again at its end; None without a cycle."""
    callees = {name: list(called) for name, called in edges}
    done: set[str] = set()

    def walk(name: str, path: list[str]) -> list[str] | None:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return None
        found = next(filter(None, (walk(each, [*path, name]) for each in callees.get(name, ()))), None)
        done.add(name)
        return found

    return next(filter(None, (walk(name, []) for name in callees)), None)
