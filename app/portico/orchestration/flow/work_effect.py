"""The effect of a work node: its function runs once, and its output, its question or its failure is recorded."""

from functools import partial

import orjson
from pydantic import JsonValue

from portico.domain.contract.response import SuspensionKind
from portico.domain.failures import Code
from portico.domain.fingerprints import digest
from portico.domain.journal.events import CorrelationContext, NodeStart
from portico.domain.journal.outcomes import NodeEnded, Outcome, Refused, ToolCallSuspended
from portico.domain.journal.step_key import StepKey
from portico.domain.journal.suspensions import UNKNOWN_OUTCOME_DECISIONS, GiveUp, Happened, RunAgain
from portico.domain.raised_exception import CodeKind, RecordedException
from portico.orchestration.execution.effect import Effect, NonIdempotentEffect, SuspensionRequest
from portico.orchestration.execution.environment import Environment
from portico.orchestration.execution.exception_report import ExceptionReporter
from portico.orchestration.execution.execution import NON_IDEMPOTENT_GRACE_S, Execution
from portico.orchestration.flow.errors import FlowError
from portico.orchestration.flow.node_run import run_work
from portico.orchestration.flow.nodes import WorkNode
from portico.orchestration.flow.served_flow import ServedFlow
from portico.ports.tool import ToolSuspended


class WorkEffect(Effect):
    """The function of a work node, called with its input in JSON."""

    acts = True

    def __init__(
        self,
        node: WorkNode,
        value: str,
        served: ServedFlow,
        execution: Execution,
        key: StepKey,
        correlation: CorrelationContext,
    ) -> None:
        self.key = key
        self.fingerprint = digest("work", key, node.key, value)
        self.correlation = correlation
        self.start_event = NodeStart(node.key)
        self._node = node
        self._value = value
        self._served = served
        self._execution = execution

    def asked(self) -> JsonValue:
        """Return the node and its input."""
        return {"node": self._node.key, "input": orjson.loads(self._value)}

    async def run(self, environment: Environment) -> Outcome:
        """Call the function. The text of an error goes to the log and nowhere else."""
        began, node = environment.clock.monotonic(), self._node
        try:
            outputs = await run_work(node, [self._value], self._served.context)
        except ToolSuspended as question:
            return ToolCallSuspended(question.value, (environment.clock.monotonic() - began) * 1000)
        except FlowError as error:
            reporter = ExceptionReporter(environment, self._execution.header.request, self.correlation)
            reporter.report(CodeKind.NODE, node.key, error.raised)
            return node_failed(node.key, error)
        return NodeEnded(outputs[node.outputs[0].key], (environment.clock.monotonic() - began) * 1000)


class NonIdempotentWorkEffect(WorkEffect, NonIdempotentEffect):
    """The function of a work node that must not run twice. Past its time, only a person knows what it has done."""

    def __init__(
        self,
        node: WorkNode,
        value: str,
        served: ServedFlow,
        execution: Execution,
        key: StepKey,
        correlation: CorrelationContext,
    ) -> None:
        super().__init__(node, value, served, execution, key, correlation)
        message = "it is not known what the node has done"
        self.unknown_outcome = Refused(Code.TOOL_OUTCOME_UNKNOWN, message, {"node": node.key})

    async def run(self, environment: Environment) -> Outcome:
        """Call the function, within the time that is left."""
        seconds = self._execution.seconds_left + NON_IDEMPOTENT_GRACE_S
        outcome = await self._execution.branches.run_for(seconds, partial(super().run, environment))
        return self.unknown_outcome if outcome is None else outcome

    def is_uncertain(self, outcome: Outcome) -> bool:
        """Return True if the time was over before the function returned."""
        return isinstance(outcome, Refused) and outcome.code is Code.TOOL_OUTCOME_UNKNOWN

    def question(self, number: int) -> SuspensionRequest:
        """Return the question what the node has done."""
        return SuspensionRequest(
            self.key.child(0, number),
            SuspensionKind.UNKNOWN_OUTCOME,
            self._node.key,
            {"node": self._node.key},
            step_name=self.correlation.step_name,
            agent=self._execution.facts.caller.agent,
        )

    def outcome_from_answer(self, payload: JsonValue) -> Outcome | None:
        """Return the outcome that the person decided; None to call the function once more."""
        match UNKNOWN_OUTCOME_DECISIONS.validate_python(payload):
            case Happened(result=result):
                try:
                    return NodeEnded(self._node.outputs[0].parse(result), 0.0)
                except FlowError as misfit:
                    return node_failed(self._node.key, misfit)
            case RunAgain():
                return None
            case GiveUp():
                return self.unknown_outcome


def node_failed(node: str, error: FlowError) -> Refused:
    """Return the failure of a node without the text of its error, which may hold anything; its step has that."""
    exception = RecordedException.of(error.raised)
    return Refused(error.code, "a node of the flow failed", {"node": node}, exception=exception)
