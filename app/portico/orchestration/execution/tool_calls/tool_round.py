"""Tool round: the tool calls of one reply, their approvals, attempts and results."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from pydantic import JsonValue

from portico.capabilities.tools.executor import CallObserver
from portico.capabilities.tools.policy import NOT_PERMITTED
from portico.domain.contract.messages import ToolResult
from portico.domain.contract.response import SuspensionKind
from portico.domain.failures import Code
from portico.domain.fingerprints import args_hash, digest, idempotency_key, span_id
from portico.domain.ids import SpanId
from portico.domain.journal.events import CorrelationContext, Event, ToolEnd, ToolStart
from portico.domain.journal.outcomes import (
    AttemptCancelled,
    Outcome,
    RecordedStep,
    SuspensionAnswer,
    ToolCallSuspended,
    ToolEnded,
)
from portico.domain.journal.step_key import StepKey
from portico.domain.journal.suspensions import (
    AUTHORIZATION_DECISIONS,
    UNKNOWN_OUTCOME_DECISIONS,
    UNKNOWN_OUTCOME_TEXT,
    Deny,
    GiveUp,
    Happened,
    RunAgain,
    answer_text,
    denial_text,
)
from portico.domain.raised_exception import CodeKind, RaisedException
from portico.domain.tools import STEP_PREFIX, OfferedTool, concurrent_groups
from portico.domain.value import replace
from portico.orchestration.execution.branch_settings import BranchSettings
from portico.orchestration.execution.effect import (
    BranchStopped,
    BranchSuspended,
    Effect,
    NonIdempotentEffect,
    SuspensionRequest,
)
from portico.orchestration.execution.environment import Environment
from portico.orchestration.execution.exception_report import ExceptionReporter
from portico.orchestration.execution.execution import NON_IDEMPOTENT_GRACE_S, Execution
from portico.orchestration.execution.ledger import too_many_calls
from portico.orchestration.execution.tool_call_state import ToolCallState
from portico.orchestration.execution.tool_calls.call_permission import CallPermissions, question_about
from portico.orchestration.execution.tool_calls.client_call import ClientCall
from portico.orchestration.execution.tool_calls.content_stream import ContentStream
from portico.ports.tool import ToolContinuation

_FIRST_CONTINUATION = 2
_MAX_AUTHORIZATIONS = 2
"""Times that a call asks for credentials."""
_UNKNOWN_TOOL = "no such tool"
_UNAVAILABLE = "the tool cannot run right now"
_NOT_AUTHORIZED = "not authorized"
_BUDGET_SPENT = "not run: the budget of the execution is spent"


RunNested: TypeAlias = Callable[[StepKey, ToolCallState, OfferedTool], Awaitable[float]]
"""Runs the agent or the code of the call of that key to its end, and returns when that was."""


class ToolRound:
    """All calls of one reply under one step.

    One of the tools of the settings that the inference did not offer cannot run now. All questions are asked before the
    first call runs. The approval of call i is `key/i/0`, its attempts are `key/i/0/0` and `key/i/0/1`. The question of
    attempt a is `a/1`, and the attempts that go on after one are `key/i/0/2`, `key/i/0/3`, …. The questions about an
    uncertain attempt a are `a/0/0`, `a/0/1`, …. The client's calls are asked for when all others have ended.
    """

    def __init__(
        self,
        key: StepKey,
        states: Sequence[ToolCallState],
        *,
        offered: Sequence[OfferedTool],
        permissions: CallPermissions,
        run_nested: RunNested,
        asked_by: SpanId | None = None,
    ) -> None:
        self.ended_at = 0.0
        """When its last call ended, in Unix seconds."""
        self._run_nested = run_nested
        self._asked_by = asked_by
        self._settings = permissions.settings
        self._execution = permissions.execution
        self._permissions = permissions
        self._permitted: list[bool | BranchSuspended | BranchStopped] = []
        """The permission of each call, or why it has none: it waits for a person, or was stopped before."""
        self._key = key
        self._call_keys = [key.child(index) for index in range(len(states))]
        self._states = states
        self._unsafe = frozenset([tool.name for tool in offered if tool.unsafe])
        self._client_calls: list[int] = []
        """The indexes of the calls that the client runs."""
        offers = {tool.name: tool for tool in offered}
        for index, state in enumerate(states):
            state.offer = offers.get(state.call.name)
            if state.offer is not None and state.offer.client:
                self._client_calls.append(index)

    async def run(self, limit: int, answered: Sequence[str] = ()) -> list[ToolResult]:
        """Return the results in call order; calls beyond the first `limit` do not run and get an error as result.

        The last calls have been `answered` by the pattern, with these results. The calls of the client's tools come
        after all others; those that are left to the client have no result.
        """
        count = len(self._states) - len(answered)
        running = [state.call.name for state in self._states[: min(limit, count)]]
        self._permitted = [await self._permission(index) for index in range(len(running))]
        in_turn = self._execution.facts.instant_tools.issuperset(running)
        for group in concurrent_groups(running, self._unsafe):
            await self._execution.branches.gather(
                [partial(self._call, index) for index in group if index not in self._client_calls], in_turn=in_turn
            )
        if self._client_calls:
            await self._run_client_calls(len(running))
        for state in self._states[limit:count]:
            state.refuse(f"not run: only {limit} calls of one reply run")
        for state, text in zip(self._states[count:], answered, strict=True):
            state.answer(text)
        return [self._result(state) for state in self._states if state.is_error or state.has_begun]

    def kept_from_running(self) -> Iterator[tuple[StepKey, CorrelationContext, Sequence[Event]]]:
        """Yield the start and the end of each call that the end of the execution kept from running, with its place."""
        for index, state in enumerate(self._states):
            if state.was_kept_from_running and index not in self._client_calls:
                key, call = self._call_keys[index].child(0, 0), state.call
                start = ToolStart(call.name, call.id, args_hash(self._execution.header.args_key, call.arguments))
                end = ToolEnd(call.name, call.id, 0.0, success=False, error_code=Code.CANCELLED_SIGNAL)
                yield key, _correlation(self._execution, state, key, self._settings, self._asked_by), (start, end)

    async def _run_client_calls(self, limit: int) -> None:
        """Take the results of the client's calls among the first `limit`, or leave these calls to it.

        Raises: BranchSuspended while a result is missing.
        """
        execution, settings = self._execution, self._settings
        calls = []
        for index in self._client_calls:
            if index < limit:
                state, key = self._states[index], self._call_keys[index]
                correlation = _correlation(execution, state, key.child(0, 0), settings, self._asked_by)
                calls.append(ClientCall(execution, state, key, settings, correlation))
        calls = [call for call in calls if call.admit()]
        if execution.header.request.on_client_call == "end":
            for call in calls:
                call.leave()
            return
        for call in calls:
            call.start()
        execution.recorder.commit()
        await execution.branches.gather([call.run for call in calls])
        self.ended_at = max([self.ended_at, *(call.answered_at for call in calls)])

    async def _call(self, index: int) -> None:
        state, key = self._states[index], self._call_keys[index]
        offered, permitted = state.offer, self._permitted[index]
        if isinstance(permitted, (BranchSuspended, BranchStopped)):
            raise permitted
        if not permitted:
            self._show(state, key.child(0, 0), arguments=state.call.arguments)
            self._show(state, key.child(0, 0), result=state.result)
            return
        if offered is not None and (offered.agent or offered.code):
            self.ended_at = max(self.ended_at, await self._run_nested(key, state, offered))
            return
        number, continuation, authorizations = 0, None, 0
        while True:
            attempt = self._attempt(state, key, number, offered, continuation)
            attempt.may_authorize = authorizations < _MAX_AUTHORIZATIONS and self._settings.replica is None
            try:
                step = await self._execution.perform(attempt)
            except BranchSuspended:
                state.has_begun = True
                state.mark_waiting()
                raise
            self.ended_at = max(self.ended_at, step.at)
            match step.outcome:
                case ToolCallSuspended() as suspended:
                    if not self._goes_on(state, suspended, attempt):
                        self._show(state, attempt.key, result=state.result)
                        return
                    continuation = attempt.continuation
                    authorizations += suspended.credential is not None
                    number = max(_FIRST_CONTINUATION, number + 1)
                case ToolEnded(retry=True):
                    number = 1
                case _:
                    return

    def _goes_on(self, state: ToolCallState, suspended: ToolCallSuspended, attempt: "ToolAttempt") -> bool:
        """Return True if the tool is called again after the answer to its question; else the call has its result.

        What it then goes on with is the continuation of the attempt. Raises: BranchSuspended until there is an answer.
        """
        value, key = suspended.value, attempt.key
        if suspended.credential is not None:
            return self._is_authorized(state, value, key)
        answer = self._ask(state, value, key)
        if suspended.state is None:
            state.answer(answer_text(answer))
            return False
        attempt.continuation = ToolContinuation(suspended.state, answer)
        return True

    async def _permission(self, index: int) -> bool | BranchSuspended | BranchStopped:
        """Return the permission of the call, or why it has none; the question is asked before any call runs."""
        state = self._states[index]
        if state.offer is None:
            return True
        try:
            return await self._permissions.permit(state, state.offer, self._call_keys[index])
        except (BranchSuspended, BranchStopped) as end:
            return end
        finally:
            if state.answer_given is not None:
                self.ended_at = max(self.ended_at, state.answer_given.at)

    def _attempt(
        self,
        state: ToolCallState,
        call_key: StepKey,
        number: int,
        offered: OfferedTool | None,
        continuation: ToolContinuation | None,
    ) -> "ToolAttempt":
        kind = NonIdempotentToolAttempt if offered is not None and offered.unsafe else ToolAttempt
        attempt = kind(
            self._execution,
            state,
            call_key,
            number,
            offered=offered,
            settings=self._settings,
            asked_by=self._asked_by,
        )
        attempt.continuation = continuation
        attempt.is_instant = state.call.name in self._execution.facts.instant_tools
        return attempt

    def _show(
        self,
        state: ToolCallState,
        key: StepKey,
        *,
        arguments: Mapping[str, JsonValue] | None = None,
        result: str | None = None,
    ) -> None:
        """Publish the arguments or the result of a call that no attempt publishes, unless a replay has come by here."""
        recorder = self._execution.recorder
        if not recorder.is_read_only and not recorder.cursor.is_past(self._key):
            correlation = _correlation(self._execution, state, key, self._settings, self._asked_by)
            ContentStream(self._execution, correlation).show(state.call.id, arguments=arguments, result=result)

    def _is_authorized(self, state: ToolCallState, value: JsonValue, attempt_key: StepKey) -> bool:
        """Return True if the credential that the call needs has a value now. Raises: BranchSuspended while it waits."""
        payload = self._ask(state, value, attempt_key, SuspensionKind.AUTHORIZATION)
        answer = AUTHORIZATION_DECISIONS.validate_python(payload)
        if isinstance(answer, Deny):
            state.refuse(denial_text(answer, _NOT_AUTHORIZED), Code.TOOL_EXECUTION_FAILED)
            return False
        state.is_waiting, state.is_error = False, True
        return True

    def _ask(
        self,
        state: ToolCallState,
        value: JsonValue,
        attempt_key: StepKey,
        kind: SuspensionKind = SuspensionKind.QUESTION,
    ) -> JsonValue:
        """Return the answer to the tool's question. Raises: BranchSuspended until there is one."""
        call, settings = state.call, self._settings
        question = SuspensionRequest(
            attempt_key.child(1),
            kind,
            settings.tool_id_prefix + call.name,
            value,
            tool_call_id=call.id,
            step_name=settings.correlation.step_name,
            agent=settings.caller.agent,
        )
        step = self._execution.answer_to(question)
        assert isinstance(step.outcome, SuspensionAnswer)  # noqa: S101 - the only outcome of a question
        self.ended_at = max(self.ended_at, step.at)
        return step.outcome.payload

    def _result(self, state: ToolCallState) -> ToolResult:
        is_idempotent = state.offer is not None and state.offer.idempotent
        return ToolResult(
            state.call,
            state.result,
            state.is_error,
            state.code,
            state.attempts,
            state.duration_ms,
            is_idempotent,
            state.violations,
        )


