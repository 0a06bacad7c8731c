"""A worked example of each prompt: an input as the service makes it, a model's reply, and members of its output."""

import json
from dataclasses import dataclass, field
from typing import Any

from portico.capabilities.prompting.definition import PromptId

FERRIES: dict[str, Any] = {"name": "find_ferries", "description": "Lists the ferries of a day."}
PARAMETERS: dict[str, Any] = {"type": "object", "required": ["day"], "properties": {"day": {"type": "string"}}}
TOOL = {**FERRIES, "parameters": PARAMETERS}
REQUEST = 'Which ferry to Juist is the cheapest on 3 May? Say it as {"ferry", "price"}.'
HISTORY = [{"role": "user", "text": "I travel with a dog."}, {"role": "assistant", "text": "Noted."}]
FIND: dict[str, Any] = {
    "name": "find",
    "type": "tool",
    "input": {"name": "find_ferries", "arguments": {"day": "3 May"}},
    "depends_on": [],
}
COMPARE: dict[str, Any] = {"name": "compare", "type": "infer", "input": None, "depends_on": ["find"]}
STEP_TYPES = {
    "infer": "Asks a model. Input: a string, its message. Output: a string.",
    "tool": 'Calls a tool. Input: {"name": its name, "arguments": {…}}. Output: the result as a string.',
}
DONE: list[dict[str, Any]] = [
    {**FIND, "status": "completed", "output": "Frisia I: 24.50 EUR; Frisia II: 21.00 EUR"},
    {**COMPARE, "status": "failed", "error": "The answer has no JSON value"},
]
PENDING: list[dict[str, Any]] = [FIND, COMPARE]
PROFILE: dict[str, Any] = {
    "reasoning_depth": 2,
    "information_sufficiency": 0.4,
    "expected_tool_usage": "minimal",
    "output_breadth": "narrow",
    "confidence_requirement": "high",
    "raw_inference": "One list has to be looked up and compared.",
}
ASSESSMENT: dict[str, Any] = {
    "converged": False,
    "completeness_score": 0.5,
    "coherence_score": 1,
    "consistency_status": {"plan": True, "step": False, "answer": True, "memory": True},
    "reason_codes": ["missing_part"],
    "detected_issues": ["No ferry was chosen: compare the prices that were found."],
}
ISSUE: dict[str, Any] = {
    "type": "relevance",
    "severity": "HIGH",
    "description": "No step asks what the dog costs.",
    "location": "compare",
    "repair": "Add a step that looks up the fare for dogs.",
}
PLANNING: dict[str, Any] = {
    "request": REQUEST,
    "history": HISTORY,
    "tools": [TOOL],
    "step_types": STEP_TYPES,
    "max_steps": 4,
}
PART: dict[str, Any] = {
    "step": "compare",
    "task": "Choose the cheapest ferry.",
    "results": {"find": "Frisia I: 24.50 EUR; Frisia II: 21.00 EUR"},
}
JUDGED: dict[str, Any] = {"request": REQUEST, "answer": {"ferry": "Frisia II", "price": 21.0}}
STATE: dict[str, Any] = {
    "request": REQUEST,
    "correlation_id": "0af7651916cd43dd8448eb211c80319c",
    "execution_start_timestamp": "2026-05-01T09:00:00Z",
    "convergence_status": "ttl_expired",
    "total_passes": 2,
    "total_refinements": 1,
    "ttl_remaining": 0,
    "execution_results": {"find": "Frisia I: 24.50 EUR; Frisia II: 21.00 EUR"},
    "convergence_assessment": ASSESSMENT,
}


@dataclass(frozen=True)
class Example:
    """An input, and for a prompt that asks for JSON a reply with members of the output that it becomes."""

    given: dict[str, Any] = field(default_factory=dict)
    reply: str | None = None
    expected: dict[str, Any] = field(default_factory=dict)


def _fenced(value: Any) -> str:
    return f"Here it is:\n```json\n{json.dumps(value, indent=2)}\n```"


