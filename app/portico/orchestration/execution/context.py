"""The run context: what a pattern is given, everything that it may await, and the rules of using it.

A context is a position in one branch together with immutable settings. A pattern that needs other settings derives a
context with them, at the same position. A branch starts at a position of its own, with the settings of its parent;
everything else is new there, so nothing leaks between branches.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TypeVar, overload

from pydantic import JsonValue

from portico.capabilities.answer_contract import AnswerContract, ValidatedAnswer
from portico.capabilities.prompting.prompt_call import Asked, Output, Prompt, PromptCall
from portico.capabilities.prompting.supervisor import Supervisor
from portico.capabilities.tools.code_tool import MAX_ROUND_CALLS
from portico.domain.agents import ConfiguredAgent
from portico.domain.contract.final_answer import PhaseEInput
from portico.domain.contract.messages import Message, ToolCall, ToolResult
from portico.domain.contract.request import ExecutionHints, SystemRequest
from portico.domain.contract.response import StepStatus, SuspensionKind
from portico.domain.contract.rules import AnswerContent
from portico.domain.failures import Code, Failure
from portico.domain.fingerprints import digest
from portico.domain.ids import SpanId
from portico.domain.journal.events import INIT_ANCHOR, CorrelationContext, Event, StepStart
from portico.domain.journal.header import EffectiveLimits
from portico.domain.journal.outcomes import (
    AnswerValidated,
    InferenceSetup,
    Outcome,
    Prepared,
    RecordedStep,
    SuspensionAnswer,
)
from portico.domain.journal.step_key import PREPARE_KEY, ROOT, StepKey
from portico.domain.lifecycle import Mode, State
from portico.domain.model_call import NO_RESPONSE_FORMAT, EngineCall, Reply, ResponseFormat
from portico.domain.pattern_result import PatternResult
from portico.domain.raised_exception import CodeKind, RaisedException
from portico.domain.tools import STEP_PREFIX, Caller, OfferedTool
from portico.domain.value import replace
from portico.orchestration.execution.branch_settings import DEFAULT_REDUNDANCY, AgentPattern, BranchSettings
from portico.orchestration.execution.branches import EarlyStop, TimeLimit
from portico.orchestration.execution.effect import BranchSuspended, Effect, RecordedValue, SuspensionRequest
from portico.orchestration.execution.environment import ChunkCheck, Environment
from portico.orchestration.execution.exception_report import ExceptionReporter
from portico.orchestration.execution.execution import Execution
from portico.orchestration.execution.inference import Inference
from portico.orchestration.execution.position import PatternMisuse, Position
from portico.orchestration.execution.progress import Conversation, RunProgress, StepProgress
from portico.orchestration.execution.reserve import use_budget_reserve
from portico.orchestration.execution.tool_call_state import ToolCallState
from portico.orchestration.execution.tool_calls.agent_call import AgentCall
from portico.orchestration.execution.tool_calls.call_permission import CallPermissions
from portico.orchestration.execution.tool_calls.code_call import CodeCall, CodeRoundStart
from portico.orchestration.execution.tool_calls.tool_round import ToolRound
from portico.ports.current_caller import acting_for

T = TypeVar("T")
_GREEDY = ExecutionHints(temperature=0)


class RunContext:
    """One branch as its pattern sees it. Its steps are numbered from 0, in the order in which they are asked for.

    The branch owns its conversation: `infer` takes only what is new, and adds the answer itself.
    """

    __slots__ = ("_forks", "_position", "settings")

    def __init__(self, position: Position, settings: BranchSettings) -> None:
        self._position = position
        self.settings = settings
        """The settings in force; a fork whose first own step is reached replaces them."""
        self._forks = 0
        """The number of forks that the settings have taken over."""

    @property
    def request(self) -> SystemRequest:
        """The request of the execution."""
        return self._position.execution.header.request

    @property
    def limits(self) -> EffectiveLimits:
        """The limits in force."""
        return self.settings.agent_limits or self._position.execution.header.bounds

    def with_settings(self, settings: BranchSettings) -> "RunContext":
        """Return a context at the same position with other settings."""
        context = RunContext(self._position, settings)
        context._forks = self._forks
        return context

    async def infer(self, asked: Asked, response_format: ResponseFormat | None = None, *, tools: bool = True) -> Reply:
        """Ask a model about the conversation with this added; without `tools` it is offered none.

        The text has the response format as far as the provider enforces it. Raises: InferenceFailure.
        """
        position = self._position
        execution, key = position.execution, self._next_key()
        settings, conversation = self.settings, position.conversation
        is_first = not conversation.messages
        hints = settings.hints
        if hints.tool_choice is not None and not is_first:
            hints = _hints_of_later(hints)
        messages = asked.messages(execution.facts.prompts) if isinstance(asked, Prompt) else asked
        if is_first and position.overrides:
            conversation.inherit(messages, position.progress.prepared_messages)
        added = conversation.extend(messages)
        asked_format = response_format or NO_RESPONSE_FORMAT
        inference = Inference(
            execution,
            key,
            self._fingerprint(key, asked, messages, added, hints, response_format),
            settings=settings if tools else replace(settings, tools=(), submit=None, client_tools=()),
            conversation=conversation,
            added=added,
            call=EngineCall(conversation.messages, (), hints, asked_format.schema, asked_format.grammar),
        )
        try:
            reply = await inference.run()
        finally:
            position.now = max(position.now, inference.ended_at)
            conversation.was_rejected, conversation.round_span = False, None
        position.anchor = inference.anchor
        return reply

    async def call_tools(self, calls: Sequence[ToolCall], answered: Sequence[str] = ()) -> list[ToolResult]:
        """Run all calls of the last reply and return their results in call order. A failed call is a result, too.

        The last calls do not run if the pattern has `answered` them; these are their results. A call that ends the
        execution, since it is left to the client, has no result.
        """
        conversation = self._position.conversation
        if [state.call for state in conversation.open_calls] != list(calls):
            raise PatternMisuse("all calls of one reply belong in one call_tools")
        key = self._next_key()
        states = conversation.take_open_calls()
        return await self._run_calls(key, states, conversation.setup, answered, asked_by=conversation.round_span)

    async def call_tool(self, name: str, arguments: Mapping[str, JsonValue]) -> ToolResult:
        """Call a tool that no model asked for. A failed or refused call is a result, too."""
        return await self._call(name, arguments, is_allowed=self.settings.allows_tool(name))

    async def _call(self, name: str, arguments: Mapping[str, JsonValue], *, is_allowed: bool) -> ToolResult:
        key = self._next_key()

        async def offer(environment: Environment) -> Outcome:
            return InferenceSetup(environment.tool_registry.offer_of(name) if is_allowed else (), ())

        step = await self._record(key, digest("offer", key, name), offer, is_instant=True)
        assert isinstance(step.outcome, InferenceSetup)  # noqa: S101 - the only outcome of an offer
        call = ToolCall(id=f"call_{key}", name=name, arguments=dict(arguments))
        state = ToolCallState(call, self.settings.correlation.step_name, self.settings.caller.agent)
        self._position.execution.ledger.tool_calls.add(key, [state])
        [result] = await self._run_calls(key, [state], step.outcome)
        return result

    async def ask(self, question: PromptCall[Output]) -> Output:
        """Return what a model answers, apart from the conversation of the branch and from the response.

        An unusable answer is repaired, at most twice and within `attempts`. Raises: InferenceFailure;
        ConstraintFailure, or the failure of the question's check, of the last answer.
        """
        position, branch = self._position, self._next_key().child(0)
        settings = self.settings
        position.execution.ledger.exclude((branch,))
        aside = position.child(branch, Conversation())
        aside.anchor = position.anchor
        context = RunContext(aside, replace(settings, hints=_GREEDY, tools=(), client_tools=(), is_side_question=True))
        supervisor = Supervisor(question, self.limits.attempts)
        while True:
            reply = await context.infer(supervisor.prompt, supervisor.response_format)
            position.move_to(aside.anchor, aside.now)
            answer = supervisor.read(reply.text)
            if answer is not None:
                return answer
            aside.conversation = aside.conversation.restarted()
            aside.conversation.was_rejected = True

    async def record_value(
        self,
        find: Callable[[Environment], Awaitable[Outcome]],
        *known: object,
        key: StepKey | None = None,
        is_instant: bool = True,
    ) -> tuple[Outcome, float]:
        """Return what `find` returns, recorded as a step, so that a replay does not look again, and the time.

        The time is in Unix seconds and not before that of an earlier step. What is `known` beforehand is part of the
        fingerprint. A function that `is_instant` never waits.
        """
        key = self._next_key() if key is None else key
        step = await self._record(key, digest("found", key, *known), find, is_instant=is_instant)
        return step.outcome, self._position.now

    async def validate(self, contract: AnswerContract, answer: str | AnswerContent, attempt: int) -> ValidatedAnswer:
        """Return the validated answer: the last answer of the branch, or a value that a step was given.

        A worker validates what is not small and plain. Its outcome is recorded under the key of the answer's step and
        takes no ordinal. An offline replay of a record that lacks it validates in place.
        """
        text = answer if isinstance(answer, str) else answer.text
        outcome = await self._worker_validation(contract, answer, attempt, text)
        if outcome is not None:
            return ValidatedAnswer.recorded(text, outcome)
        validated = contract.validate_quickly(answer, attempt)
        return await self.compute(partial(contract.validate, answer, attempt)) if validated is None else validated

    async def compute(self, work: Callable[[], T]) -> T:
        """Do long work without effects on a thread and return what it returns. It is no step."""
        return await self._position.execution.compute(work)

    def transition_to(self, state: State, reason: str) -> None:
        """Move the lifecycle if this is the outermost pattern; a pattern that another one called does not."""
        if self._position.is_root:
            self._position.execution.transition_to(self._position.anchor, state, reason)

    def announce_retry(self, why: Failure) -> None:
        """Record that another attempt follows, in the lifecycle and in the plan step; the last answer was rejected."""
        position = self._position
        self.transition_to(State.EXECUTE, why.code.lower())
        if position.step is not None:
            self.emit(position.step.end_event(StepStatus.FAILED, at=position.now, code=why.code))
            self._start_attempt(position.step)
        position.conversation.was_rejected = True

    def start_step(self, step_type: str) -> None:
        """Record that a plan step starts. Its end is recorded in any case, at last by the end of the execution."""
        step = StepProgress(step_type, self.settings.correlation, self.settings.pass_number)
        self._position.step = step
        self._start_attempt(step)
        self._position.progress.steps.append(step)

    def end_step(self, status: StepStatus, code: Code | None = None) -> None:
        """Record the end of the plan step that started here."""
        position = self._position
        assert position.step is not None  # noqa: S101 - a step that ends has started
        self.emit(position.step.end_event(status, at=position.now, code=code))
        position.progress.steps.remove(position.step)

    def emit(self, *events: Event) -> None:
        """Record events behind the last step of the branch."""
        position = self._position
        position.execution.recorder.emit(position.anchor, self.settings.correlation, *events)

    def set_partial_result(self, result: PatternResult) -> None:
        """Set what the response shows if nothing better follows; only the outermost pattern does."""
        if self._position.is_root:
            self._position.progress.partial_result = result

    async def suspend(
        self, value: JsonValue, tool_id: str, kind: SuspensionKind = SuspensionKind.QUESTION
    ) -> JsonValue:
        """Ask a question outside of the service and return the answer; without one the branch ends here."""
        position, key, settings = self._position, self._next_key(), self.settings
        step_name, agent = settings.correlation.step_name, settings.caller.agent
        question = SuspensionRequest(key, kind, tool_id, value, step_name=step_name, agent=agent)
        step = position.execution.answer_to(question)
        assert isinstance(step.outcome, SuspensionAnswer)  # noqa: S101 - the only outcome of a question
        position.now = max(position.now, step.at)
        return step.outcome.payload

    async def with_timeout(self, seconds: float, branch: Callable[["RunContext"], Awaitable[T]]) -> T:
        """Run a branch. Raises: Cancellation (CANCELLED_TIMEOUT) after so many seconds of running time."""
        position = self._position
        limit = TimeLimit(self._next_key(), seconds)
        child = position.child(limit.branch)
        context = RunContext(child, self.settings)
        position.is_closed = True
        try:
            return await position.execution.branches.with_timeout(limit, partial(branch, context))
        finally:
            position.is_closed = False
            position.move_to(limit.key, limit.expired_at or child.now)

    @overload
    async def gather(
        self,
        branches: Sequence[Callable[["RunContext"], Awaitable[T]]],
        *,
        after: Mapping[int, Sequence[int]] | None = ...,
    ) -> list[T | Failure]: ...

    @overload
    async def gather(
        self,
        branches: Sequence[Callable[["RunContext"], Awaitable[T]]],
        *,
        until: Callable[[Mapping[int, T | Failure]], bool],
    ) -> dict[int, T | Failure]: ...

    async def gather(
        self,
        branches: Sequence[Callable[["RunContext"], Awaitable[T]]],
        *,
        until: Callable[[Mapping[int, T | Failure]], bool] | None = None,
        after: Mapping[int, Sequence[int]] | None = None,
    ) -> list[T | Failure] | dict[int, T | Failure]:
        """Run the branches concurrently and return their results in order, a failed one as its failure.

        A branch starts when those, all earlier, that it comes `after` have ended. `until` sees the results by branch;
        once it says that they are enough, which it must also say of more, the other branches are stopped. Then only the
        results that counted are returned, by branch.
        """
        position, key = self._position, self._next_key()
        settings = self.settings
        children = [position.child(key.child(index)) for index in range(len(branches))]
        early_stop = None if until is None else EarlyStop(key, len(branches), until)
        after = after or {}
        runs = [
            partial(_start, branch, RunContext(child, settings), [children[each] for each in after.get(index, ())])
            for index, (branch, child) in enumerate(zip(branches, children, strict=True))
        ]
        position.is_closed = True
        results = await position.execution.branches.gather(runs, early_stop, after)
        position.is_closed = False
        position.anchor = key
        times = [children[index].now for index in results]
        position.now = max([position.now, *times, early_stop.decided_at if early_stop else 0.0])
        return list(results.values()) if early_stop is None else results

    def _next_key(self) -> StepKey:
        """Return the key of the next step, after the forks that it reaches were taken over."""
        key = self._position.next_key()
        if self._forks < len(self._position.overrides):
            self._adopt_forks()
        return key

    def _adopt_forks(self) -> None:
        for fork in self._position.overrides[self._forks :]:
            self.settings = self.settings.with_fork(fork)
        self._forks = len(self._position.overrides)

    def _fingerprint(
        self,
        key: StepKey,
        asked: Asked,
        messages: Sequence[Message],
        added: Sequence[Message],
        hints: ExecutionHints,
        response_format: ResponseFormat | None,
    ) -> str:
        """Return the fingerprint of an inference. A prompt counts by its id and its input, not by its text."""
        settings = self.settings
        asked_format = () if response_format is None else (response_format.schema, response_format.grammar)
        request = self._position.execution.header.request
        asked_model = () if settings.model == request.model else (settings.model,)
        if not isinstance(asked, Prompt):
            return digest("inference", key, added, hints, *asked_format, *asked_model)
        if settings.is_side_question:
            return digest("ask", key, *asked.identity, *asked_model)
        others = [message for message in added if not any(message is each for each in messages)]
        return digest("inference", key, others, asked.identity, hints, *asked_format, *asked_model)

    async def _record(
        self, key: StepKey, fingerprint: str, find: Callable[[Environment], Awaitable[Outcome]], *, is_instant: bool
    ) -> RecordedStep:
        position = self._position
        value = RecordedValue(key, fingerprint, self.settings.correlation, find=find, is_instant=is_instant)
        step = await position.execution.perform(value)
        position.move_to(key, step.at)
        return step

    async def _worker_validation(
        self, contract: AnswerContract, answer: str | AnswerContent, attempt: int, text: str
    ) -> AnswerValidated | None:
        """Return the outcome of a worker, recorded before or now; None if the answer is validated in place."""
        position, key = self._position, StepKey(self._position.anchor).validation
        fingerprint = digest("validation", key, text)
        execution = position.execution
        if execution.recorder.step(key, fingerprint) is None and (
            execution.recorder.is_read_only or contract.size.is_small_with(text)
        ):
            return None

        async def validate(environment: Environment) -> Outcome:
            on_exception = partial(report_exception, self, CodeKind.RULE)
            with acting_for(self.settings.caller_in(execution.header)):
                return await environment.answer_validator.validate(contract.output, answer, attempt, on_exception)

        correlation = self.settings.correlation
        step = await execution.perform(RecordedValue(key, fingerprint, correlation, find=validate, is_instant=False))
        position.now = max(position.now, step.at)
        assert isinstance(step.outcome, AnswerValidated)  # noqa: S101 - the only outcome of a validation
        return step.outcome

    async def _run_calls(
        self,
        key: StepKey,
        states: Sequence[ToolCallState],
        setup: InferenceSetup,
        answered: Sequence[str] = (),
        *,
        asked_by: SpanId | None = None,
        limit: int | None = None,
    ) -> list[ToolResult]:
        position, settings = self._position, self.settings
        permissions = CallPermissions(position.execution, settings, position.progress)
        tool_round = ToolRound(
            key,
            states,
            offered=setup.tools,
            permissions=permissions,
            run_nested=partial(self._run_nested, key, asked_by, setup.tools),
            asked_by=asked_by,
        )
        position.progress.rounds.append(tool_round)
        results = await tool_round.run(limit or self.limits.calls_per_reply, answered)
        position.progress.rounds.remove(tool_round)
        position.now = max(position.now, tool_round.ended_at)
        return results

    async def _run_nested(
        self,
        round_key: StepKey,
        asked_by: SpanId | None,
        tools: Sequence[OfferedTool],
        key: StepKey,
        state: ToolCallState,
        offered: OfferedTool,
    ) -> float:
        """Run the agent or the code of a call to its end, and return when that was. Its end is the call's result."""
        if offered.agent:
            return await self._run_agent(round_key, asked_by, key, state, offered)
        position, nested_calls = self._position.child(key, Conversation()), self._position.progress.nested_calls

        async def run_round(round_key: StepKey, round_of_code: CodeRoundStart) -> list[ToolResult]:
            context = RunContext(position, round_of_code.settings)
            setup = InferenceSetup(round_of_code.tools, ())
            return await context._run_calls(round_key, round_of_code.states, setup, limit=MAX_ROUND_CALLS)

        call = CodeCall(position.execution, state, key, self.settings, tools, asked_by)
        nested_calls.append(call)
        await call.run(round_key, run_round)
        nested_calls.remove(call)
        return max(position.now, call.ended_at)

    async def _run_agent(
        self, round_key: StepKey, asked_by: SpanId | None, key: StepKey, state: ToolCallState, offered: OfferedTool
    ) -> float:
        call = AgentCall(self._position.execution, state, key, self.settings, asked_by)
        started = await call.begin(round_key)
        if started is None:
            return call.started_at
        position, nested_calls = self._position.agent(call), self._position.progress.nested_calls
        settings = call.nested(started, self.limits, is_barrier=offered.unsafe)
        nested_calls.append(call)
        position.progress.left_out.update(started.left_out)
        try:
            result = await settings.agent_patterns[started.mode].run(RunContext(position, settings))
        except BranchSuspended:
            state.mark_waiting()
            raise
        except Failure as failure:
            call.fail(failure, position.now)
        else:
            call.succeed(result, started, position.now)
        nested_calls.remove(call)
        return position.now

    def _start_attempt(self, step: StepProgress) -> None:
        self.emit(StepStart(step.step_type, step.attempt + 1, step.pass_number))
        step.attempt, step.anchor, step.started_at = step.attempt + 1, self._position.anchor, self._position.now


