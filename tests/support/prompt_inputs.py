"""An input for every prompt, in which a text is put everywhere where a text can be."""

from typing import Any

from portico.capabilities.prompting.definition import EmptyInput, PromptId, PromptInput
from portico.capabilities.prompting.prompts.answer import AnswerSynthesisInput
from portico.capabilities.prompting.prompts.assessment import (
    AnswerJudgementInput,
    ConvergenceAssessmentInput,
    InputJudgementInput,
    SemanticCheckInput,
    SemanticIssue,
)
from portico.capabilities.prompting.prompts.output_format import (
    GrammarContractInput,
    StructuredContractInput,
    StructuredViolationsInput,
)
from portico.capabilities.prompting.prompts.planning import STEP_TYPE_DESCRIPTIONS, PlanGenerationInput
from portico.capabilities.prompting.prompts.recursion import (
    ReasoningStepInput,
    RecursivePlanGenerationInput,
    RecursiveRefinementInput,
    RecursiveSubplanGenerationInput,
)
from portico.capabilities.prompting.prompts.repair import (
    RepairJsonInput,
    RepairMissingToolInput,
    RepairPlanInput,
    RepairToolCallInput,
)
from portico.capabilities.prompting.prompts.retrieval import QuotedChunk, RetrievedContextInput
from portico.capabilities.prompting.prompts.summary import EarlierTurnsInput, SessionSummaryInput
from portico.capabilities.prompting.prompts.task_profile import (
    DEFAULT_PROFILE,
    TaskProfileInput,
    TaskProfileUpdateInput,
)


def prompt_inputs(text: str) -> dict[PromptId, PromptInput]:
    """Return the inputs by prompt."""
    history = [{"role": "user", "text": text}]
    summaries = [{"name": "look", "description": text}]
    states = [{"name": text, "type": "infer", "input": text, "status": "failed", "output": text, "error": text}]
    tools = [{"name": "look", "description": text, "parameters": {"description": text}}]
    planning: dict[str, Any] = {
        "request": text,
        "history": history,
        "tools": tools,
        "step_types": dict(STEP_TYPE_DESCRIPTIONS),
        "max_steps": 5,
    }
    part: dict[str, Any] = {"step": text, "task": text, "results": {text: text}}
    issue = SemanticIssue.model_validate({"type": "relevance", "severity": "HIGH", "description": text})
    wrong: dict[str, Any] = {"task": {text: text}, "violations": [{"path": "$", "message": text[:300]}]}
    profile = DEFAULT_PROFILE.model_copy(update={"raw_inference": text})
    step = {"name": "a", "type": "tool", "input": {"name": "gone", "arguments": {text: text}}}
    call = {"step": "a", "tool": "look", "arguments": {text: text}, "parameters": {"description": text}}
    guarded = InputJudgementInput(intent=text or "x", texts=(text, text))
    judged = AnswerJudgementInput(request=text, intent=text or "x", answer={text: text})
    synthesis = AnswerSynthesisInput.model_validate(
        {
            "request": text,
            "correlation_id": "0" * 32,
            "execution_start_timestamp": "2026-01-01T00:00:00Z",
            "convergence_status": "converged",
            "total_passes": 2,
            "total_refinements": 1,
            "ttl_remaining": 3,
            "plan_state": {"steps": [text]},
            "execution_results": {text: text},
            "convergence_assessment": {"detected_issues": [text]},
            "execution_passes": [{"reasons": text}],
            "semantic_validation": {"issues": [text]},
            "task_profile": {"raw_inference": text},
        }
    )
    empty = EmptyInput()
    return {
        PromptId.PLAN_GENERATION_SYSTEM: PlanGenerationInput(**planning),
        PromptId.PLAN_GENERATION_USER: PlanGenerationInput(**planning),
        PromptId.REASONING_STEP_SYSTEM: empty,
        PromptId.REASONING_STEP_USER: ReasoningStepInput(request=text, **part),
        PromptId.VALIDATION_SEMANTIC_SYSTEM: empty,
        PromptId.VALIDATION_SEMANTIC_USER: SemanticCheckInput.model_validate(
            {"request": text, "tools": summaries, "steps": states}
        ),
        PromptId.CONVERGENCE_ASSESSMENT_SYSTEM: empty,
        PromptId.CONVERGENCE_ASSESSMENT_USER: ConvergenceAssessmentInput.model_validate(
            {"request": text, "history": history, "steps": states, "answer": text, "earlier_issues": [text]}
        ),
        PromptId.TASKPROFILE_INFERENCE_SYSTEM: empty,
        PromptId.TASKPROFILE_INFERENCE_USER: TaskProfileInput.model_validate(
            {"request": text, "history": history, "tools": summaries}
        ),
        PromptId.TASKPROFILE_UPDATE_SYSTEM: empty,
        PromptId.TASKPROFILE_UPDATE_USER: TaskProfileUpdateInput.model_validate(
            {"request": text, "profile": profile, "steps": states, "assessment": {text: text}}
        ),
        PromptId.RECURSIVE_PLAN_GENERATION_USER: RecursivePlanGenerationInput(**planning, profile=profile, passes=3),
        PromptId.RECURSIVE_SUBPLAN_GENERATION_USER: RecursiveSubplanGenerationInput(**planning, **part),
        PromptId.RECURSIVE_REFINEMENT_SYSTEM: empty,
        PromptId.RECURSIVE_REFINEMENT_USER: RecursiveRefinementInput(
            **planning, steps=states, assessment={text: text}, issues=(issue,)
        ),
        PromptId.SUPERVISOR_REPAIR_SYSTEM: empty,
        PromptId.SUPERVISOR_REPAIR_JSON_USER: RepairJsonInput(**wrong, json_schema={"title": text}, answer=text),
        PromptId.SUPERVISOR_REPAIR_TOOLCALL_USER: RepairToolCallInput(**wrong, calls=[call]),
        PromptId.SUPERVISOR_REPAIR_PLAN_USER: RepairPlanInput(**wrong, answer={"steps": [step]}),
        PromptId.SUPERVISOR_REPAIR_MISSINGTOOL_USER: RepairMissingToolInput(**wrong, steps=[step], tools=tools),
        PromptId.ANSWER_SYNTHESIS_SYSTEM: synthesis,
        PromptId.ANSWER_SYNTHESIS_USER: synthesis,
        PromptId.ANSWER_JUDGEMENT_SYSTEM: judged,
        PromptId.ANSWER_JUDGEMENT_USER: judged,
        PromptId.INPUT_JUDGEMENT_SYSTEM: guarded,
        PromptId.INPUT_JUDGEMENT_USER: guarded,
        PromptId.STRUCTURED_CONTRACT_SYSTEM: StructuredContractInput(json_schema={"description": text}),
        PromptId.GRAMMAR_CONTRACT_SYSTEM: GrammarContractInput(grammar=text or "x"),
        PromptId.STRUCTURED_VIOLATIONS_USER: StructuredViolationsInput.from_pairs([(text, text)]),
        PromptId.STRUCTURED_ANSWER_USER: empty,
        PromptId.SUBMIT_TOOL_DESCRIPTION: empty,
        PromptId.SESSION_SUMMARY_USER: SessionSummaryInput(earlier=text, turns=(text,), max_words=100),
        PromptId.EARLIER_TURNS_USER: EarlierTurnsInput(summary=text),
        PromptId.RETRIEVED_CONTEXT_USER: RetrievedContextInput(chunks=(QuotedChunk(source="a#1", content=text),)),
    }
