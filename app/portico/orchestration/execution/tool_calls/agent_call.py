"""Agent calls: tool calls that run an agent.

An agent is a nested run below its call: `key/i/0/0` is its start, which records the settings that hold for it, and its
own steps are `key/i/1`, `key/i/2`, …. Its run is replayed like any other, so the call itself records no end and needs
no intent: what acts are the tools that the agent calls.
"""

import orjson
from pydantic import JsonValue

from portico.capabilities.tools.executor import cut_text
from portico.domain.agents import MAX_AGENT_DEPTH
from portico.domain.contract.messages import Message
from portico.domain.failures import Code, Failure, StorageFailure
from portico.domain.fingerprints import args_hash, digest, span_id
from portico.domain.ids import SpanId
from portico.domain.journal.events import CorrelationContext, Event, ToolEnd, ToolStart
from portico.domain.journal.header import EffectiveLimits
from portico.domain.journal.outcomes import AgentCallStarted, Outcome, ToolEnded
from portico.domain.journal.step_key import StepKey
from portico.domain.pattern_result import PatternResult
from portico.domain.tools import AGENT_PREFIX, reference_of
from portico.domain.value import replace
from portico.orchestration.execution.branch_settings import BranchSettings
from portico.orchestration.execution.branches import has_diverged
from portico.orchestration.execution.effect import Effect
from portico.orchestration.execution.environment import Environment
from portico.orchestration.execution.execution import Execution
from portico.orchestration.execution.ledger import too_many_calls
from portico.orchestration.execution.tool_call_state import CANCELLED, ToolCallState

_TOO_DEEP = f"not run: agents call each other at most {MAX_AGENT_DEPTH} levels deep"
_BUDGET_SPENT = "not run: the budget of the execution is spent"


class AgentCall:
    """A call of an agent within a branch with these settings. `key` is that of the call, `key/i` of its round.

    `asked_by` is the span of the attempt whose reply asked for it; None if no model did.
    """

    def __init__(
        self,
        execution: Execution,
        state: ToolCallState,
        key: StepKey,
        settings: BranchSettings,
        asked_by: SpanId | None,
    ) -> None:
        self.state = state
        self.key = key
        self.start = AgentStart(execution, state, key, settings)
        if asked_by is not None:
            self.start.correlation = replace(self.start.correlation, parent_span_id=asked_by)
        self.started_at = 0.0
        """When the agent started, in Unix seconds."""
        self._execution = execution
        self._settings = settings

    async def begin(self, round_key: StepKey) -> AgentCallStarted | None:
        """Start the agent and return its settings; None if the call is refused.

        Raises: BranchStopped; StorageFailure (STORAGE_SNAPSHOT_INVALID) if its pattern has another version by now.
        """
        step = await self._execution.perform(self.start)
        self.started_at, state, ledger = step.at, self.state, self._execution.ledger
        ledger.last_at = max(ledger.last_at, step.at)
        ledger.tool_calls.rounds.add(round_key)
        if isinstance(step.outcome, ToolEnded):
            ended = step.outcome
            state.result, state.code, state.violations = ended.content, ended.code, ended.violations
            return None
        assert isinstance(step.outcome, AgentCallStarted)  # noqa: S101 - the other outcome of a start
        pattern = self._settings.agent_patterns.get(step.outcome.mode)
        if pattern is None or pattern.version != step.outcome.pattern_version:
            raise StorageFailure(
                Code.STORAGE_SNAPSHOT_INVALID, "the journal was written by another version of an agent's pattern"
            )
        ledger.tool_calls.begin(self.key, None)
        ledger.exclude((self.key,))
        state.attempts, state.has_begun, state.result, state.code = 1, True, CANCELLED, Code.CANCELLED_SIGNAL
        return step.outcome

    def nested(self, started: AgentCallStarted, limits: EffectiveLimits, *, is_barrier: bool) -> BranchSettings:
        """Return the settings of the agent's run; `limits` are those of the caller."""
        settings, message = self._settings, str(self.state.call.arguments["message"])
        messages = [Message(role="user", content=message)]
        if started.system_prompt is not None:
            messages.insert(0, Message(role="system", content=started.system_prompt))
        span = span_id(self._execution.header.execution_id, self.key)
        name = AGENT_PREFIX + started.agent
        return BranchSettings(
            output=started.output,
            hints=started.hints,
            correlation=replace(self.start.correlation.child(span, caused_by=self.state.call.id), step_name=name),
            caller=replace(settings.caller, agent=started.agent),
            messages=messages,
            tools=started.tools,
            allowed_tools=started.tools,
            requested_tools=settings.requested_tools,
            permissions=settings.permissions,
            started_at=settings.started_at,
            model=started.model or settings.model,
            replica=settings.replica,
            tool_id_prefix=settings.tool_id_prefix,
            agent_patterns=settings.agent_patterns,
            agent_depth=settings.agent_depth + 1,
            agent_limits=limits.lowered_to(started.limits),
            flow=settings.flow,
            barriers=(*settings.barriers, self.key) if is_barrier else settings.barriers,
        )

    def succeed(self, result: PatternResult | str, started: AgentCallStarted, at: float) -> None:
        """Take the answer of the agent as the result of the call."""
        text = result if isinstance(result, str) else result.content or ""
        if isinstance(result, PatternResult) and result.structured_output is not None:
            text = orjson.dumps(result.structured_output).decode()
        self.state.is_error, self.state.code = False, None
        self._end(cut_text(text, started.result_bytes), at)

    def fail(self, failure: Failure, at: float) -> None:
        """Take the failure of the agent as the result of the call. Raises: a failure of the record itself."""
        if has_diverged(failure) or isinstance(failure, StorageFailure):
            raise failure
        self.state.is_error, self.state.code = True, failure.code
        self._end(f"The agent failed: {failure.message}", at)

    def cut_off(self, code: Code, at: float) -> tuple[str, CorrelationContext, Event]:
        """Return the end of a call whose agent did not come to its own end, with its place in the record."""
        return self.start.key, self.start.correlation, self._ended(at, code)

    def _end(self, text: str, at: float) -> None:
        self.state.is_waiting, self.state.result = False, self.state.marked(text)
        self.state.duration_ms = max(0.0, at - self.started_at) * 1000
        end = self._ended(at, self.state.code)
        self._execution.recorder.emit(self.start.key, self.start.correlation, end)

    def _ended(self, at: float, code: Code | None) -> ToolEnd:
        duration_ms = max(0.0, at - self.started_at) * 1000
        return ToolEnd(self.state.call.name, self.state.call.id, duration_ms, success=code is None, error_code=code)


