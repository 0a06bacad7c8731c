"""Snapshot of an execution of mode flow: where it stands, from an offline replay of its history.

It is what `FlowRuntime.snapshot` returns, between two waves. If an execution has stopped within a wave, the outputs of
the nodes that had ended there are left out, so a runtime that goes on from the snapshot runs these nodes again.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import orjson

from portico.domain.failures import Code, Failure, StorageFailure
from portico.domain.lifecycle import State
from portico.domain.value import replace
from portico.orchestration.execution.effect import SuspensionRequest
from portico.orchestration.execution.execution import Execution
from portico.orchestration.execution.tool_call_state import NOT_RUN, ToolCallState
from portico.orchestration.flow.flow_loop import FlowRun, flow_loop, flow_pattern
from portico.orchestration.flow.graph import SEPARATOR
from portico.orchestration.flow.nodes import AgentNode
from portico.orchestration.flow.served_flow import ServedFlow
from portico.orchestration.flow.service_agent import ServiceAgent
from portico.orchestration.flow.snapshot import AgentRecord, FlowSnapshot, FlowSuspension, PendingCall
from portico.orchestration.runtime.driver import replay, version_mismatch
from portico.orchestration.runtime.resume import as_suspended, status_of
from portico.ports.journal import ExecutionHistory


def flow_snapshot(history: ExecutionHistory, flows: Mapping[str, ServedFlow]) -> FlowSnapshot:
    """Return where the flow stands; while it runs, at the end of its last wave.

    Raises: StorageFailure (STORAGE_SNAPSHOT_INVALID) if the graph has changed, or the record differs from what the flow
    does today.
    """
    header, pattern = history.header, flow_pattern(flows)
    options = header.request.flow
    if options is None or options.name not in flows or not pattern.can_continue(header):
        raise version_mismatch()
    status, runs = status_of(history), list[FlowRun]()
    execution = Execution(header, environment=None, journal=None, history=as_suspended(history))
    try:
        replay(execution, replace(pattern, run=partial(flow_loop, flows, observe=runs.append)))
    except Failure as difference:
        if status.ended or status.state is State.SUSPENDED:
            message = "the journal differs from what the flow does in this version"
            raise StorageFailure(Code.STORAGE_SNAPSHOT_INVALID, message) from difference
    graph = flows[options.name].graph
    if not runs:
        return FlowSnapshot(flow=graph.name, fingerprint=graph.fingerprint, state=((graph.entry.key, options.input),))
    [run], questions = runs, execution.branches.open_questions
    suspended = [each for each in questions if each.tool_id in run.state and not _is_agent(run, each.tool_id)]
    records = {key: _agent_record(key, agent, questions) for key, agent in run.agents.items()}
    return FlowSnapshot(
        flow=graph.name,
        fingerprint=graph.fingerprint,
        state=tuple((key, orjson.loads(text)) for key, text in run.state.items()),
        suspensions=tuple(_suspension(each.tool_id, each) for each in suspended),
        agents={key: record for key, record in records.items() if record is not None},
        steps=run.steps + len(suspended),
        usage=execution.ledger.usage,
        is_announced=status.state is State.SUSPENDED,
    )


def _is_agent(run: FlowRun, key: str) -> bool:
    return isinstance(run.graph.consumers.get(key), AgentNode)


def _suspension(node: str, question: SuspensionRequest) -> FlowSuspension:
    return FlowSuspension(
        suspension_id=question.key, kind=question.kind, node=node, tool_id=question.tool_id, value=question.value
    )


def _agent_record(key: str, agent: ServiceAgent, questions: Sequence[SuspensionRequest]) -> AgentRecord | None:
    """Return the record of an agent; None before its first inference.

    A last answer that was not accepted yet is left out, so the agent is asked once more.
    """
    if agent.started is None:
        return None
    is_unjudged = agent.is_working and not agent.calls
    messages = [*(agent.conversation.messages if is_unjudged else agent.conversation.transcript), *agent.results]
    calls = () if agent.results else tuple(_pending_call(key, state, questions) for state in agent.calls)
    return AgentRecord(
        model=agent.started.model,
        preamble=agent.started.preamble,
        messages=tuple(message for message in messages if message.role != "system"),
        is_working=agent.is_working,
        rejections=agent.rejections if agent.is_working else 0,
        tool_rounds=agent.tool_rounds if agent.is_working else 0,
        calls=calls,
    )


def _pending_call(node: str, state: ToolCallState, questions: Sequence[SuspensionRequest]) -> PendingCall:
    prefix = node + SEPARATOR
    asked = [each for each in questions if each.tool_call_id == state.call.id and each.tool_id.startswith(prefix)]
    return PendingCall(
        call=state.call,
        result=None if state.is_waiting or state.result == NOT_RUN else state.result,
        suspension=_suspension(node, asked[0]) if asked else None,
    )
