"""An agent node in the service: its inferences and tool calls go through the context, so they are recorded.

The agent has a conversation of its own, which its later tasks continue. Each inference is a step of the flow's limit.
"""

from collections.abc import Sequence
from functools import partial

from portico.capabilities.prompting.prompt_call import Asked, Prompt
from portico.domain.contract.messages import Message
from portico.domain.failures import Code, ConstraintFailure, OrchestrationFailure
from portico.domain.journal.events import ValidationEnd
from portico.domain.journal.outcomes import AgentStarted, Outcome
from portico.domain.model_call import Reply
from portico.domain.value import replace
from portico.orchestration.execution.branch_settings import merge_hints
from portico.orchestration.execution.context import RunContext, prompt_of
from portico.orchestration.execution.environment import Environment
from portico.orchestration.execution.progress import Conversation
from portico.orchestration.execution.tool_call_state import ToolCallState
from portico.orchestration.flow.agent_answer import (
    MAX_REPAIRS,
    NOT_SUBMITTED,
    AgentAnswer,
    response_format,
    submission,
    submit_definition,
    written_answer,
)
from portico.orchestration.flow.graph import SEPARATOR
from portico.orchestration.flow.nodes import AgentNode


class ServiceAgent:
    """An agent with one task. `steps_left` is the number of inferences that the flow's step limit leaves."""

    def __init__(self, node: AgentNode, context: RunContext, conversation: Conversation, *, steps_left: int) -> None:
        self._node = node
        self._context = context
        self._steps_left = steps_left
        self._rounds_left = context.limits.tool_rounds
        self._has_tools = bool(node.config.tools)
        self.conversation = conversation
        """The conversation of the branch, which only its context changes."""
        self.inference_count = 0
        self.started: AgentStarted | None = None
        """The settings of the agent; None before its first inference."""
        self.is_working = True
        self.rejections = 0
        self.calls: Sequence[ToolCallState] = ()
        """The calls of the last reply."""
        self.results: Sequence[Message] = ()
        """Their results, once all of them have ended."""

    @property
    def tool_rounds(self) -> int:
        """The number of tool rounds of this task."""
        return self._context.limits.tool_rounds - self._rounds_left

    async def run(self, task: str, started: AgentStarted | None) -> tuple[str, AgentStarted]:
        """Return the output in JSON, and the settings that hold for the agent's next task.

        Raises: Failure: as `RunContext.infer`; ConstraintFailure (CONSTRAINT_SCHEMA_INVALID) for an answer that does
        not fit after its correction; OrchestrationFailure (ORCHESTRATION_ITERATION_LIMIT).
        """
        first: list[Message] = []
        if started is None:
            started = await self._start()
            if started.preamble or started.tools is None:
                first = [Message(role="system", content=started.preamble)]
        asked: Asked = [*first, Message(role="user", content=task)]
        self.started = started
        self._context = self._with_settings(started)
        self._rounds_left = self._context.limits.tool_rounds
        while True:
            answer, asked = await (self._submitted(asked) if self._has_tools else self._written(asked))
            if answer is None:
                continue
            valid = answer.output is not None
            errors = tuple({"path": path, "message": message} for path, message in answer.violations)
            self._context.emit(ValidationEnd(self.rejections + 1, valid, errors, ()))
            if answer.output is not None:
                self.is_working = False
                if self.results:
                    self.conversation.end_round(self.results)
                    self.calls = self.results = ()
                return answer.output, started
            if self.rejections == MAX_REPAIRS:
                details = {"node": self._node.key, "violations": list(errors)}
                raise ConstraintFailure(Code.CONSTRAINT_SCHEMA_INVALID, "the agent's answer does not fit", details)
            self.rejections += 1

    async def _start(self) -> AgentStarted:
        async def find(environment: Environment) -> Outcome:
            config, preamble = self._node.config, self._node.config.preamble
            tools = None if config.agent is None else config.tool_names
            agent = None if config.agent is None else environment.agents.get(config.agent)
            if agent is not None:
                preamble = prompt_of(self._context, agent) or ""
            return AgentStarted(preamble, config.model, config.agent, tools, config.hints, config.limits)

        outcome, _ = await self._context.record_value(find)
        assert isinstance(outcome, AgentStarted)  # noqa: S101 - the only outcome of the search
        return outcome

    def _with_settings(self, started: AgentStarted) -> RunContext:
        settings, key = self._context.settings, self._node.key
        names = self._node.config.tool_names if started.tools is None else started.tools
        self._has_tools = bool(names)
        hints = settings.hints if started.hints is None else merge_hints(started.hints, settings.hints)
        limits = None if started.limits is None else self._context.limits.lowered_to(started.limits)
        caller = settings.caller if started.agent is None else replace(settings.caller, agent=started.agent)
        return self._context.with_settings(
            replace(
                settings,
                caller=caller,
                hints=hints.model_copy(update={"tool_choice": None}),
                agent_limits=limits or settings.agent_limits,
                model=started.model,
                tools=[name for name in names if settings.allows_tool(name)],
                submit=submit_definition(self._node) if names else None,
                tool_id_prefix=key + SEPARATOR,
            )
        )

    async def _written(self, asked: Asked) -> tuple[AgentAnswer | None, Asked]:
        """Return the answer in the response format, and what asks for another one."""
        reply = await self._infer(asked)
        answer = await self._context.compute(partial(written_answer, self._node, reply.text))
        return answer, [] if answer.output is not None else Prompt.of_violations(answer.violations)

    async def _submitted(self, asked: Asked) -> tuple[AgentAnswer | None, Asked]:
        """Return the answer, None for a tool round, and what the next inference is asked."""
        reply = await self._infer(asked)
        calls = reply.tool_calls
        if not calls:
            return NOT_SUBMITTED, Prompt.of_violations(NOT_SUBMITTED.violations)
        if self._rounds_left == 0:
            details = {"tool_rounds": self._context.limits.tool_rounds, "node": self._node.key}
            message = "the model asked for another tool round"
            raise OrchestrationFailure(Code.ORCHESTRATION_ITERATION_LIMIT, message, details)
        self._rounds_left -= 1
        answer, answered = submission(self._node, calls)
        self.calls = self.conversation.open_calls
        results = await self._context.call_tools(calls, answered)
        self.results = [result.message() for result in results]
        return answer, self.results

    async def _infer(self, asked: Asked) -> Reply:
        if self.inference_count == self._steps_left:
            raise step_limit(self._context)
        self.inference_count += 1
        self.calls = self.results = ()
        form = None if self._has_tools else response_format(self._node)
        return await self._context.infer(asked, form, tools=self._has_tools)


def max_inferences(node: AgentNode, tool_rounds: int) -> int:
    """Return how many inferences one task takes at most: with tools, also the one that asks for a round too many."""
    return (tool_rounds if node.config.tools else 0) + 1 + MAX_REPAIRS


def step_limit(context: RunContext) -> OrchestrationFailure:
    """Return the failure of a flow that has taken all its steps."""
    limit = context.limits.flow_steps
    message = f"the flow has not ended within {limit} steps"
    return OrchestrationFailure(Code.ORCHESTRATION_ITERATION_LIMIT, message, {"flow_steps": limit})