PLAN = {"rationale": "Look up, then choose.", "steps": PENDING}
READ_PLAN = Example(PLANNING, json.dumps(PLAN), {"rationale": "Look up, then choose."})
SYNTHESIS = Example(
    STATE,
    json.dumps({"answer_text": "Frisia II, 21.00 EUR.", "confidence": 0.8, "used_step_ids": ["find"], "mood": "good"}),
    {"answer_text": "Frisia II, 21.00 EUR.", "used_step_ids": ["find"], "metadata": {}},
)
CONVERGENCE = Example(
    {
        "request": REQUEST,
        "history": HISTORY,
        "steps": DONE,
        "answer": "Frisia I: 24.50 EUR; Frisia II: 21.00 EUR",
        "earlier_issues": ["The day was missing."],
    },
    f"I have looked at it. {json.dumps(ASSESSMENT)} That is all.",
    {"converged": False, "coherence_score": 1.0, "reason_codes": ("missing_part",)},
)
INPUT_JUDGEMENT = Example(
    {"intent": "Ask for medical advice.", "texts": (REQUEST,)}, '{"refused": false}', {"refused": False}
)
JUDGEMENT = Example(JUDGED, '{"valid": true, "score": 0.9}', {"valid": True, "score": 0.9, "issues": ()})
REFINED = {
    "refinements": [{"action": "replace", "target_step": "compare", "new_step": COMPARE, "reason": "It failed."}]
}