class ToolAttempt(Effect):
    """One attempt at the tool call of that key; attempts are numbered from 0.

    `offered` is None for a tool that the inference did not offer; if the settings name it, it went away, else it is
    unknown. `asked_by` is the span of the attempt whose reply asked for the call; None if no model did.
    """

    acts = True
    is_unsafe = False
    """True for a call that must not happen twice."""

    def __init__(
        self,
        execution: Execution,
        state: ToolCallState,
        call_key: StepKey,
        number: int,
        *,
        offered: OfferedTool | None,
        settings: BranchSettings,
        asked_by: SpanId | None,
    ) -> None:
        call, key = state.call, call_key.child(0, number)
        self.continuation: ToolContinuation | None = None
        """The answered question after which the call goes on."""
        self.may_authorize = False
        """True if a missing credential may be asked for."""
        self.key = key
        self.fingerprint = digest("tool", key, call.name, call.arguments)
        self.correlation = _correlation(execution, state, key, settings, asked_by)
        arguments_hash = args_hash(execution.header.args_key, call.arguments)
        self.start_event = ToolStart(call.name, call.id, arguments_hash, settings.replica)
        self._execution = execution
        self._state = state
        self._offered = offered
        self._settings = settings
        self._call_key = call_key
        self._number = number

    def asked(self) -> JsonValue:
        """Return the call."""
        return {"id": self._state.call.id, "name": self._state.call.name, "arguments": self._state.call.arguments}

    async def run(self, environment: Environment) -> Outcome:
        """Run the tool once, within the time that is left; refuse it if it was not offered or the budget is spent."""
        execution, call, key = self._execution, self._state.call, self._call_key
        stream = ContentStream(execution, self.correlation)
        if stream.has_readers:
            if self.is_instant:
                execution.recorder.commit()
            stream.show(call.id, arguments=call.arguments)
        refusal = self._begin(environment, key)
        if refusal is not None:
            stream.show(call.id, result=refusal[0])
            return ToolEnded(refusal[0], is_error=True, code=refusal[1], duration_ms=0.0, ran=False)
        grace_s, header = NON_IDEMPOTENT_GRACE_S if self.is_unsafe else 0.0, execution.header
        ended = await environment.tool_executor.attempt(
            call,
            key=idempotency_key(header.execution_id, key, call.id),
            attempt=min(self._number, 1),
            seconds_left=execution.seconds_left + grace_s,
            digest=self._state.granted_digest or "",
            continuation=self.continuation,
            observer=CallObserver(
                partial(self._report, environment),
                partial(stream.report, call) if stream.shows_progress else None,
            ),
            caller=self._settings.caller_in(header),
            flow=self._settings.flow,
            execution_id=header.execution_id,
            may_ask=self.may_authorize,
        )
        stream.is_over = True
        if stream.has_reported:
            stream.end_progress()
        if isinstance(ended, ToolEnded):
            if self._state.answer_given is not None:
                ended = replace(ended, content=self._state.marked(ended.content))
            if stream.has_readers:
                stream.show(call.id, result=ended.content)
        return ended

    def _begin(self, environment: Environment, key: StepKey) -> tuple[str, Code] | None:
        """Count the call of that key as begun, and return None; or return why it does not run."""
        execution, call = self._execution, self._state.call
        if self._offered is None:
            is_allowed = call.name in self._settings.tools
            return (_UNAVAILABLE, Code.TOOL_UNAVAILABLE) if is_allowed else (_UNKNOWN_TOOL, Code.TOOL_NOT_FOUND)
        policy = environment.tool_registry.policy
        if not policy.is_empty and policy.denies(call.name, call.arguments, self._settings.caller):
            return NOT_PERMITTED, Code.TOOL_EXECUTION_FAILED
        budget = execution.ledger.budget
        if budget is not None and budget.is_exhausted:
            return _BUDGET_SPENT, Code.ORCHESTRATION_BUDGET_EXCEEDED
        limit = execution.header.bounds.tool_calls
        if not execution.ledger.tool_calls.begin(key, limit):
            return too_many_calls(limit), Code.ORCHESTRATION_ITERATION_LIMIT
        return None

    def _report(self, environment: Environment, error: BaseException | RaisedException) -> None:
        """Report what the function of the tool, or of the step type of that name, has raised."""
        name = self._state.call.name
        step_type = name.removeprefix(STEP_PREFIX)
        kind = CodeKind.TOOL if step_type == name else CodeKind.STEP
        ExceptionReporter(environment, self._execution.header.request, self.correlation).report(kind, step_type, error)

    def end_events(self, outcome: Outcome) -> tuple[Event, ...]:
        """Return the end of the attempt."""
        assert isinstance(outcome, ToolEnded | ToolCallSuspended | AttemptCancelled)  # noqa: S101 - of an attempt
        call = self._state.call
        code = Code.CANCELLED_SIGNAL if isinstance(outcome, AttemptCancelled) else getattr(outcome, "code", None)
        return (ToolEnd(call.name, call.id, outcome.duration_ms, success=code is None, error_code=code),)

    def account(self, step: RecordedStep) -> None:
        """Add the attempt to the ledger."""
        fork = self._execution.header.fork
        if fork is not None and self.key in fork.edited_keys:
            self._execution.ledger.tool_calls.note_edited(self._state)
        self._execution.ledger.record_tool_attempt(step, self._state, self._call_key.parent, is_unsafe=self.is_unsafe)


