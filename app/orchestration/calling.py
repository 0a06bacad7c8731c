"""The tool calls of one reply: what may run at once, one retry at most, and what must not act twice."""

from collections.abc import Mapping, Sequence
from functools import partial

import orjson
from pydantic import JsonValue

from app.domain.boundary import SuspensionKind
from app.domain.digests import args_hash, digest, idempotency_key, span_id
from app.domain.effects import Answered, CutOff, Outcome, Row, ToolAsked, ToolEnded
from app.domain.events import CorrelationContext, Event, ToolEnd, ToolStart
from app.domain.failures import Code
from app.domain.messages import ToolCall, ToolResult
from app.domain.suspensions import APPROVAL, OUTCOME, Approve, Deny, GiveUp, Happened, RunAgain
from app.domain.tools import OfferedTool, waves
from app.orchestration.execution import GRACE_FOR_UNSAFE_S, Execution
from app.orchestration.leaf import Leaf, Question, UnsafeCall
from app.orchestration.tally import CallSlot

_UNKNOWN_OUTCOME = "it is not known whether this call has happened"
_SPENT = "not run: the budget of the execution is spent"


class Round:
    """All calls of one reply under one step.

    Call i is `key/i/0`, under which stands whether it is approved. Its attempts are `key/i/0/0` and `key/i/0/1`; what
    attempt a asks is `a/1`, what is asked about it when it is in doubt is `a/0/0`, `a/0/1`, …
    """

    def __init__(
        self,
        execution: Execution,
        key: str,
        slots: Sequence[CallSlot],
        *,
        offered: Sequence[OfferedTool],
        context: CorrelationContext,
    ) -> None:
        self._execution = execution
        self._context = context
        self._key = key
        self._slots = slots
        self._offered: Mapping[str, OfferedTool] = {tool.name: tool for tool in offered}
        self.settled_at = 0.0

    async def run(self, most: int) -> list[ToolResult]:
        """The results in call order; calls beyond the first `most` are answered with an error and do not run."""
        running = [slot.call for slot in self._slots[:most]]
        unsafe = frozenset(name for name, tool in self._offered.items() if tool.unsafe)
        for group in waves([call.name for call in running], unsafe):
            await self._execution.settle([partial(self._call, index) for index in group])
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
            if isinstance(outcome, ToolAsked):
                self._ask(slot, outcome.value, leaf.key)
            if not isinstance(outcome, ToolEnded) or not outcome.retry:
                return

    def _approved(self, slot: CallSlot, offered: OfferedTool, key: str) -> bool:
        """Whether the call may run. Raises: Suspended until somebody has said so, where it waits for a person."""
        repeated = offered.unsafe and self._execution.tally.has_failed(slot.call, before=self._key)
        if not offered.approval and not repeated:
            return True
        slot.wait()
        answered = self._answer(_question(SuspensionKind.APPROVAL, slot.call, key))
        decision = APPROVAL.validate_python(answered)
        if isinstance(decision, Deny):
            slot.result, slot.is_error, slot.code = _denied(decision), True, Code.TOOL_EXECUTION_FAILED
        return isinstance(decision, Approve)

    def _ask(self, slot: CallSlot, value: JsonValue, key: str) -> None:
        """The answer is the call's result. Raises: Suspended until there is one."""
        asked = Question(f"{key}/1", SuspensionKind.QUESTION, slot.call.name, value, tool_call_id=slot.call.id)
        slot.result = _text(self._answer(asked))

    def _answer(self, question: Question) -> JsonValue:
        row = self._execution.answer(question)
        assert isinstance(row.outcome, Answered)  # noqa: S101 - what a question can come to
        self.settled_at = max(self.settled_at, row.at)
        return row.outcome.payload

    def _leaf(self, index: int, attempt: int) -> Leaf:
        slot = self._slots[index]
        call, key = slot.call, f"{self._key}/{index}/0/{attempt}"
        offered = self._offered.get(call.name)
        return Leaf(
            key=key,
            fingerprint=digest("tool", key, call.name, call.arguments),
            correlation=self._context.below(span_id(self._execution.header.execution_id, key), caused_by=call.id),
            act=partial(self._act, index, attempt, offered),
            start=ToolStart(call.name, call.id, args_hash(self._execution.header.args_key, call.arguments)),
            end=partial(_ended, call),
            count=partial(self._count, slot, offered),
            unsafe=_unsafe(call, key) if offered and offered.unsafe else None,
        )

    async def _act(self, index: int, attempt: int, offered: OfferedTool | None) -> Outcome:
        if offered is None:
            return ToolEnded("no such tool", is_error=True, code=Code.TOOL_NOT_FOUND, duration_ms=0.0, ran=False)
        budget = self._execution.tally.budget
        if budget is not None and budget.spent:
            code = Code.ORCHESTRATION_BUDGET_EXCEEDED
            return ToolEnded(_SPENT, is_error=True, code=code, duration_ms=0.0, ran=False)
        grace = GRACE_FOR_UNSAFE_S if offered.unsafe else 0.0
        seconds_left = self._execution.seconds_left + grace
        call = self._slots[index].call
        key = idempotency_key(self._execution.header.execution_id, f"{self._key}/{index}", call.id)
        return await self._execution.world.tools.attempt(call, key=key, attempt=attempt, seconds_left=seconds_left)

    def _count(self, slot: CallSlot, offered: OfferedTool | None, row: Row) -> None:
        self._execution.tally.tool(row, slot, round_key=self._key)
        self._execution.tally.acted_once |= offered is not None and offered.unsafe
        self.settled_at = max(self.settled_at, row.at)

    def _result(self, slot: CallSlot) -> ToolResult:
        offered = self._offered.get(slot.call.name)
        idempotent = offered is not None and offered.idempotent
        return ToolResult(slot.call, slot.result, slot.is_error, slot.code, slot.attempts, slot.duration_ms, idempotent)


def _unsafe(call: ToolCall, key: str) -> UnsafeCall:
    unknown = ToolEnded(_UNKNOWN_OUTCOME, is_error=True, code=Code.TOOL_OUTCOME_UNKNOWN, duration_ms=0.0)

    def told(payload: JsonValue) -> Outcome | None:
        match OUTCOME.validate_python(payload):
            case Happened(result=result):
                return ToolEnded(_text(result), is_error=False, code=None, duration_ms=0.0)
            case RunAgain():
                return None
            case GiveUp():
                return unknown

    def question(number: int) -> Question:
        return _question(SuspensionKind.UNKNOWN_OUTCOME, call, f"{key}/0/{number}")

    return UnsafeCall(question, _timed_out, told, unknown)


def _question(kind: SuspensionKind, call: ToolCall, key: str) -> Question:
    """A question about a call, bound to its arguments."""
    value: JsonValue = {"tool": call.name, "arguments": call.arguments}
    return Question(key, kind, call.name, value, tool_call_id=call.id, arguments_digest=digest(call.arguments))


def _denied(decision: Deny) -> str:
    return "not approved" if decision.reason is None else f"not approved: {decision.reason}"


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _timed_out(outcome: Outcome) -> bool:
    return isinstance(outcome, ToolEnded) and outcome.code is Code.TOOL_TIMEOUT


def _ended(call: ToolCall, outcome: Outcome) -> tuple[Event, ...]:
    assert isinstance(outcome, ToolEnded | ToolAsked | CutOff)  # noqa: S101 - what a tool attempt can come to
    code = Code.CANCELLED_SIGNAL if isinstance(outcome, CutOff) else getattr(outcome, "code", None)
    return (ToolEnd(call.name, call.id, outcome.duration_ms, success=code is None, error_code=code),)