async def perform(
    context: RunContext, effect_at: Callable[[Execution, StepKey, CorrelationContext], Effect]
) -> RecordedStep:
    """Perform the effect that `effect_at` makes for the next key of the branch, and return its recorded step."""
    position = context._position
    key = context._next_key()
    effect = effect_at(position.execution, key, context.settings.correlation)
    step = await position.execution.perform(effect)
    position.move_to(effect.key, step.at)
    return step


async def call_step(context: RunContext, step_type: str, arguments: Mapping[str, JsonValue]) -> ToolResult:
    """Call the function of a module's step type, as a tool that only the rights of the principal limit."""
    name = STEP_PREFIX + step_type
    inner = context.with_settings(replace(context.settings, tools=(name,)))
    return await inner._call(name, arguments, is_allowed=context.settings.permissions.allows_tool(name))


def caller_of(context: RunContext) -> Caller:
    """Return for whom code of other people acts in the branch of the context."""
    return context.settings.caller_in(context._position.execution.header)


def prompt_of(context: RunContext, agent: ConfiguredAgent) -> str | None:
    """Return the system prompt of an agent that is entered in the branch of the context."""
    return context.settings.prompt_of(agent, context._position.execution.header)


def report_exception(context: RunContext, kind: CodeKind, name: str, error: BaseException | RaisedException) -> None:
    """Report an exception of the code of that name, unless this is an offline replay."""
    execution = context._position.execution
    if not execution.recorder.is_read_only:
        reporter = ExceptionReporter(execution.environment, context.request, context.settings.correlation)
        reporter.report(kind, name, error)


