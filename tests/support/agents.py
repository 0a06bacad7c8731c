"""A harness whose executions are those of an agent that calls others."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from portico.capabilities.models.catalogue import EngineCatalogue
from portico.capabilities.tools.agents import AgentCatalogue
from portico.domain.agents import ConfiguredAgent, RequestedAgent
from portico.domain.contract.response import SystemResponse
from portico.domain.journal.outcomes import AttemptSucceeded
from portico.domain.tools import tool_of
from portico.orchestration.execution.execution import Execution
from portico.ports.journal import ExecutionHistory
from tests.support.harness import Harness, chat_request, make_harness, response_of, scripted_engine, watch_commits
from tests.support.stored_journal import CommittingJournal
from tests.support.tools import FakeTool
from tests.support.virtual_time import VirtualClock


def agent(name: str, *tools: str, **fields: Any) -> ConfiguredAgent:
    """Return an agent with these tools, whose model is the engine `inner`."""
    given = {"system_prompt": f"You are {name}.", "model": "in", "tools": tuple(map(tool_of, tools))} | fields
    return ConfiguredAgent(name, f"Does {name}.", **given)


def asks(*called: tuple[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return a reply that calls these tools; agents by their references."""
    return {"tool_calls": [{"name": tool_of(name), "arguments": dict(arguments)} for name, arguments in called]}


def to(name: str, message: str = "go") -> tuple[str, dict[str, Any]]:
    """Return a call of that agent."""
    return f"agent:{name}", {"message": message}


def calls_made(response: SystemResponse) -> list[tuple[str, str | None, str | None, bool]]:
    """Return the name, the step, the result and the success of each call."""
    return [(call.name, call.step_name, call.result, call.is_error) for call in response.tool_calls_made]


class AgentWorld:
    """Engines `outer` and `inner` that answer from scripts, agents, tools, and executions of an agent `outer`."""

    def __init__(
        self,
        clock: VirtualClock,
        agents: Sequence[ConfiguredAgent],
        tools: Sequence[FakeTool] = (),
        *,
        outer: Sequence[Mapping[str, Any]] = (),
        inner: Sequence[Mapping[str, Any]] = (),
        commits: bool = False,
        **bounds: Any,
    ) -> None:
        self._given = (clock, agents, tools)
        self._scripts, self._bounds = {"outer": outer, "inner": inner}, bounds
        engines = {name: scripted_engine(clock, name, *script) for name, script in self._scripts.items()}
        catalogue = AgentCatalogue(agents)
        made = make_harness(
            clock,
            *engines.values(),
            tools=[*tools, *catalogue.tools(tool.info() for tool in tools)],
            **({"tool_calls": 200} | bounds),
        )
        routes = EngineCatalogue(engines, {"default": ["outer"], "in": ["inner"]})
        environment = replace(made.environment, agents=catalogue, catalogue=routes)
        self.harness = Harness(environment, made.bus, made.log, made.journal, replace(made.limits, max_retries=0))
        if commits:
            watch_commits(self.harness)

    @property
    def journal_commits(self) -> list[tuple[ExecutionHistory, int]]:
        """The histories after every commit."""
        assert isinstance(self.harness.journal, CommittingJournal)
        return self.harness.journal.commits

    def again(self, record: ExecutionHistory) -> "AgentWorld":
        """Return another process, whose engines go on behind the replies that were recorded."""
        replies = [step for step in record.steps.values() if isinstance(step.outcome, AttemptSucceeded)]
        left = {
            name: script[sum(step.fingerprint.split(":")[1] == name for step in replies) :]
            for name, script in self._scripts.items()
        }
        return AgentWorld(*self._given, **left, **self._bounds)

    def start(
        self, *tools: str, request: Mapping[str, Any] | None = None, header: Mapping[str, Any] | None = None
    ) -> Execution:
        """Return an execution of an agent with these tools."""
        named = RequestedAgent("You are outer.", tuple(map(tool_of, tools)))
        return self.harness.execution(
            chat_request("hello", **(request or {})), **({"agent": named} | dict(header or {}))
        )

    async def run(self, *tools: str, **fields: Any) -> tuple[SystemResponse, ExecutionHistory]:
        """Run an execution of an agent with these tools to its end."""
        execution = self.start(*tools, **fields)
        await self.harness.drive(execution)
        return response_of(execution), self.harness.record(execution)
