"""Answers to the questions of reasoning in passes: a plain profile, no faults, and an assessment by what has run.

A plan converges once a step has completed, none failed, and as many steps were added as the directive `[[again:2]]` in
the request asks for. Without a model nothing is judged; the directive shows passes, refinements and their end.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import orjson
from pydantic import TypeAdapter, ValidationError

from portico.capabilities.prompting.prompts.answer import FinalAnswerOutput
from portico.capabilities.prompting.prompts.assessment import ConvergenceAssessmentOutput, SemanticCheckOutput
from portico.capabilities.prompting.prompts.planning import PlanStepState
from portico.capabilities.prompting.prompts.recursion import RecursiveRefinementOutput
from portico.capabilities.prompting.prompts.task_profile import DEFAULT_PROFILE, TaskProfileOutput

Quoted: TypeAlias = Mapping[str, str]
_AGAIN: Final = re.compile(r"\[\[again(?::(\d{1,2}))?\]\]")
_ADDED: Final = "again-"
_NO_MODEL: Final = "This is the rehearsal engine, no model was asked."
_STEPS: Final = TypeAdapter(list[PlanStepState])


def answer_phase(schema: Mapping[str, Any], quoted: Quoted) -> dict[str, Any] | None:
    """Return an answer for the question with that schema, from what its prompt quotes; None for any other schema."""
    answer = _ANSWERS.get(str(schema.get("title")))
    return None if answer is None or "request" not in quoted else answer(quoted)


def without_repetition(text: str) -> str:
    """Return the text without the directive that asks for further passes."""
    return _AGAIN.sub("", text).strip()


def _profile(_quoted: Quoted) -> dict[str, Any]:
    return DEFAULT_PROFILE.model_dump(mode="json") | {"raw_inference": _NO_MODEL}


def _check(_quoted: Quoted) -> dict[str, Any]:
    return {"issues": [], "overall_severity": "LOW"}


def _assessment(quoted: Quoted) -> dict[str, Any]:
    steps = _steps(quoted)
    is_sound = any(step.status == "completed" for step in steps) and all(step.status != "failed" for step in steps)
    is_done = is_sound and _added(steps) >= _wanted(quoted["request"])
    return {
        "converged": is_done,
        "completeness_score": 1.0 if is_done else 0.5,
        "coherence_score": 1.0,
        "consistency_status": dict.fromkeys(("plan", "step", "answer", "memory"), True),
        "reason_codes": [] if is_done else ["rehearsed"],
        "detected_issues": [] if is_done else ["Rehearsed: the request asks for another pass, or a step failed."],
    }


def _refinement(quoted: Quoted) -> dict[str, Any]:
    steps = _steps(quoted)
    if _added(steps) >= _wanted(quoted["request"]):
        return {"refinements": []}
    name = f"{_ADDED}{_added(steps) + 1}"
    step = {"name": name, "type": "infer", "input": without_repetition(quoted["request"]), "depends_on": []}
    return {"refinements": [{"action": "ADD", "target_step": None, "new_step": step, "reason": _NO_MODEL}]}


def _answer(quoted: Quoted) -> dict[str, Any]:
    results = _results(quoted)
    last = next((value for value in reversed(results.values()) if value is not None), _NO_MODEL)
    text = last if isinstance(last, str) and last.strip() else orjson.dumps(last).decode()
    return {"answer_text": text, "confidence": 0.0, "used_step_ids": list(results), "notes": _NO_MODEL}


_ANSWERS: Final[Mapping[str, Callable[[Quoted], dict[str, Any]]]] = MappingProxyType(
    {
        TaskProfileOutput.__name__: _profile,
        SemanticCheckOutput.__name__: _check,
        ConvergenceAssessmentOutput.__name__: _assessment,
        RecursiveRefinementOutput.__name__: _refinement,
        FinalAnswerOutput.__name__: _answer,
    }
)


def _wanted(request: str) -> int:
    found = _AGAIN.search(request)
    return 0 if found is None else int(found[1] or 1)


def _added(steps: Sequence[PlanStepState]) -> int:
    return sum(step.name.startswith(_ADDED) for step in steps)


def _steps(quoted: Quoted) -> list[PlanStepState]:
    try:
        return _STEPS.validate_json(quoted.get("steps", "[]"))
    except ValidationError:
        return []


def _results(quoted: Quoted) -> dict[str, Any]:
    try:
        found = orjson.loads(quoted.get("execution_results", "{}"))
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