def aside_context(context: RunContext, branch: StepKey) -> RunContext:
    """Return a context for questions of the service that belong to no step of a pattern; their keys are below `branch`.

    The step of that key is recorded.
    """
    position = context._position.child(branch, Conversation())
    return RunContext(position, context.settings)


def start_context(
    execution: Execution,
    progress: RunProgress,
    messages: Sequence[Message],
    agent_patterns: Mapping[Mode, AgentPattern] = MappingProxyType({}),
    chunk_check: ChunkCheck | None = None,
) -> RunContext:
    """Return the context of the outermost pattern before its first step; `messages` are those before PREPARE."""
    header, request, agent = execution.header, execution.header.request, execution.header.agent
    begins_at = header.created_at if header.delay is None else header.begins_at
    settings = BranchSettings(
        output=request.output,
        hints=request.hints,
        correlation=execution.correlation,
        caller=execution.facts.caller,
        messages=messages,
        started_at=begins_at,
        allowed_tools=request.tools if agent is None else agent.allowed(request.tools),
        requested_tools=request.tools,
        permissions=header.permissions if header.fork is None else header.fork.origin_permissions,
        agent_patterns=agent_patterns,
        chunk_check=chunk_check,
        redundancy=request.redundancy or DEFAULT_REDUNDANCY,
        model=request.model,
        client_tools=execution.facts.client_tools,
    )
    position = Position(execution, progress, branch=ROOT, anchor=INIT_ANCHOR, now=begins_at)
    return RunContext(position, settings)


