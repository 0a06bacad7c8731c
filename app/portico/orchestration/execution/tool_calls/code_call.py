"""Calls of code: tool calls that run Python which a model wrote, and which calls tools itself.

Whenever the code can only wait, its open calls are one tool round below the call: `key/i/0/0` is the start, which
records the tools that the code may call, `key/i/n` is round n with the calls that it consists of, and `key/i/0/1` is
the end. While a call waits for a person nothing runs. An unfinished call runs the code again from its start, with
recorded results in place of its calls; the same code with the same results makes the same calls. A call that has ended,
and every call in an offline replay, follows the record and needs no interpreter.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from pydantic import JsonValue

from portico.capabilities.tools.code_tool import MAX_ROUNDS, RUN_CODE, function_names
from portico.capabilities.tools.code_values import code_violation, text_of_end, value_of_text
from portico.capabilities.tools.executor import refused_call
from portico.capabilities.tools.policy import NOT_PERMITTED
from portico.domain.contract.messages import ToolCall, ToolResult
from portico.domain.failures import Code
from portico.domain.fingerprints import args_hash, digest, idempotency_key, span_id
from portico.domain.ids import SpanId, ToolCallId
from portico.domain.journal.events import CorrelationContext, Event, ToolEnd, ToolStart
from portico.domain.journal.outcomes import CodeRound, CodeStarted, Outcome, ToolEnded
from portico.domain.journal.step_key import StepKey
from portico.domain.tools import OfferedTool
from portico.domain.value import replace, value
from portico.orchestration.execution.branch_settings import BranchSettings, permitted_tools
from portico.orchestration.execution.effect import BranchStopped, BranchSuspended, Effect, RecordedValue
from portico.orchestration.execution.environment import Environment
from portico.orchestration.execution.execution import Execution
from portico.orchestration.execution.ledger import too_many_calls
from portico.orchestration.execution.recorder import diverged
from portico.orchestration.execution.tool_call_state import CANCELLED, ToolCallState
from portico.orchestration.execution.tool_calls.content_stream import ContentStream
from portico.ports.code import CodeEnd, CodeNotStarted, CodeProgram, CodeRun, CodeTurn, FunctionCall, FunctionResult

_UNAVAILABLE = "the tool cannot run right now"
_BUDGET_SPENT = "not run: the budget of the execution is spent"
_TOO_MANY_ROUNDS = f"The code was ended: it waited for calls more than {MAX_ROUNDS} times."


@value
class CodeRoundStart:
    """A round of calls that code makes: the calls, the tools that it may call, and the settings that hold for them."""

    states: Sequence[ToolCallState]
    tools: tuple[OfferedTool, ...]
    settings: BranchSettings


RunRound: TypeAlias = Callable[[StepKey, CodeRoundStart], Awaitable[list[ToolResult]]]
"""Runs the round of that key to its end, and returns the results in call order."""


class CodeCall:
    """A call of code within a branch with these settings. `key` is that of the call, `key/i` of its round.

    `offered` are the tools that were offered with it. `asked_by` is the span of the attempt whose reply asked for it;
    None if no model did.
    """

    def __init__(
        self,
        execution: Execution,
        state: ToolCallState,
        key: StepKey,
        settings: BranchSettings,
        offered: Sequence[OfferedTool],
        asked_by: SpanId | None,
    ) -> None:
        self.started_at = 0.0
        """When the code started, in Unix seconds."""
        self.ended_at = 0.0
        """When its last step ended, in Unix seconds."""
        self._start = CodeStart(execution, state, key, settings, None if asked_by is None else offered)
        if asked_by is not None:
            self._start.correlation = replace(self._start.correlation, parent_span_id=asked_by)
        self._execution = execution
        self._state = state
        self._key = key
        self._settings = settings

    async def run(self, round_key: StepKey, run_round: RunRound) -> None:
        """Run the code to its end, which becomes the result of the call.

        Raises: BranchStopped, BranchSuspended; OrchestrationFailure (ORCHESTRATION_REPLAY_DIVERGED) if the code makes
        other calls than the recorded ones.
        """
        execution, state = self._execution, self._state
        step = await execution.perform(self._start)
        self.started_at = step.at
        self._note(step.at)
        execution.ledger.tool_calls.rounds.add(round_key)
        if isinstance(step.outcome, ToolEnded):
            state.refuse(step.outcome.content, step.outcome.code)
            state.violations = step.outcome.violations
            return
        assert isinstance(step.outcome, CodeStarted)  # noqa: S101 - the other outcome of a start
        execution.ledger.tool_calls.begin(self._key, None)
        state.attempts, state.has_begun, state.result, state.code = 1, True, CANCELLED, Code.CANCELLED_SIGNAL
        rounds = CodeRounds(execution, state, self._key, step.outcome, self._inner_settings(step.outcome), run_round)
        try:
            end = await rounds.run(step.at)
        except BranchSuspended:
            state.mark_waiting()
            raise
        await self._end(step.outcome, end, rounds.call_count)

    def cut_off(self, code: Code, at: float) -> tuple[str, CorrelationContext, Event]:
        """Return the end of a call whose code did not come to its own end, with its place in the record."""
        return self._start.key, self._start.correlation, self._ended(at, code)

    async def _end(self, started: CodeStarted, end: CodeEnd | None, calls: int) -> None:
        """Take the end of the code as the result of the call; None if only the record has it."""
        execution, state = self._execution, self._state

        async def ended(environment: Environment) -> Outcome:
            assert end is not None  # noqa: S101 - what is not recorded was run
            text, is_error = text_of_end(end, calls, started.result_bytes)
            duration_ms = max(0.0, environment.clock.now() - self.started_at) * 1000
            code = Code.TOOL_EXECUTION_FAILED if is_error else None
            ContentStream(execution, self._start.correlation).show(state.call.id, result=text)
            return ToolEnded(text, is_error, code, duration_ms)

        key, correlation = self._key.child(0, 1), self._start.correlation
        effect = RecordedValue(key, digest("code", key), correlation, find=ended, is_instant=True)
        step = await execution.perform(effect)
        assert isinstance(step.outcome, ToolEnded)  # noqa: S101 - the only outcome of an end
        state.is_waiting, state.result = False, state.marked(step.outcome.content)
        state.is_error, state.code = step.outcome.is_error, step.outcome.code
        state.duration_ms = max(0.0, step.at - self.started_at) * 1000
        self._note(step.at)
        execution.recorder.emit(self._start.key, correlation, self._ended(step.at, state.code))

    def _inner_settings(self, started: CodeStarted) -> BranchSettings:
        """Return the settings of the calls that the code makes."""
        settings, call = self._settings, self._state.call
        names = [tool.name for tool in started.tools]
        return replace(
            settings,
            correlation=self._start.correlation,
            tools=names,
            tool_id_prefix=f"{settings.tool_id_prefix}{RUN_CODE}::",
            code_call=call.id,
            submit=None,
            client_tools=(),
        )

    def _note(self, at: float) -> None:
        self.ended_at = max(self.ended_at, at)
        self._execution.ledger.last_at = max(self._execution.ledger.last_at, at)

    def _ended(self, at: float, code: Code | None) -> ToolEnd:
        duration_ms = max(0.0, at - self.started_at) * 1000
        return ToolEnd(self._state.call.name, self._state.call.id, duration_ms, success=code is None, error_code=code)


class CodeRounds:
    """The rounds of code that has started. They follow the record as far as the code goes the recorded way."""

    def __init__(
        self,
        execution: Execution,
        state: ToolCallState,
        key: StepKey,
        started: CodeStarted,
        settings: BranchSettings,
        run_round: RunRound,
    ) -> None:
        self.call_count = 0
        """Number of the calls that the code has made."""
        self._execution = execution
        self._state = state
        self._key = key
        self._started = started
        self._settings = settings
        self._run_round = run_round
        self._number = 0

    async def run(self, started_at: float) -> CodeEnd | None:
        """Return the end of the code; None if it is recorded, or if an offline replay only follows the record.

        The code's clock stands at `started_at`, in Unix seconds. Raises: BranchStopped, BranchSuspended;
        OrchestrationFailure (ORCHESTRATION_REPLAY_DIVERGED).
        """
        execution, key = self._execution, self._key
        interpreter, recorder = execution.facts.code, execution.recorder
        is_recorded = recorder.cursor.has_history and recorder.cursor.step(key.child(0, 1)) is not None
        is_stopped = recorder.has_stopped and recorder.is_closed(key)
        if is_recorded or is_stopped or (interpreter is None and recorder.is_read_only):
            await self._follow()
            return None
        if interpreter is None:
            raise diverged(key, recorded=self._started, replayed=None)
        call = self._state.call
        seed = idempotency_key(execution.header.execution_id, key, call.id)
        functions = function_names(self._started.tools)
        program = CodeProgram(str(call.arguments["code"]), frozenset(functions), started_at, seed)
        async with interpreter.open(program) as running:
            return await self._interpret(running, functions)

    async def _follow(self) -> None:
        """Run the recorded rounds, whose calls are recorded, too."""
        cursor = self._execution.recorder.cursor
        while (step := cursor.step(self._key.child(self._number + 1))) is not None:
            assert isinstance(step.outcome, CodeRound)  # noqa: S101 - the only outcome of a round
            await self._round(step.outcome.calls)

    async def _interpret(self, running: CodeRun, functions: Mapping[str, str]) -> CodeEnd:
        turn = await self._turn(running.start)
        while not isinstance(turn, CodeEnd):
            if self._number == MAX_ROUNDS:
                return CodeEnd(None, "", _TOO_MANY_ROUNDS)
            results = await self._round(self._calls(turn, functions))
            turn = await self._turn(partial(running.resume, list(map(_function_result, results))))
        unmade = self._execution.recorder.cursor.step(self._key.child(self._number + 1))
        if unmade is not None:
            raise diverged(unmade.key, recorded=unmade.outcome, replayed=None)
        return turn

    async def _turn(self, advance: Callable[[], Awaitable[CodeTurn]]) -> CodeTurn:
        """Let the code go on. Raises: BranchStopped if it is stopped meanwhile."""
        execution, key = self._execution, self._key.child(0, 1)
        if execution.recorder.has_stopped and execution.recorder.is_closed(key):
            raise BranchStopped
        execution.recorder.commit()
        with execution.branches.scope(key):
            try:
                return await advance()
            except CodeNotStarted as cause:
                return CodeEnd(None, "", f"The box could not be made: {cause}")
        raise BranchStopped

    def _calls(self, turn: Sequence[FunctionCall], functions: Mapping[str, str]) -> tuple[ToolCall, ...]:
        round_key = self._key.child(self._number + 1)
        return tuple(
            ToolCall(
                id=ToolCallId(f"call_{round_key.child(index)}"),
                name=functions[each.function],
                arguments=dict(each.arguments),
            )
            for index, each in enumerate(turn)
        )

    async def _round(self, calls: tuple[ToolCall, ...]) -> list[ToolResult]:
        """Record the next round and run it. Raises: OrchestrationFailure if another one is recorded."""
        self._number += 1
        self.call_count += len(calls)
        execution, key, settings = self._execution, self._key.child(self._number), self._settings
        made = CodeRound(calls)

        async def find(_: Environment) -> Outcome:
            return made

        effect = RecordedValue(key, digest("code", key), settings.correlation, find=find, is_instant=True)
        step = await execution.perform(effect)
        if step.outcome != made:
            raise diverged(key, recorded=step.outcome, replayed=made)
        states = [ToolCallState(call, self._state.step_name, self._state.agent) for call in calls]
        execution.ledger.tool_calls.add(key, states)
        return await self._run_round(key, CodeRoundStart(states, self._started.tools, settings))


class CodeStart(Effect):
    """The start of code: the interpreter and the tools that it may call, or the refusal of the call.

    It is `offered` these tools beside it; None if it may call all that its branch may.
    """

    acts = True
    is_instant = True

    def __init__(
        self,
        execution: Execution,
        state: ToolCallState,
        key: StepKey,
        settings: BranchSettings,
        offered: Sequence[OfferedTool] | None,
    ) -> None:
        call = state.call
        self.key = key.child(0, 0)
        self.fingerprint = digest("code", self.key, call.name, call.arguments)
        span = span_id(execution.header.execution_id, self.key)
        self.correlation = settings.correlation.child(span, caused_by=settings.code_call or call.id)
        self._execution = execution
        self._call = call
        self._call_key = key
        self._settings = settings
        self._offered = offered

    def asked(self) -> JsonValue:
        """Return the call."""
        return {"id": self._call.id, "name": self._call.name, "arguments": self._call.arguments}

    async def run(self, environment: Environment) -> Outcome:
        """Return the tools that the code may call now, or why it does not run."""
        stream = ContentStream(self._execution, self.correlation)
        stream.show(self._call.id, arguments=self._call.arguments)
        refusal = self._refusal(environment)
        if refusal is not None:
            stream.show(self._call.id, result=refusal.content)
            return refusal
        assert environment.code is not None  # noqa: S101 - it would have been refused
        tools, result_bytes = self._tools(environment), environment.tool_executor.result_bytes
        return CodeStarted(environment.code.version, tools, result_bytes)

    def end_events(self, outcome: Outcome) -> list[Event]:
        """Return the start of the call, and its end if it is refused."""
        call = self._call
        start = ToolStart(call.name, call.id, args_hash(self._execution.header.args_key, call.arguments))
        if not isinstance(outcome, ToolEnded):
            return [start]
        return [start, ToolEnd(call.name, call.id, 0.0, success=False, error_code=outcome.code)]

    def _refusal(self, environment: Environment) -> ToolEnded | None:
        call, policy = self._call, environment.tool_registry.policy
        code_tool = environment.tool_registry.code
        if environment.code is None or code_tool is None or not code_tool.available().available:
            return _refused(_UNAVAILABLE, Code.TOOL_UNAVAILABLE)
        if policy.denies(call.name, call.arguments, self._settings.caller):
            return _refused(NOT_PERMITTED, Code.TOOL_EXECUTION_FAILED)
        refused = environment.tool_executor.refusal(call)
        if refused is None and (violation := code_violation(call.arguments["code"])) is not None:
            refused = refused_call(call, (("arguments.code", violation),))
        return refused or self._limit_refusal()

    def _limit_refusal(self) -> ToolEnded | None:
        execution, limit = self._execution, self._execution.header.bounds.tool_calls
        budget = execution.ledger.budget
        if budget is not None and budget.is_exhausted:
            return _refused(_BUDGET_SPENT, Code.ORCHESTRATION_BUDGET_EXCEEDED)
        if not execution.ledger.tool_calls.begin(self._call_key, limit):
            return _refused(too_many_calls(limit), Code.ORCHESTRATION_ITERATION_LIMIT)
        return None

    def _tools(self, environment: Environment) -> tuple[OfferedTool, ...]:
        """Return the tools that the code may call: those that were offered with it, or that it replaces."""
        registry, settings = environment.tool_registry, self._settings
        code_tool = registry.code
        is_alone = self._offered is None or (code_tool is not None and code_tool.replaces_tools)
        names = settings.tools if is_alone or self._offered is None else [tool.name for tool in self._offered]
        return registry.offer(permitted_tools(environment, settings, names), to_code=True)[0]


def _function_result(result: ToolResult) -> FunctionResult:
    """Return the result of a call as the code gets it."""
    if result.is_error:
        return FunctionResult(error=result.content)
    return FunctionResult(value_of_text(result.content))


def _refused(text: str, code: Code) -> ToolEnded:
    return ToolEnded(text, is_error=True, code=code, duration_ms=0.0, ran=False)