class AgentStart(Effect):
    """The start of an agent: the settings that hold for its run, or the refusal of the call."""

    acts = True
    is_instant = True

    def __init__(self, execution: Execution, state: ToolCallState, key: StepKey, settings: BranchSettings) -> None:
        call = state.call
        self.key = key.child(0, 0)
        self.fingerprint = digest("agent", self.key, call.name, call.arguments)
        self.correlation = settings.correlation.child(
            span_id(execution.header.execution_id, self.key), caused_by=call.id
        )
        self._execution = execution
        self._state = state
        self._call_key = key
        self._settings = settings

    def asked(self) -> JsonValue:
        """Return the call."""
        return {"id": self._state.call.id, "name": self._state.call.name, "arguments": self._state.call.arguments}

    async def run(self, environment: Environment) -> Outcome:
        """Return the agent's settings as they are now, for the tools that the caller and the request allow."""
        settings, call = self._settings, self._state.call
        agent = environment.agents.behind(call.name)
        if agent is None or agent.mode not in settings.agent_patterns:
            return _refused("the agent is not configured here", Code.TOOL_UNAVAILABLE)
        refusal = environment.tool_executor.refusal(call) or self._limit_refusal()
        if refusal is not None:
            return refusal
        if agent.model is not None and not environment.catalogue.is_permitted(agent.model, settings.permissions):
            return _refused("the caller may not use the agent's model", Code.ACCESS_DENIED)
        requested, permissions = settings.requested_tools, settings.permissions
        tools = [tool for tool in agent.tools if requested is None or tool in requested]
        return AgentCallStarted(
            agent=agent.name,
            system_prompt=settings.prompt_of(agent, self._execution.header),
            mode=agent.mode,
            pattern_version=settings.agent_patterns[agent.mode].version,
            model=agent.model,
            tools=tuple(filter(permissions.allows_tool, tools)),
            hints=agent.hints,
            output=agent.output,
            limits=agent.limits,
            result_bytes=environment.tool_executor.result_bytes,
            left_out=tuple([f"tools.{reference_of(tool)}" for tool in tools if not permissions.allows_tool(tool)]),
        )

    def end_events(self, outcome: Outcome) -> list[Event]:
        """Return the start of the call, and its end if it is refused."""
        call = self._state.call
        start = ToolStart(call.name, call.id, args_hash(self._execution.header.args_key, call.arguments))
        if not isinstance(outcome, ToolEnded):
            return [start]
        return [start, ToolEnd(call.name, call.id, 0.0, success=False, error_code=outcome.code)]

    def _limit_refusal(self) -> ToolEnded | None:
        execution, limit = self._execution, self._execution.header.bounds.tool_calls
        budget = execution.ledger.budget
        if budget is not None and budget.is_exhausted:
            return _refused(_BUDGET_SPENT, Code.ORCHESTRATION_BUDGET_EXCEEDED)
        if self._settings.agent_depth >= MAX_AGENT_DEPTH:
            return _refused(_TOO_DEEP, Code.ORCHESTRATION_ITERATION_LIMIT)
        if not execution.ledger.tool_calls.begin(self._call_key, limit):
            return _refused(too_many_calls(limit), Code.ORCHESTRATION_ITERATION_LIMIT)
        return None


def _refused(text: str, code: Code) -> ToolEnded:
    return ToolEnded(text, is_error=True, code=code, duration_ms=0.0, ran=False)
