"""Step list: the recorded steps of an execution, as people read them.

The record has what was answered, and only fingerprints of what was asked. So the execution is replayed offline, as far
as its record goes, and every effect says what it asks. Without a replay, because the pattern has another version by
now, the steps have no `request`.

A fingerprint is the recorded one, unless the execution has fences: their digits come from its id, and the same request
would differ from that of another execution. Then another replay, with zeros in place of these digits, makes the
fingerprints anew.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from operator import not_
from types import MappingProxyType
from typing import Any, Final

import orjson
from pydantic import BaseModel, Field, JsonValue

from portico.domain.contract.messages import Message, Part, TextPart
from portico.domain.contract.response import Cost, Json, TokenUsage, public_message
from portico.domain.failures import Failure
from portico.domain.fingerprints import digest, fence_mark
from portico.domain.journal.events import Event, InferenceStart, NodeStart, RetrievalStart, StoredEvent, ToolStart
from portico.domain.journal.outcomes import (
    AgentCallStarted,
    AgentStarted,
    AnswerValidated,
    AttemptCancelled,
    AttemptFailed,
    AttemptSucceeded,
    CallDecided,
    Candidate,
    CodeRound,
    CodeStarted,
    CompactionStarted,
    GrantUsed,
    InferenceSetup,
    MediaFetched,
    NodeEnded,
    Outcome,
    Plan,
    PlanningInputs,
    Prepared,
    RaceDecided,
    RecordedStep,
    Refused,
    Retrieved,
    StopDecision,
    SuspensionAnswer,
    TimerFired,
    ToolCallSuspended,
    ToolEnded,
    usage_of,
)
from portico.domain.journal.step_key import PREPARE_KEY, STOP_KEY, StepKey
from portico.domain.lifecycle import Mode
from portico.domain.model_call import RULES
from portico.domain.value import replace, value
from portico.orchestration.execution.effect import Effect, SuspensionRequest
from portico.orchestration.execution.execution import Execution
from portico.orchestration.execution.ledger import recorded_prices
from portico.orchestration.execution.pattern import Pattern
from portico.orchestration.runtime.driver import pattern_for, replay
from portico.orchestration.runtime.resume import as_suspended
from portico.ports.journal import ExecutionHistory


class StepSummary(BaseModel):
    """A recorded step of an execution."""

    key: str = Field(description="The step's key in the journal.")
    kind: str = Field(
        description="`retrieval` (a search of the memory), `prepare`, `compaction` (of a session), "
        "`planning`, `plan`, `inference` (tools and "
        "candidates), `attempt` (at an inference), `tool_call`, `code_round` (calls that code waits for), "
        "`node` and `agent` (of a flow: its function; its "
        "system prompt and model), `validation` (of an answer, by a worker), `wait`, `answer` (to a suspension), "
        "`decision`, `refusal`, or `stop`."
    )
    from_step: int | None = Field(description="The `from_step` of a fork that runs it again; null before the first.")
    step_name: str | None = Field(description="The plan step, or the node of a flow, that it belongs to.")
    started_at: datetime = Field(description="Start time.")
    duration_ms: float | None = Field(description="Duration in milliseconds; null if it takes no time.")
    provider: str | None = Field(description="The engine that was asked.")
    tool_name: str | None = Field(description="The tool that was called.")
    usage: TokenUsage | None = Field(description="Tokens of the attempt.")
    cost: Cost | None = Field(description="Cost of the attempt, if the engine has prices.")
    fingerprint: str | None = Field(
        description="Digest of what was asked, equal in two executions that asked the same at this step. Null without "
        "`can_view_full_history`, and where it is not known any more."
    )
    digest: str | None = Field(
        description="Digest of what was answered, without what was measured; null without `can_view_full_history`."
    )
    edited: bool = Field(description="True if it is the result of a call that a fork has edited; nothing ran for it.")


class StepException(BaseModel):
    """Exception that the code of a tool, step, rule, planner or node raised."""

    type: str = Field(description="Type of the exception.")
    message: str = Field(description="Its text, of at most 2,000 characters.")
    frames: list[str] = Field(description="Function, file and line of at most 20 frames; the last raised it.")


class StepView(StepSummary):
    """A recorded step of an execution: what was asked and what was answered."""

    request: Json = Field(description="What was asked; null if nothing is, or if it is not known any more.")
    outcome: Json = Field(description="What was answered.")
    exception: StepException | None = Field(
        None,
        exclude_if=not_,
        description="What the code of the step raised; absent if nothing, and without `can_view_full_history`.",
    )


@value
class StepSelection:
    """Selection of steps: the one with the `key`, or `limit` of them after the first `after`; None stands for all.

    They have no request and no outcome if it `is_summary`, and no digests unless it `has_digests`.
    """

    key: str | None = None
    after: int = 0
    limit: int | None = None
    is_summary: bool = False
    has_digests: bool = True


ALL_STEPS: Final = StepSelection()


@value
class StepPage:
    """A page of steps; `next` is the number of steps up to its end, None on the last page."""

    steps: Sequence[StepView | StepSummary]
    next: int | None


def step_page(
    history: ExecutionHistory, patterns: Mapping[Mode, Pattern], selected: StepSelection = ALL_STEPS
) -> StepPage:
    """Return the selected ones of the recorded steps, in the order in which they ended."""
    steps = [step for key, step in history.steps.items() if selected.key in {None, key}]
    end = len(steps) if selected.limit is None else selected.after + selected.limit
    requests = {} if selected.is_summary else _requests(history, patterns)
    digests = _Digests(history, patterns) if selected.has_digests else None
    first_events: dict[str, StoredEvent] = {}
    starts: dict[str, StoredEvent] = {}
    for stored in history.events:
        first_events.setdefault(stored.anchor, stored)
        if isinstance(stored.event, InferenceStart | ToolStart | NodeStart | RetrievalStart):
            starts[stored.anchor] = stored
    views: list[StepView | StepSummary] = []
    for step in steps[selected.after : end]:
        outcome = OUTCOMES[type(step.outcome)][1](step.outcome)
        facts = _facts(history, step, starts.get(step.key), first_events.get(step.key))
        facts["fingerprint"] = None if digests is None else digests.fingerprints.get(step.key)
        facts["digest"] = None if digests is None else digests.digest_of(outcome)
        if selected.is_summary:
            views.append(StepSummary(**facts))
        else:
            raised = _exception(step.outcome)
            views.append(StepView(**facts, request=requests.get(step.key), outcome=outcome, exception=raised))
    return StepPage(views, end if end < len(steps) else None)


class _Observed(Execution):
    """An execution in an offline replay that notes what its effects ask."""

    def __init__(self, history: ExecutionHistory) -> None:
        super().__init__(history.header, environment=None, journal=None, history=history)
        self.requests: dict[StepKey, JsonValue] = {}

    def find(self, effect: Effect) -> RecordedStep | None:
        self.requests[effect.key] = effect.asked()
        return super().find(effect)

    def answer_to(self, question: SuspensionRequest) -> RecordedStep:
        self.requests[question.key] = {"kind": question.kind, "tool_id": question.tool_id, "value": question.value}
        return super().answer_to(question)


def _requests(history: ExecutionHistory, patterns: Mapping[Mode, Pattern]) -> Mapping[StepKey, JsonValue]:
    observed = _Observed(as_suspended(history))
    try:
        replay(observed, pattern_for(history.header, patterns))
    except Failure:
        # The record of a running execution ends in the middle, and another version may read it in another way.
        return observed.requests
    return observed.requests


class _Digests:
    """Fingerprints of what was asked and digests of what was answered, with zeros in place of the digits of fences."""

    def __init__(self, history: ExecutionHistory, patterns: Mapping[Mode, Pattern]) -> None:
        marks = [fence_mark(each) for each in (history.header.execution_id, *history.header.ancestors)]
        texts = [message.text for step in history.steps.values() for message in _initial_messages(step.outcome)]
        self._marks = [mark for mark in marks if any(mark in text for text in texts)]
        fingerprints = self._without_marks(history, patterns) if self._marks else _recorded_fingerprints(history)
        waits = {key: "wait" for key, step in history.steps.items() if isinstance(step.outcome, TimerFired)}
        self.fingerprints: Mapping[StepKey, str] = {**fingerprints, **waits}
        """By key. The time of a wait is drawn by lot from the execution's id, so it is no part of what was asked."""

    def digest_of(self, outcome: Json) -> str:
        """Return the digest of an outcome as it is shown, without what was measured or drawn by lot."""
        answered = {name: each for name, each in outcome.items() if name not in _MEASURED}
        if "error" in answered:
            answered["error"] = {name: each for name, each in answered["error"].items() if name != "wait"}
        return digest(self._zeroed(answered))

    def _without_marks(self, history: ExecutionHistory, patterns: Mapping[Mode, Pattern]) -> Mapping[StepKey, str]:
        steps = {key: replace(step, outcome=self._zeroed_outcome(step.outcome)) for key, step in history.steps.items()}
        replayed = _Unfenced(as_suspended(replace(history, steps=steps)))
        with suppress(Failure):
            replay(replayed, pattern_for(history.header, patterns))
        return replayed.fingerprints

    def _zeroed_outcome(self, outcome: Outcome) -> Outcome:
        if not isinstance(outcome, Prepared):
            return outcome
        messages = [message.model_copy(update={"content": self._content(message)}) for message in outcome.messages]
        return replace(outcome, messages=tuple(messages))

    def _content(self, message: Message) -> str | list[Part]:
        if isinstance(message.content, str):
            return self._zeroed_text(message.content)
        return [
            part.model_copy(update={"text": self._zeroed_text(part.text)}) if isinstance(part, TextPart) else part
            for part in message.content
        ]

    def _zeroed(self, value: Json) -> Json:
        if isinstance(value, str):
            return self._zeroed_text(value)
        if isinstance(value, Mapping):
            return {name: self._zeroed(each) for name, each in value.items()}
        return [self._zeroed(each) for each in value] if isinstance(value, list | tuple) else value

    def _zeroed_text(self, text: str) -> str:
        for mark in self._marks:
            text = text.replace(mark, "0" * len(mark))
        return text


