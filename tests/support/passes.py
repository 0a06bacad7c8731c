"""Multi-pass reasoning without HTTP: requests, and an engine that answers each phase from a script of its own."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from portico.adapters.engines.scripted import ScriptedEngine
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import SystemResponse
from portico.domain.journal.events import PassEnd
from portico.domain.lifecycle import Mode
from portico.domain.model_call import EngineCall, Reply
from portico.orchestration.planning.plan_mode import make_plan, run_plan
from portico.ports.journal import ExecutionHistory
from portico.ports.model import EngineProfile, Progress
from portico.ports.runtime import Clock
from tests.support.harness import Harness, chat_request, profile, replay_offline
from tests.support.plans import NATIVE, events_of

PROFILE = {
    "reasoning_depth": 3,
    "information_sufficiency": 0.5,
    "expected_tool_usage": "moderate",
    "output_breadth": "moderate",
    "confidence_requirement": "medium",
}
"""A profile that is worth four passes."""
SOUND = {"issues": [], "overall_severity": "LOW"}
AGREED = {"plan": True, "step": True, "answer": True, "memory": True}
DONE = {"converged": True, "completeness_score": 1.0, "coherence_score": 1.0, "consistency_status": AGREED}
NOT_DONE = DONE | {"converged": False, "completeness_score": 0.5, "reason_codes": ["missing_part"]}
ANSWER = {"answer_text": "The answer.", "confidence": 0.9, "used_step_ids": ["first"]}
FIRST = {"name": "first", "type": "infer", "input": "first question"}
PHASES: Mapping[str, str] = {
    "TaskProfileOutput": "profile",
    "PlanGenerationOutput": "plan",
    "SemanticCheckOutput": "check",
    "ConvergenceAssessmentOutput": "assess",
    "RecursiveRefinementOutput": "refine",
    "FinalAnswerOutput": "answer",
}
"""The phase that asks for an output, by its name."""
USUAL: Mapping[str, Any] = {
    "profile": PROFILE,
    "plan": {"steps": [FIRST]},
    "check": SOUND,
    "assess": DONE,
    "refine": {"refinements": []},
    "answer": ANSWER,
}


def add(name: str, **fields: Any) -> dict[str, Any]:
    """Return the refinement that adds a step, by default one that asks a model."""
    step = {"name": name, "type": "infer", "input": f"question of {name}", "depends_on": []} | fields
    return {"action": "ADD", "new_step": step}


def refinements(*changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a question for refinements."""
    return {"refinements": list(changes)}


def question_of(call: EngineCall) -> str:
    """Return the task that the last message quotes; else the message."""
    text = call.messages[-1].text
    task = re.search(r"^<task-([0-9a-f]{8})>\n(.*?)\n</task-\1>$", text, re.MULTILINE | re.DOTALL)
    return task[2] if task else text


class PhasesEngine:
    """An engine that answers each phase from a script of its own, whose last entry is used for the rest.

    An entry is a value, which is answered as JSON, a text, or a script entry with `fault`. `step` is for steps; without
    it they are answered with `re: ` and the question. `asked` has the phases and `calls` the calls, in order.
    """

    def __init__(self, clock: Clock, **scripts: Any) -> None:
        self.profile: EngineProfile = profile("oracle", capabilities=NATIVE, context_window=1_000_000)
        self.asked: list[str] = []
        self.calls: list[EngineCall] = []
        self._clock = clock
        self._scripts = {
            phase: list(script) if isinstance(script, list) else [script] for phase, script in (USUAL | scripts).items()
        }

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        """Answer the phase that asks."""
        phase = PHASES.get(str((call.schema or {}).get("title")), "step")
        self.asked.append(phase)
        self.calls.append(call)
        script = self._scripts.get(phase, [f"re: {question_of(call)}"])
        entry = script.pop(0) if len(script) > 1 else script[0]
        if not (isinstance(entry, dict) and entry.keys() & {"fault", "delay", "text", "tool_calls"}):
            entry = {"text": entry if isinstance(entry, str) else json.dumps(entry)}
        return await ScriptedEngine(self.profile, [entry], self._clock).attempt(call, progress, stream=stream)

    async def ping(self) -> str:
        """Return at once."""
        return "here"


def reasoning(
    passes: int = 4, steps: Sequence[Mapping[str, Any]] | None = None, *, text: str = "Ask", **fields: Any
) -> SystemRequest:
    """Return a request for so many passes, with a plan of its own if there are steps."""
    plan = {"passes": passes, "steps": None if steps is None else list(steps)} | fields.pop("plan", {})
    return chat_request(text, mode=Mode.PLAN, plan=plan, **fields)


async def run_passes(here: Harness, request: SystemRequest) -> tuple[SystemResponse, ExecutionHistory]:
    """Return the response and the history, which replays identically."""
    response, record = await here.run(request, run_plan, make_plan)
    assert replay_offline(record, run_plan, make_plan) == len(record.steps)
    return response, record


def pass_ends(record: ExecutionHistory) -> list[PassEnd]:
    """Return the ends of the passes."""
    return events_of(record, PassEnd)
