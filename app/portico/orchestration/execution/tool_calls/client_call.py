"""Client calls: calls of the tools that the client runs.

The client is asked for the result under `key/i/0/0`, where the first attempt at any other call is, and its answer is
recorded there. A call that is left to the client, since the execution ends, is not recorded: it follows from the reply.
"""

from portico.capabilities.tools.executor import refused_call
from portico.domain.contract.response import SuspensionKind
from portico.domain.failures import Code
from portico.domain.fingerprints import args_hash
from portico.domain.journal.events import CorrelationContext, ToolEnd, ToolStart
from portico.domain.journal.outcomes import SuspensionAnswer
from portico.domain.journal.step_key import StepKey
from portico.domain.journal.suspensions import CLIENT_RESULTS, answer_text
from portico.orchestration.execution.branch_settings import BranchSettings
from portico.orchestration.execution.effect import SuspensionRequest
from portico.orchestration.execution.execution import Execution
from portico.orchestration.execution.ledger import too_many_calls
from portico.orchestration.execution.tool_call_state import ToolCallState
from portico.orchestration.execution.tool_calls.content_stream import ContentStream


class ClientCall:
    """A call of a client tool within a branch with these settings. `key` is that of the call."""

    def __init__(
        self,
        execution: Execution,
        state: ToolCallState,
        key: StepKey,
        settings: BranchSettings,
        correlation: CorrelationContext,
    ) -> None:
        self.answered_at = 0.0
        """When the client answered, in Unix seconds."""
        self._execution = execution
        self._state = state
        self._call_key = key
        self._correlation = correlation
        self._is_new = False
        self._question = SuspensionRequest(
            key.child(0, 0),
            SuspensionKind.CLIENT_TOOL,
            state.call.name,
            state.call.arguments,
            tool_call_id=state.call.id,
            step_name=settings.correlation.step_name,
            agent=settings.caller.agent,
        )

    def admit(self) -> bool:
        """Return True if the client may run the call; one that is refused has its result."""
        state, limit = self._state, self._execution.header.bounds.tool_calls
        refused = refused_call(state.call)
        if refused is not None:
            state.refuse(refused.content, refused.code)
            state.violations = refused.violations
        elif self._execution.ledger.tool_calls.begin(self._call_key, limit):
            return True
        else:
            state.refuse(too_many_calls(limit), Code.ORCHESTRATION_ITERATION_LIMIT)
        return False

    def leave(self) -> None:
        """Leave the call to the client, since the execution ends."""
        self._state.leave()

    def start(self) -> None:
        """Record that the call starts."""
        call, execution = self._state.call, self._execution
        arguments_hash = args_hash(execution.header.args_key, call.arguments)
        event = ToolStart(call.name, call.id, arguments_hash, client=True)
        self._is_new = not execution.recorder.cursor.starts(self._question.key)
        execution.recorder.emit(self._question.key, self._correlation, event)

    async def run(self) -> None:
        """Take the answer of the client as the result. Raises: BranchSuspended until there is one; BranchStopped."""
        state, execution = self._state, self._execution
        stream = None if execution.recorder.is_read_only else ContentStream(execution, self._correlation)
        if stream is not None and self._is_new:
            stream.show(state.call.id, arguments=state.call.arguments, client=True)
        state.mark_waiting()
        step = execution.answer_to(self._question)
        assert isinstance(step.outcome, SuspensionAnswer)  # noqa: S101 - the only outcome of a question
        answer = CLIENT_RESULTS.validate_python(step.outcome.payload)
        self.answered_at, state.attempts = step.at, 1
        fork = execution.header.fork
        if fork is not None and self._question.key in fork.edited_keys:
            execution.ledger.tool_calls.note_edited(state)
        state.answer(answer_text(answer.result))
        if answer.is_error:
            state.is_error, state.code = True, Code.TOOL_EXECUTION_FAILED
        execution.ledger.tool_calls.rounds.add(self._call_key.parent)
        end = ToolEnd(state.call.name, state.call.id, 0.0, success=state.code is None, error_code=state.code)
        execution.recorder.emit(self._question.key, self._correlation, end)
