"""The tool calls of one reply: what may run at once, one retry at most, and what must not act twice."""

from collections.abc import Mapping, Sequence
from functools import partial

import orjson
from pydantic import JsonValue

from app.domain.contract.messages import ToolCall, ToolResult
from app.domain.contract.response import SuspensionKind
from app.domain.failures import Code
from app.domain.fingerprints import args_hash, digest, idempotency_key, span_id
from app.domain.journal.events import CorrelationContext, Event, ToolEnd, ToolStart
from app.domain.journal.outcomes import (
    AttemptCancelled,
    Outcome,
    RecordedStep,
    SuspensionAnswer,
    ToolCallSuspended,
    ToolEnded,
)
from app.domain.suspensions import (
    APPROVAL_DECISIONS,
    UNKNOWN_OUTCOME_DECISIONS,
    Approve,
    Deny,
    GiveUp,
    Happened,
    RunAgain,
)
from app.domain.tools import OfferedTool, concurrent_groups
from app.orchestration.execution.effect import Effect, NonIdempotent, SuspensionRequest
from app.orchestration.execution.execution import NON_IDEMPOTENT_GRACE_S, Execution
from app.orchestration.execution.ledger import ToolCallState

_UNKNOWN_OUTCOME = "it is not known whether this call has happened"
_SPENT = "not run: the budget of the execution is spent"


class ToolRound:
    """All calls of one reply under one step.

    Call i is `key/i/0`, under which stands whether it is approved. Its attempts are `key/i/0/0` and `key/i/0/1`; what
    attempt a asks is `a/1`, what is asked about it when it is in doubt is `a/0/0`, `a/0/1`, …
    """

    def __init__(
        self,
        execution: Execution,
        key: str,
        slots: Sequence[ToolCallState],
        *,
        offered: Sequence[OfferedTool],
        correlation: CorrelationContext,
    ) -> None:
        self._execution = execution
        self._context = correlation
        self._key = key
        self._slots = slots
        self._offered: Mapping[str, OfferedTool] = {tool.name: tool for tool in offered}
        self.ended_at = 0.0

    async def run(self, most: int) -> list[ToolResult]:
        """The results in call order; calls beyond the first `most` are answered with an error and do not run."""
        running = [slot.call for slot in self._slots[:most]]
        unsafe = frozenset(name for name, tool in self._offered.items() if tool.unsafe)
        for group in concurrent_groups([call.name for call in running], unsafe):
            await self._execution.gather([partial(self._call, index) for index in group])
        for slot in self._slots[most:]:
            slot.result = f"not run: only {most} calls of one reply run"
        return [self._result(slot) for slot in self._slots]

    async def _call(self, index: int) -> None:
        slot = self._slots[index]
        offered = self._offered.get(slot.call.name)
        if offered is not None and not self._approved(slot, offered, f"{self._key}/{index}/0"):
            return
        for attempt in (0, 1):
            leaf = self._leaf(index, attempt)
            outcome = (await self._execution.perform(leaf)).outcome
            if isinstance(outcome, ToolCallSuspended):
                self._ask(slot, outcome.value, leaf.key)
            if not isinstance(outcome, ToolEnded) or not outcome.retry:
                return

    def _approved(self, slot: ToolCallState, offered: OfferedTool, key: str) -> bool:
        """Whether the call may run. Raises: Suspended until somebody has said so, where it waits for a person."""
        repeated = offered.unsafe and self._execution.ledger.has_failed(slot.call, before=self._key)
        if not offered.approval and not repeated:
            return True
        slot.mark_waiting()
        answered = self._answer(_question(SuspensionKind.APPROVAL, slot.call, key))
        decision = APPROVAL_DECISIONS.validate_python(answered)
        if isinstance(decision, Deny):
            slot.result, slot.is_error, slot.code = _denied(decision), True, Code.TOOL_EXECUTION_FAILED
        return isinstance(decision, Approve)

    def _ask(self, slot: ToolCallState, value: JsonValue, key: str) -> None:
        """The answer is the call's result. Raises: Suspended until there is one."""
        asked = SuspensionRequest(f"{key}/1", SuspensionKind.QUESTION, slot.call.name, value, tool_call_id=slot.call.id)
        slot.result = _text(self._answer(asked))

    def _answer(self, question: SuspensionRequest) -> JsonValue:
        row = self._execution.answer_to(question)
        assert isinstance(row.outcome, SuspensionAnswer)  # noqa: S101 - what a question can come to
        self.ended_at = max(self.ended_at, row.at)
        return row.outcome.payload

    def _leaf(self, index: int, attempt: int) -> Effect:
        slot = self._slots[index]
        call, key = slot.call, f"{self._key}/{index}/0/{attempt}"
        offered = self._offered.get(call.name)
        return Effect(
            key=key,
            fingerprint=digest("tool", key, call.name, call.arguments),
            correlation=self._context.child(span_id(self._execution.header.execution_id, key), caused_by=call.id),
            run=partial(self._act, index, attempt, offered),
            start_event=ToolStart(call.name, call.id, args_hash(self._execution.header.args_key, call.arguments)),
            end_events=partial(_ended, call),
            count=partial(self._count, slot, offered),
            non_idempotent=_unsafe(call, key) if offered and offered.unsafe else None,
        )

    async def _act(self, index: int, attempt: int, offered: OfferedTool | None) -> Outcome:
        if offered is None:
            return ToolEnded("no such tool", is_error=True, code=Code.TOOL_NOT_FOUND, duration_ms=0.0, ran=False)
        budget = self._execution.ledger.budget
        if budget is not None and budget.is_exhausted:
            code = Code.ORCHESTRATION_BUDGET_EXCEEDED
            return ToolEnded(_SPENT, is_error=True, code=code, duration_ms=0.0, ran=False)
        grace = NON_IDEMPOTENT_GRACE_S if offered.unsafe else 0.0
        seconds_left = self._execution.seconds_left + grace
        call = self._slots[index].call
        key = idempotency_key(self._execution.header.execution_id, f"{self._key}/{index}", call.id)
        return await self._execution.environment.tool_executor.attempt(
            call, key=key, attempt=attempt, seconds_left=seconds_left
        )

    def _count(self, slot: ToolCallState, offered: OfferedTool | None, row: RecordedStep) -> None:
        self._execution.ledger.record_tool_attempt(row, slot, round_key=self._key)
        self._execution.ledger.ran_unsafe_call |= offered is not None and offered.unsafe
        self.ended_at = max(self.ended_at, row.at)

    def _result(self, slot: ToolCallState) -> ToolResult:
        offered = self._offered.get(slot.call.name)
        idempotent = offered is not None and offered.idempotent
        return ToolResult(slot.call, slot.result, slot.is_error, slot.code, slot.attempts, slot.duration_ms, idempotent)