def _hints_of_later(hints: ExecutionHints) -> ExecutionHints:
    """Return the hints of a later answer: a tool call is demanded of the first one only, or no text would follow."""
    return hints if not hints.demands_call else hints.model_copy(update={"tool_choice": None})


def prepared_context(context: RunContext, prepared: Prepared, at: float) -> RunContext:
    """Return the context behind PREPARE, with the conversation and the tools that it found."""
    position = context._position
    position.anchor, position.now = PREPARE_KEY, at
    if position.execution.header.fork is not None:
        position.apply_forks()
    behind, hints = RunContext(position, context.settings), context.settings.hints
    if hints.tool_choice is not None and prepared.narrows(hints.tool_choice):
        hints = hints.model_copy(update={"tool_choice": "auto"})
    behind.settings = replace(behind.settings, messages=prepared.messages, tools=prepared.tools, hints=hints)
    if position.overrides:
        behind._adopt_forks()
    return behind


def end_round(context: RunContext, results: Sequence[ToolResult]) -> None:
    """Add the last reply to the conversation with these results of its calls, which no inference follows."""
    context._position.conversation.end_round([result.message() for result in results])


def set_findings(context: RunContext, findings: Callable[[], Mapping[str, JsonValue]]) -> None:
    """Set what a final answer is written from if a limit ends the outermost pattern: what it has found, by name.

    It follows from the results of branches that have ended, so that a replay finds the same.
    """
    if context._position.is_root:
        context._position.progress.findings = findings


def set_phase_e_input(context: RunContext, phase_e_input: Callable[[], PhaseEInput]) -> None:
    """Set the state that a final answer is written from if the outermost pattern, which runs in passes, is stopped."""
    if context._position.is_root:
        context._position.progress.phase_e_input = phase_e_input


def use_reserve(context: RunContext) -> None:
    """Let what follows take the tokens and the cost that were withheld for the final answer."""
    use_budget_reserve(context._position.execution)


def closing_context(context: RunContext) -> RunContext:
    """Return the context of the outermost branch behind all that it did, however it ended."""
    context._position.is_closed = False
    return context


async def _start(branch: Callable[[RunContext], Awaitable[T]], context: RunContext, earlier: Sequence[Position]) -> T:
    position = context._position
    position.now = max([position.now, *(each.now for each in earlier)])
    return await branch(context)