_MEASURED: Final = frozenset({"context", "terms"})
"""Parts of outcomes that count tokens, also those of the digits of fences."""


class _Unfenced(Execution):
    """An execution in an offline replay of a record whose fences were changed, which notes the fingerprints.

    Effects that ask for what was changed have other fingerprints than the recorded ones, and are given these.
    """

    def __init__(self, history: ExecutionHistory) -> None:
        super().__init__(history.header, environment=None, journal=None, history=history)
        self.fingerprints = _recorded_fingerprints(history)

    def find(self, effect: Effect) -> RecordedStep | None:
        recorded = self.fingerprints.get(effect.key)
        if recorded is not None and effect.fingerprint != recorded:
            self.fingerprints[effect.key], effect.fingerprint = effect.fingerprint, recorded
        return super().find(effect)


def _recorded_fingerprints(history: ExecutionHistory) -> dict[StepKey, str]:
    return {key: step.fingerprint for key, step in history.steps.items()}


def _initial_messages(outcome: Outcome) -> Sequence[Message]:
    return outcome.messages if isinstance(outcome, Prepared) else ()


def _facts(
    history: ExecutionHistory, step: RecordedStep, start: StoredEvent | None, first: StoredEvent | None
) -> dict[str, Any]:
    """Return the fields of a step that neither what was asked nor what was answered gives."""
    key, outcome = StepKey(step.key), step.outcome
    duration_ms = _duration_ms(history, step)
    began = step.at - (duration_ms or 0.0) / 1000 if start is None else start.at
    is_attempt = start is not None and isinstance(start.event, InferenceStart)
    usage = cost = None
    if is_attempt and isinstance(outcome, AttemptSucceeded | AttemptFailed | AttemptCancelled):
        usage, prices = usage_of(outcome), recorded_prices(history.steps, step)
        if prices is not None:
            amount, saved = prices.cost_of(usage), prices.saved_by_cache(usage)
            cost = Cost(amount=amount, currency=history.header.currency, cache_saved=saved)
    return {
        "key": key,
        "kind": _kind(step, start),
        "from_step": key.step_number,
        "step_name": None if first is None else first.correlation.step_name,
        "started_at": datetime.fromtimestamp(began, UTC),
        "duration_ms": duration_ms,
        "provider": start.event.provider if start is not None and isinstance(start.event, InferenceStart) else None,
        "tool_name": start.event.tool_name if start is not None and isinstance(start.event, ToolStart) else None,
        "usage": usage,
        "cost": cost,
        "edited": history.header.fork is not None and key in history.header.fork.edited_keys,
    }