EXAMPLES: dict[PromptId, Example] = {
    PromptId.PLAN_GENERATION_SYSTEM: READ_PLAN,
    PromptId.PLAN_GENERATION_USER: READ_PLAN,
    PromptId.REASONING_STEP_SYSTEM: Example(),
    PromptId.REASONING_STEP_USER: Example({"request": REQUEST, **PART}),
    PromptId.VALIDATION_SEMANTIC_SYSTEM: Example(),
    PromptId.VALIDATION_SEMANTIC_USER: Example(
        {"request": REQUEST, "tools": [FERRIES], "steps": PENDING},
        _fenced({"issues": [ISSUE | {"type": "Relevance", "severity": "high"}], "overall_severity": "Medium"}),
        {"overall_severity": "MEDIUM", "worst_severity": "HIGH"},
    ),
    PromptId.CONVERGENCE_ASSESSMENT_SYSTEM: Example({}, CONVERGENCE.reply, CONVERGENCE.expected),
    PromptId.CONVERGENCE_ASSESSMENT_USER: CONVERGENCE,
    PromptId.TASKPROFILE_INFERENCE_SYSTEM: Example(),
    PromptId.TASKPROFILE_INFERENCE_USER: Example(
        {"request": REQUEST, "history": HISTORY, "tools": [FERRIES]},
        json.dumps(PROFILE | {"expected_tool_usage": "Minimal"}),
        {"reasoning_depth": 2, "expected_tool_usage": "minimal", "confidence_requirement": "high"},
    ),
    PromptId.TASKPROFILE_UPDATE_SYSTEM: Example(),
    PromptId.TASKPROFILE_UPDATE_USER: Example(
        {"request": REQUEST, "profile": PROFILE, "steps": DONE, "assessment": ASSESSMENT},
        _fenced(PROFILE | {"information_sufficiency": 1}),
        {"information_sufficiency": 1.0},
    ),
    PromptId.RECURSIVE_PLAN_GENERATION_USER: Example(
        {**PLANNING, "profile": PROFILE, "passes": 3}, _fenced(PLAN), {"rationale": "Look up, then choose."}
    ),
    PromptId.RECURSIVE_SUBPLAN_GENERATION_USER: Example(
        {**PLANNING, **PART}, json.dumps(PLAN), {"rationale": PLAN["rationale"]}
    ),
    PromptId.RECURSIVE_REFINEMENT_SYSTEM: Example({}, json.dumps(REFINED)),
    PromptId.RECURSIVE_REFINEMENT_USER: Example(
        {**PLANNING, "max_steps": 2, "steps": DONE, "assessment": ASSESSMENT, "issues": [ISSUE]}, json.dumps(REFINED)
    ),
    PromptId.SUPERVISOR_REPAIR_SYSTEM: Example(),
    PromptId.SUPERVISOR_REPAIR_JSON_USER: Example(
        {
            "task": JUDGED,
            "violations": [{"path": "$.score", "message": "Field required"}],
            "json_schema": {"type": "object", "required": ["valid", "score"]},
            "answer": '{"valid": true}',
        },
        '{"valid": true, "score": 1}',
        {"valid": True, "score": 1},
    ),
    PromptId.SUPERVISOR_REPAIR_TOOLCALL_USER: Example(
        {
            "task": {"request": REQUEST},
            "violations": [{"path": "steps.0.input.arguments.day", "message": "is required"}],
            "calls": [{"step": "find", "tool": "find_ferries", "arguments": {"date": 3}, "parameters": PARAMETERS}],
        },
        '{"calls": [{"step": "find", "arguments": {"day": "3 May"}}]}',
    ),
    PromptId.SUPERVISOR_REPAIR_PLAN_USER: Example(
        {
            "task": {"request": REQUEST, "max_steps": 4},
            "violations": [{"path": "steps.1.name", "message": "stands twice in the plan"}],
            "answer": {"steps": [FIND, FIND]},
        },
        json.dumps(PLAN),
        {"rationale": "Look up, then choose."},
    ),
    PromptId.SUPERVISOR_REPAIR_MISSINGTOOL_USER: Example(
        {
            "task": {"request": REQUEST},
            "violations": [{"path": "steps.0.input.name", "message": "must name a tool that is offered"}],
            "steps": [FIND | {"input": {"name": "google", "arguments": {"q": "ferries"}}}],
            "tools": [TOOL],
        },
        json.dumps({"steps": [FIND]}),
    ),
    PromptId.ANSWER_SYNTHESIS_SYSTEM: SYNTHESIS,
    PromptId.ANSWER_SYNTHESIS_USER: SYNTHESIS,
    PromptId.ANSWER_JUDGEMENT_SYSTEM: JUDGEMENT,
    PromptId.ANSWER_JUDGEMENT_USER: JUDGEMENT,
    PromptId.INPUT_JUDGEMENT_SYSTEM: INPUT_JUDGEMENT,
    PromptId.INPUT_JUDGEMENT_USER: INPUT_JUDGEMENT,
    PromptId.STRUCTURED_CONTRACT_SYSTEM: Example({"json_schema": {"type": "object", "required": ["ferry", "price"]}}),
    PromptId.GRAMMAR_CONTRACT_SYSTEM: Example({"grammar": 'root ::= "yes" | "no"'}),
    PromptId.STRUCTURED_ANSWER_USER: Example(),
    PromptId.STRUCTURED_VIOLATIONS_USER: Example(
        {"violations": [{"path": "$.price", "message": "must be a number"}], "left_out": 2}
    ),
    PromptId.SUBMIT_TOOL_DESCRIPTION: Example(),
    PromptId.RETRIEVED_CONTEXT_USER: Example(
        {
            "chunks": [
                {"source": "timetable#3", "content": "The ferry to Ven leaves at 9.15 and at 17.40."},
                {"source": "prices#1", "content": "A return ticket costs 110 crowns."},
            ]
        }
    ),
    PromptId.SESSION_SUMMARY_USER: Example(
        {
            "earlier": "Ada plans a trip to Ven for two.",
            "turns": ["user: Which ferry is the first on Sunday?", "assistant: The one at 9.15."],
            "max_words": 480,
        },
        json.dumps({"summary": "Ada plans a trip to Ven for two, on Sunday with the first ferry at 9.15."}),
    ),
    PromptId.EARLIER_TURNS_USER: Example({"summary": "Ada plans a trip to Ven for two."}),
}
