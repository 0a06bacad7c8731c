"""Executions that a limit ends, in every mode, and a model that answers by what it is asked."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from portico.adapters.engines.scripted import ScriptedEngine
from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.bootstrap.service import PATTERNS
from portico.domain.failures import Code
from portico.domain.lifecycle import Mode
from portico.domain.model_call import EngineCall, Reply
from portico.domain.token_prices import TokenPrices
from portico.orchestration.flow import Context
from portico.orchestration.flow.flow_loop import flow_loop
from portico.orchestration.flow.served_flow import ServedFlow
from portico.orchestration.planning.planner import make_plan
from portico.ports.model import Progress
from portico.ports.runtime import Clock
from tests.support import example_flows
from tests.support.harness import Harness, make_harness, profile

Entry = Mapping[str, Any]
WRITTEN: Final = {"answer_text": "It is grey.", "confidence": 0.5, "used_step_ids": ["quick", "ghost"]}
SYNTHESIS: Final = {"text": json.dumps(WRITTEN)}
SCHEMA: Final = {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}


class RespondingEngine:
    """An engine that answers by what it is asked, so that it may be asked again after a crash.

    `writes` answers the question for a final answer, and `works` all others.
    """

    def __init__(
        self, clock: Clock, works: Callable[[EngineCall], Entry], writes: Entry = SYNTHESIS, **changes: Any
    ) -> None:
        self.profile = profile(changes.pop("name", "default"), **changes)
        self.questions: list[str] = []
        """The user messages of the questions for a final answer."""
        self._clock = clock
        self._works = works
        self._writes = writes

    async def ping(self) -> str:
        return "here"

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        is_asked = call.messages[0].text.startswith("You write the final answer")
        is_synthesis = is_asked or (call.schema or {}).get("title") == "FinalAnswerOutput"
        if is_synthesis:
            self.questions.append(call.messages[-1].text)
        entry = self._writes if is_synthesis else self._works(call)
        return await ScriptedEngine(self.profile, [entry], self._clock).attempt(call, progress, stream=stream)


def as_entry(answer: Any) -> Entry:
    """Return the entry of a script, or one that answers with the value as JSON or with the text."""
    if isinstance(answer, dict) and answer.keys() & {"text", "fault", "delay", "tool_calls"}:
        return answer
    return {"text": answer if isinstance(answer, str) else json.dumps(answer)}


def roll(number: int = 0) -> Entry:
    """Ask for another tool round."""
    usage = {"input_tokens": 700, "output_tokens": 300, "total_tokens": 1000}
    call = {"id": f"call_{number}", "name": "roll_dice", "arguments": {"count": 1, "sides": 6}}
    return {"text": "Rolling.", "tool_calls": [call], "usage": usage}


def rolls(call: EngineCall) -> Entry:
    """Ask for another tool round every time."""
    return roll(len(call.messages))


def slow_for(word: str, entry: Entry, quick: Entry | None = None) -> Callable[[EngineCall], Entry]:
    """Answer at once unless the last message has that word, for which there is never enough time."""

    def works(call: EngineCall) -> Entry:
        is_slow = word in call.messages[-1].text
        return {**entry, "delay": 10_000} if is_slow else (quick or entry)

    return works


@dataclass(frozen=True)
class Limited:
    """A request whose limit is reached, and what is found out until then."""

    request: dict[str, Any]
    works: Callable[[EngineCall], Entry]
    limit: Code
    found: dict[str, Any] = field(default_factory=dict)
    """A part of the results that the final answer is written from."""
    states: str = "INIT PREPARE EXECUTE COMPLETE"
    bounds: dict[str, Any] = field(default_factory=dict)

    @property
    def mode(self) -> Mode:
        return Mode(self.request.get("mode", "chat"))


PLAN: Final = {
    "steps": [
        {"name": "quick", "type": "infer", "input": "Be quick.", "depends_on": []},
        {"name": "slow", "type": "infer", "input": "Be slow.", "depends_on": ["quick"]},
        {"name": "last", "type": "infer", "depends_on": ["slow"]},
    ]
}
GREY: Final = {"text": "Tom is grey."}
CITY: Final = {"text": json.dumps({"city": "Ulm"})}
VALIDATED: Final = "INIT PREPARE EXECUTE VALIDATE COMPLETE"
PLANNED: Final = "INIT PLAN PREPARE EXECUTE VALIDATE COMPLETE"
_I, _B, _T = Code.ORCHESTRATION_ITERATION_LIMIT, Code.ORCHESTRATION_BUDGET_EXCEEDED, Code.CANCELLED_TIMEOUT
_FIRST: Final = {"claim": "c", "argument": "because", "round": 1}
_VOTE: Final = {"mode": "redundant", "output": {"schema": SCHEMA}, "redundancy": {"n": 3, "voting": "unanimity"}}
_STRUCTURED: Final = {"mode": "structured", "output": {"schema": SCHEMA}}


def _flow(name: str, given: Any) -> dict[str, Any]:
    return {"mode": "flow", "messages": [], "flow": {"name": name, "input": given}}


def _votes(call: EngineCall) -> Entry:
    return CITY


LIMITED: Final[Mapping[str, Limited]] = {
    "chat, rounds": Limited({}, rolls, _I, {"draft": "Rolling."}, bounds={"tool_rounds": 2}),
    "chat, tokens": Limited({}, rolls, _B, {"draft": "Rolling."}, bounds={"tokens": 8_000}),
    "chat, cost": Limited({}, rolls, _B, {"draft": "Rolling."}, bounds={"cost": 8.0}),
    "chat, time": Limited({}, slow_for("hello", GREY), _T, bounds={"timeout": 100}),
    "chat, time in a later round": Limited(
        {}, slow_for("Rolled", GREY, roll()), _T, bounds={"timeout": 100}
    ),
    "structured, time": Limited(_STRUCTURED, slow_for("hello", CITY), _T, states=VALIDATED, bounds={"timeout": 100}),
    "structured, tokens": Limited(
        _STRUCTURED | {"tools": ["roll_dice"]}, rolls, _B, states=VALIDATED, bounds={"tokens": 8_000}
    ),
    "plan, time": Limited(
        {"mode": "plan", "plan": PLAN}, slow_for("slow", GREY), _T, {"quick": "Tom is grey."}, PLANNED, {"timeout": 100}
    ),
    "plan, time while it is made": Limited(
        {"mode": "plan"}, slow_for("hello", GREY), _T, states=PLANNED, bounds={"timeout": 100}
    ),
    "plan, time of a step": Limited(
        {"mode": "plan", "plan": PLAN | {"policy": {"timeout_per_step": 20}}},
        slow_for("slow", GREY), _T, {"quick": "Tom is grey."}, PLANNED,
    ),
    "redundant, time": Limited(
        _VOTE | {"redundancy": {"n": 3, "voting": "unanimity", "models": ["default", "slow", "slow"]}},
        _votes, _T, {"votes": [{"replica": 0, "value": {"city": "Ulm"}}]}, VALIDATED, {"timeout": 100},
    ),
    "flow, steps": Limited(
        _flow("debate", {"claim": "c"}), rolls, _I, {"Claim": {"Argument": _FIRST}}, VALIDATED,
        {"flow_steps": 4},
    ),
    "flow, time": Limited(
        _flow("research", {"topic": "sea"}), slow_for("sea", GREY), _T, states=VALIDATED, bounds={"timeout": 100}
    ),
}  # fmt: skip


def salvaging_harness(clock: Clock, limited: Limited, writes: Entry = SYNTHESIS, **changes: Any) -> Harness:
    """Return a harness for that execution; prices are one thousandth for any token."""
    prices = TokenPrices.without_cache(1_000.0, 1_000.0)
    engines = [
        RespondingEngine(clock, works, writes, name=name, price=prices, **{"response_reserve": 500} | changes)
        for name, works in (("default", limited.works), ("slow", slow_for("", CITY)))
    ]
    tools = (*BUILTIN_TOOLS, example_flows.search, example_flows.ask_editor)
    return make_harness(clock, *engines, tools=tools, **limited.bounds)


def pattern_of(limited: Limited) -> tuple[Any, Any]:
    """Return the code that runs the mode, and that makes its plan."""
    if limited.mode is Mode.FLOW:
        graphs = (example_flows.debate(), example_flows.research())
        flows = {graph.name: ServedFlow(graph, Context()) for graph in graphs}

        async def run(context: Any) -> Any:
            return await flow_loop(flows, context)

        return run, None
    return PATTERNS[limited.mode].run, make_plan if limited.mode is Mode.PLAN else None