def _kind(step: RecordedStep, start: StoredEvent | None) -> str:
    if start is not None:
        return _STARTED[type(start.event)]
    return step.key if step.key in {PREPARE_KEY, STOP_KEY} else OUTCOMES[type(step.outcome)][0]


def _duration_ms(history: ExecutionHistory, step: RecordedStep) -> float | None:
    """Return the duration of what took time; None for what was only looked up or decided."""
    match step.outcome:
        case (
            AttemptSucceeded()
            | AttemptFailed()
            | AttemptCancelled()
            | ToolEnded()
            | ToolCallSuspended()
            | NodeEnded()
            | Retrieved()
            | MediaFetched()
        ):
            return step.outcome.duration_ms
        case Prepared() | Refused():
            return sum(stage.duration_ms for stage in step.outcome.stages) if step.outcome.stages else None
        case TimerFired():
            failed = history.steps.get(StepKey(step.key).parent)
            waited = failed.outcome.wait if failed is not None and isinstance(failed.outcome, AttemptFailed) else None
            return None if waited is None else waited * 1000
        case _:
            return None


def _messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [public_message(message) for message in messages]


def _prepared(outcome: Prepared) -> Json:
    found = {"tools": list(outcome.tools), "truncated_history": outcome.truncated_history}
    context = {} if outcome.context is None else {"context": asdict(outcome.context)}
    return {"messages": _messages(outcome.messages), **found, **context}


