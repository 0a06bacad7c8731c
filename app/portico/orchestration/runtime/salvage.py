"""Salvage: the final answer of an execution that a limit ended, written from what it has done.

Theory of operation

1. A limit is the number of rounds or steps, the tokens, the cost, or the time. The first three end a pattern by their
   failure. The time, less what is withheld for the final answer, ends it by step `limit` of the record: what runs is
   cancelled, nothing begins, and a replay stops at the same steps.
2. Then the lifecycle goes on to where it may complete, the withheld tokens, cost and time are used for one synthesis,
   and the execution completes with a degraded answer. If no model can write it in time, the service does.
3. A client's cancel is no limit. It ends the execution at any time, also while the final answer is written.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import orjson
from pydantic import JsonValue

from portico.capabilities.prompting.definition import PromptId
from portico.capabilities.prompting.prompts.answer import AnswerSynthesisInput
from portico.domain.contract.final_answer import PhaseEInput
from portico.domain.contract.response import StepStatus, ToolCallStatus
from portico.domain.failures import Code, Failure
from portico.domain.lifecycle import NEXT, Lifecycle, State
from portico.domain.pattern_result import PatternResult
from portico.orchestration.execution.branches import has_diverged
from portico.orchestration.execution.context import RunContext, closing_context
from portico.orchestration.execution.effect import BranchStopped
from portico.orchestration.execution.execution import Execution
from portico.orchestration.execution.progress import RunProgress
from portico.orchestration.execution.reserve import LIMIT_CODES, use_reserve
from portico.orchestration.execution.response import partial_text
from portico.orchestration.planning.synthesis import SynthesizedAnswer, answer_in_passes, salvage_answer
from portico.orchestration.planning.synthesis_call import synthesis_ask

LIMIT_REACHED: Final = "limit_reached"
_STATES: Final = (State.PLAN, State.PREPARE, State.EXECUTE, State.VALIDATE)


def reached_limit(execution: Execution, end: Failure | BranchStopped) -> Code | None:
    """Return the code of the limit that ended the pattern; None if none did, or the execution does not salvage.

    An execution that was stopped as well is not asked for: its first effect afterwards is refused, in a replay too.
    """
    if not execution.header.salvages or has_diverged(end):
        return None
    if execution.recorder.pattern_time.has_passed:
        return Code.CANCELLED_TIMEOUT
    if not isinstance(end, Failure):
        return None
    if end.code is Code.ORCHESTRATION_NO_CONSENSUS and execution.ledger.was_over_budget:
        return Code.ORCHESTRATION_BUDGET_EXCEEDED
    return end.code if end.code in LIMIT_CODES else None


async def salvage(execution: Execution, progress: RunProgress, context: RunContext, limit: Code) -> PatternResult:
    """Return the partial result of the pattern with a degraded final answer, and no value that nothing validated."""
    use_reserve(execution)
    context = closing_context(context)
    for state in states_to_complete(execution.lifecycle):
        context.transition_to(state, LIMIT_REACHED)
    answer = await _answer(execution, progress, context, limit)
    partial_result = progress.partial_result or PatternResult(None)
    done = PatternResult(None, validation=partial_result.validation, vote=partial_result.vote, plan=partial_result.plan)
    return answer.added_to(done)


def states_to_complete(lifecycle: Lifecycle) -> list[State]:
    """Return the states that lead to one in which the execution may complete."""
    path: list[State] = []
    state = lifecycle.state
    while State.COMPLETE not in NEXT[lifecycle.mode][state]:
        state = next(each for each in _STATES if each in NEXT[lifecycle.mode][state])
        path.append(state)
    return path


async def _answer(execution: Execution, progress: RunProgress, context: RunContext, limit: Code) -> SynthesizedAnswer:
    shown = progress.partial_result
    if shown is not None and shown.final_answer is not None and "limit" in shown.final_answer.metadata:
        return SynthesizedAnswer(shown.final_answer, "text" not in shown.repeated)
    seconds = execution.header.reserved_seconds

    async def ask(prompt_id: PromptId, given: AnswerSynthesisInput) -> object:
        return await context.with_timeout(seconds, partial(_ask, prompt_id=prompt_id, given=given))

    if progress.phase_e_input is not None:
        return await answer_in_passes(progress.phase_e_input(), ask, limit=limit)
    return await salvage_answer(_work_done(execution, progress), limit, ask, _draft(execution, progress))


async def _ask(context: RunContext, *, prompt_id: PromptId, given: AnswerSynthesisInput) -> object:
    return await synthesis_ask(context)(prompt_id, given)


def _work_done(execution: Execution, progress: RunProgress) -> PhaseEInput:
    """Return what the pattern has done, as phase E reads it."""
    header = execution.header
    return PhaseEInput(
        request=_request_text(execution, progress),
        correlation_id=header.trace_id,
        execution_start_timestamp=datetime.fromtimestamp(header.begins_at, UTC),
        convergence_status="not_converged",
        total_passes=0,
        total_refinements=0,
        ttl_remaining=0,
        plan_state=_plan_state(progress),
        execution_results=_results(execution, progress) or None,
    )


def _request_text(execution: Execution, progress: RunProgress) -> str:
    """Return the last user message, or else the input of the flow."""
    request = execution.header.request
    messages = request.messages if progress.prepared is None else progress.prepared.messages
    asked = next((message.text for message in reversed(messages) if message.role == "user"), None)
    if asked is not None or request.flow is None:
        return asked or ""
    return orjson.dumps(request.flow.input).decode()


def _plan_state(progress: RunProgress) -> dict[str, Any] | None:
    plan = None if progress.partial_result is None else progress.partial_result.plan
    if plan is None:
        return None
    return {"steps": [{"name": each.name, "type": each.type, "status": each.status.value} for each in plan.steps]}


def _results(execution: Execution, progress: RunProgress) -> dict[str, JsonValue]:
    """Return the outputs of finished steps, what the pattern has found, the results of tools, and the draft."""
    plan = None if progress.partial_result is None else progress.partial_result.plan
    outputs = {each.name: each.output for each in plan.steps if each.status is StepStatus.COMPLETED} if plan else {}
    found: Mapping[str, JsonValue] = {} if progress.findings is None else progress.findings()
    calls: list[JsonValue] = [
        {"tool": call.name, "arguments": call.arguments, "result": call.result}
        for call in execution.ledger.tool_calls.made(is_suspended=False)
        if call.attempts and call.status is ToolCallStatus.DONE and call.step_name not in {*outputs, *found}
    ]
    draft = _draft(execution, progress)
    return {**outputs, **found, **({"tool_results": calls} if calls else {}), **({"draft": draft} if draft else {})}


def _draft(execution: Execution, progress: RunProgress) -> str:
    """Return the last text, whole or partial, of a pattern that has a conversation of its own; empty without one."""
    if not progress.conversation.messages:
        return ""
    return partial_text(execution.ledger) or progress.conversation.last_text