def _unsafe(call: ToolCall, key: str) -> NonIdempotent:
    unknown = ToolEnded(_UNKNOWN_OUTCOME, is_error=True, code=Code.TOOL_OUTCOME_UNKNOWN, duration_ms=0.0)

    def told(payload: JsonValue) -> Outcome | None:
        match UNKNOWN_OUTCOME_DECISIONS.validate_python(payload):
            case Happened(result=result):
                return ToolEnded(_text(result), is_error=False, code=None, duration_ms=0.0)
            case RunAgain():
                return None
            case GiveUp():
                return unknown

    def question(number: int) -> SuspensionRequest:
        return _question(SuspensionKind.UNKNOWN_OUTCOME, call, f"{key}/0/{number}")

    return NonIdempotent(question, _timed_out, told, unknown)


def _question(kind: SuspensionKind, call: ToolCall, key: str) -> SuspensionRequest:
    """A question about a call, bound to its arguments."""
    value: JsonValue = {"tool": call.name, "arguments": call.arguments}
    return SuspensionRequest(key, kind, call.name, value, tool_call_id=call.id, arguments_digest=digest(call.arguments))


def _denied(decision: Deny) -> str:
    return "not approved" if decision.reason is None else f"not approved: {decision.reason}"


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _timed_out(outcome: Outcome) -> bool:
    return isinstance(outcome, ToolEnded) and outcome.code is Code.TOOL_TIMEOUT


def _ended(call: ToolCall, outcome: Outcome) -> tuple[Event, ...]:
    assert isinstance(outcome, ToolEnded | ToolCallSuspended | AttemptCancelled)  # noqa: S101 - what a tool attempt can come to
    code = Code.CANCELLED_SIGNAL if isinstance(outcome, AttemptCancelled) else getattr(outcome, "code", None)
    return (ToolEnd(call.name, call.id, outcome.duration_ms, success=code is None, error_code=code),)