def _retrieved(outcome: Retrieved) -> Json:
    chunks = [{"source": each.source, "score": each.score, "content": each.text} for each in outcome.chunks]
    legs = {"lexical": outcome.lexical, "vector": outcome.vector}
    return {"chunks": chunks, **legs, "flagged": dict(outcome.flagged)}


def _setup(outcome: InferenceSetup) -> Json:
    engines: Json = {"candidates": _engines(outcome.candidates), "left_out": _engines(outcome.left_out)}
    if outcome.by_cause:
        engines["by_cause"] = {each.cause.value: _engines(each.candidates) for each in outcome.by_cause}
    terms = {} if outcome.terms is None else {"terms": asdict(outcome.terms)}
    return {"tools": [tool.name for tool in outcome.tools], **engines, "cut": list(outcome.cut), **terms}


def _engines(candidates: Sequence[Candidate]) -> list[dict[str, str]]:
    return [
        {"provider": each.provider, "model": each.model}
        | ({} if each.deployment is None else {"deployment": each.deployment})
        for each in candidates
    ]


def _plan(outcome: Plan) -> Json:
    steps = [step.model_dump(mode="json", exclude_none=True) for step in outcome.steps]
    return {"planner_id": outcome.planner_id, "rationale": outcome.rationale, "steps": steps}


def _reply(outcome: AttemptSucceeded) -> Json:
    reply = outcome.reply
    calls = [call.model_dump(mode="json") for call in reply.tool_calls]
    texts = {"content": reply.text, "reasoning": reply.reasoning}
    return {**texts, "tool_calls": calls, "finish_reason": reply.finish_reason, "model": reply.model}


def _fault(outcome: AttemptFailed) -> Json:
    error = {"code": RULES[outcome.reason].code, "reason": outcome.reason, "message": outcome.message}
    details = {"details": dict(outcome.details), "retry_after": outcome.retry_after, "wait": outcome.wait}
    return {"error": {**error, **details}, "content": outcome.partial}


