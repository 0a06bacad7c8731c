"""Requests with a plan, run without HTTP, and an engine that answers by keyword."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from portico.adapters.engines.scripted import ScriptedEngine
from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import StepReport, SystemResponse
from portico.domain.failures import Code
from portico.domain.journal.events import Event
from portico.domain.lifecycle import Mode
from portico.domain.model_call import EngineCall, Reply
from portico.orchestration.patterns.plan_executor import plan_executor
from portico.orchestration.planning.planner import make_plan
from portico.ports.journal import ExecutionHistory
from portico.ports.model import EngineCapabilities, EngineProfile, Progress
from portico.ports.runtime import Clock
from tests.support.harness import Harness, chat_request, make_harness, profile, replay_offline

SCHEMA = {"type": "object", "required": ["size"], "properties": {"size": {"enum": ["small", "large"]}}}
NATIVE = EngineCapabilities(schema=True, schema_with_tools=True, grammar=True)


def plan_request(*steps: Mapping[str, Any], policy: Mapping[str, Any] | None = None, **fields: Any) -> SystemRequest:
    """Return a request with this plan; by default step i is named `s<i>` and asks a model."""
    named = [{"name": f"s{number}", "type": "infer"} | dict(step) for number, step in enumerate(steps)]
    return chat_request("request", mode=Mode.PLAN, plan={"steps": named, "policy": policy}, **fields)


async def run_plan(here: Harness, request: SystemRequest) -> tuple[SystemResponse, ExecutionHistory]:
    """Return the response and the history, which replays identically."""
    response, record = await here.run(request, plan_executor, make_plan)
    assert replay_offline(record, plan_executor, make_plan) == len(record.steps)
    return response, record


class KeywordEngine:
    """An engine that looks up its answer by the first word of the last user message: a script entry or a list of them.

    The entries of a list are used in turn. Any other message is answered with `re: ` and itself. `calls` has every
    call in order.
    """

    def __init__(self, clock: Clock, name: str = "oracle", **answers: Mapping[str, Any] | Sequence[Mapping[str, Any]]):
        self.profile: EngineProfile = profile(name, capabilities=NATIVE)
        self.calls: list[EngineCall] = []
        self._clock = clock
        self._answers = {
            word: entries if isinstance(entries, Mapping) else list(entries) for word, entries in answers.items()
        }

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        """Answer the last user message."""
        self.calls.append(call)
        text = next((message.text for message in reversed(call.messages) if message.role == "user"), "")
        entry = self._answers.get(text.partition(" ")[0], {"text": f"re: {text}"})
        script = [entry if isinstance(entry, Mapping) else entry.pop(0)]
        return await ScriptedEngine(self.profile, script, self._clock).attempt(call, progress, stream=stream)

    async def ping(self) -> str:
        """Return at once."""
        return "here"


def step_of(response: SystemResponse, number: int = 0) -> StepReport:
    """Return the report of that step."""
    assert response.plan is not None
    return response.plan.steps[number]


def error_code_of(report: StepReport) -> Code | None:
    """Return the error code of the step."""
    return None if report.error is None else report.error.code


def events_of(record: ExecutionHistory, kind: type[Event]) -> list[Any]:
    """Return the events of that type."""
    return [item.event for item in record.events if isinstance(item.event, kind)]


async def run_single_step(
    clock: Clock, step: dict[str, Any], engine: KeywordEngine | None = None, **fields: Any
) -> StepReport:
    """Run a plan of one step and return its report."""
    here = make_harness(clock, engine or KeywordEngine(clock), tools=BUILTIN_TOOLS)
    response, _ = await run_plan(here, plan_request(step, **fields))
    return step_of(response)


async def run_with_input(clock: Clock, value: JsonValue, step: dict[str, Any], **fields: Any) -> SystemResponse:
    """Run a plan whose second step gets that value from the first."""
    first = {"type": "validate", "input": value, "schema": {}}
    here = make_harness(clock, KeywordEngine(clock), tools=BUILTIN_TOOLS, **fields)
    response, _ = await run_plan(here, plan_request(first, step))
    return response