class NonIdempotentToolAttempt(ToolAttempt, NonIdempotentEffect):
    """An attempt at a call that must not happen twice: if it did not end here, only a person knows whether it has."""

    is_unsafe = True
    unknown_outcome = ToolEnded(UNKNOWN_OUTCOME_TEXT, is_error=True, code=Code.TOOL_OUTCOME_UNKNOWN, duration_ms=0.0)

    def is_uncertain(self, outcome: Outcome) -> bool:
        """Return True after a timeout and after a connection that was lost."""
        return isinstance(outcome, ToolEnded) and outcome.code in {Code.TOOL_TIMEOUT, Code.TOOL_OUTCOME_UNKNOWN}

    def question(self, number: int) -> SuspensionRequest:
        """Return the question whether the call has happened."""
        key = self.key.child(0, number)
        return question_about(SuspensionKind.UNKNOWN_OUTCOME, self._state.call, key, self._settings)

    def outcome_from_answer(self, payload: JsonValue) -> Outcome | None:
        """Return the outcome that the person decided; None to run the call once more."""
        match UNKNOWN_OUTCOME_DECISIONS.validate_python(payload):
            case Happened(result=result):
                text = self._state.marked(answer_text(result))
                return ToolEnded(text, is_error=False, code=None, duration_ms=0.0)
            case RunAgain():
                return None
            case GiveUp():
                return self.unknown_outcome


def _correlation(
    execution: Execution, state: ToolCallState, key: StepKey, settings: BranchSettings, asked_by: SpanId | None
) -> CorrelationContext:
    """Return the correlation of the attempt of that key at a call."""
    span = span_id(execution.header.execution_id, key)
    if asked_by is None:
        return settings.correlation.child(span, caused_by=settings.code_call or state.call.id)
    return settings.correlation.caused(span, asked_by)