def _tool_end(outcome: ToolEnded) -> Json:
    return {"content": outcome.content, "is_error": outcome.is_error, "code": outcome.code, "ran": outcome.ran}


def _exception(outcome: Outcome) -> StepException | None:
    raised = outcome.exception if isinstance(outcome, ToolEnded | Refused | AnswerValidated) else None
    return None if raised is None else StepException.model_validate(asdict(raised))


def _answer(outcome: SuspensionAnswer) -> Json:
    users = {} if not outcome.by else {"by": [each.user for each in outcome.by]}
    return {"payload": outcome.payload, **users}


def _agent(outcome: AgentCallStarted) -> Json:
    found = {"mode": outcome.mode, "model": outcome.model, "tools": list(outcome.tools)}
    return {"preamble": outcome.system_prompt, **found}


def _code(outcome: CodeStarted) -> Json:
    return {"interpreter": outcome.interpreter, "tools": [tool.name for tool in outcome.tools]}


def _refusal(outcome: Refused) -> Json:
    return {"error": {"code": outcome.code, "message": outcome.message, "details": outcome.details}}


def _validation(outcome: AnswerValidated) -> Json:
    refusal = {} if outcome.failure is None else {"code": outcome.failure.code, "message": outcome.failure.message}
    return {"validation_result": outcome.validation.model_dump(mode="json"), **refusal}


OUTCOMES: Mapping[type[Outcome], tuple[str, Callable[[Any], Json]]] = MappingProxyType(
    {
        PlanningInputs: (
            "planning",
            lambda outcome: {
                "tools": [tool["name"] for tool in outcome.tools],
                **({"step_types": [each["name"] for each in outcome.step_types]} if outcome.step_types else {}),
                **({"plan": _plan(outcome.plan)} if outcome.plan is not None else {}),
                "history": _messages(outcome.history),
            },
        ),
        Plan: ("plan", _plan),
        MediaFetched: ("media", lambda outcome: {"media_type": outcome.media_type, "bytes": outcome.size}),
        Retrieved: ("retrieval", _retrieved),
        Prepared: ("prepare", _prepared),
        CompactionStarted: ("compaction", asdict),
        InferenceSetup: ("inference", _setup),
        AttemptSucceeded: ("attempt", _reply),
        AttemptFailed: ("attempt", _fault),
        AttemptCancelled: ("wait", lambda outcome: {"cancelled": True, "content": outcome.partial}),
        ToolEnded: ("tool_call", _tool_end),
        NodeEnded: ("node", lambda outcome: {"output": orjson.loads(outcome.output)}),
        AgentStarted: ("agent", lambda outcome: {"preamble": outcome.preamble, "model": outcome.model}),
        AgentCallStarted: ("tool_call", _agent),
        CodeStarted: ("tool_call", _code),
        CodeRound: ("code_round", lambda outcome: {"calls": [call.model_dump(mode="json") for call in outcome.calls]}),
        ToolCallSuspended: ("tool_call", lambda outcome: {"question": outcome.value}),
        CallDecided: ("decision", lambda outcome: {"verdict": outcome.verdict, "asked_because": outcome.reason}),
        GrantUsed: ("decision", lambda outcome: {"grant_id": outcome.grant_id, "granted_by": outcome.granted_by}),
        TimerFired: ("wait", lambda _: {}),
        SuspensionAnswer: ("answer", _answer),
        Refused: ("refusal", _refusal),
        AnswerValidated: ("validation", _validation),
        RaceDecided: ("decision", lambda outcome: {"branches": list(outcome.winners)}),
        StopDecision: ("stop", lambda outcome: {"error": {"code": outcome.code, "message": outcome.message}}),
    }
)
"""The kind of the step that each outcome makes, and the function that shows it."""
_STARTED: Mapping[type[Event], str] = MappingProxyType(
    {InferenceStart: "attempt", ToolStart: "tool_call", NodeStart: "node", RetrievalStart: "retrieval"}
)
"""The kind of a step that began with such an event."""
