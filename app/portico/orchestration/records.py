"""Records of executions: what was asked and what was answered, as far as it is stored."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from pydantic import Field

from portico.domain.access.principal import AccessScope, Permission, Principal
from portico.domain.contract.messages import Message
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import Suspension
from portico.domain.failures import Code, RequestFailure, StorageFailure
from portico.domain.ids import ChannelName, RequestId, SessionId, UserId
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.step_key import ROOT
from portico.domain.lifecycle import Mode, State
from portico.domain.value import replace, value
from portico.orchestration.execution.environment import Environment
from portico.orchestration.flow.served_flow import ServedFlow
from portico.orchestration.flow.snapshot import FlowSnapshot
from portico.orchestration.pipeline.media import with_fetched
from portico.orchestration.redaction import (
    redacted_branch,
    redacted_request,
    redacted_snapshot,
    redacted_step,
    redacted_suspensions,
    redacted_turns,
    sees_all,
)
from portico.orchestration.runtime.branch_transcripts import BranchTranscript, branch_conversations, passed_judges
from portico.orchestration.runtime.driver import pattern_for, require_current_version
from portico.orchestration.runtime.flow_snapshot import flow_snapshot
from portico.orchestration.runtime.fork import inherited_conversation, whole_request
from portico.orchestration.runtime.launcher import Launcher
from portico.orchestration.runtime.lookup import no_such_execution, stored_execution
from portico.orchestration.runtime.recorded_turns import RecordedTurns, recorded_turns
from portico.orchestration.runtime.step_list import ALL_STEPS, StepPage, StepSelection, StepView, step_page
from portico.orchestration.runtime.transcript import (
    Predecessor,
    refused_predecessor,
    require_ended,
    still_running,
    transcript_of,
)
from portico.orchestration.statistics import Statistics
from portico.ports.journal import ExecutionHistory
from portico.ports.storage import (
    ExecutionStore,
    OpenSuspension,
    OtherUsers,
    RecordStore,
    StoredExecution,
    SuspensionFilter,
)

_CALL_FIELDS: Final = ("tool", "arguments", "node")
"""Parts of a value that name the call in question."""


class SuspensionView(Suspension):
    """An open suspension and the execution that it belongs to."""

    request_id: RequestId = Field(description="The request's id.")
    session_id: SessionId | None = Field(description="The session's id.")
    user: UserId = Field(description="User who asked for the execution.")
    channel: ChannelName = Field(description="Channel by which the request came.")


@value
class SuspensionPage:
    """A page of open suspensions; `next` is the cursor of the following page, None on the last."""

    suspensions: list[SuspensionView]
    next: str | None


class Records:
    """Queries for the records of executions, by principal, as in `Executions`.

    Raises: RequestFailure (REQUEST_NOT_FOUND), StorageFailure, in every method.
    """

    def __init__(
        self,
        environment: Environment,
        store: ExecutionStore,
        records: RecordStore,
        launcher: Launcher,
        flows: Mapping[str, ServedFlow],
    ) -> None:
        self._environment = environment
        self._store = store
        self._records = records
        self._local = launcher.local
        self._patterns = launcher.patterns
        self._flows = flows
        self.statistics = Statistics(records, environment.clock)
        """The counts of the executions."""

    async def input(self, principal: Principal, request_id: RequestId) -> SystemRequest:
        """Return the request as it was admitted; that of a fork, with its overrides."""
        request = whole_request(await self._header(principal.readable, request_id))
        return request if sees_all(principal) else redacted_request(request)

    async def ran(self, principal: Principal, request_id: RequestId, request: SystemRequest) -> bool:
        """Return whether an execution of the principal's own has run this request, as far as it names what to run."""
        whole = whole_request(await self._header(principal.own, request_id))
        fixed = ("messages", "agent", "flow", "session_id")
        named = request.model_fields_set - {*fixed, "metadata"}
        return all(getattr(whole, name) == getattr(request, name) for name in (*fixed, *named))

    async def steps(self, principal: Principal, request_id: RequestId, selected: StepSelection = ALL_STEPS) -> StepPage:
        """Return the selected ones of the steps that are recorded so far.

        Who may not see everything gets no digests: with one could be tried what was redacted.
        """
        history = await self._history(principal.readable, request_id)
        selected = replace(selected, has_digests=sees_all(principal))
        page = await self._environment.thread_pool.run(partial(step_page, history, self._patterns, selected))
        if sees_all(principal):
            return page
        client_tools = frozenset(tool.name for tool in history.header.request.client_tools)
        steps = [redacted_step(step, client_tools) if isinstance(step, StepView) else step for step in page.steps]
        return replace(page, steps=steps)

    async def turns(self, principal: Principal, request_id: RequestId) -> RecordedTurns:
        """Return what the model of an execution said and called, as far as it is recorded.

        The texts of the model stand as it wrote them, since they were streamed to the one who asked.
        """
        history = await self._history(principal.readable, request_id)
        turns = await self._environment.thread_pool.run(partial(recorded_turns, history))
        return turns if sees_all(principal) else redacted_turns(turns)

    async def transcripts(self, principal: Principal, request_id: RequestId) -> list[BranchTranscript]:
        """Return the conversations of an execution, as far as they are recorded, the outermost first.

        Raises: StorageFailure (STORAGE_SNAPSHOT_INVALID) if today's pattern cannot read the record.
        """
        history = await self._history(principal.readable, request_id)
        require_current_version(history.header, self._patterns)
        read = partial(branch_conversations, history, pattern_for(history.header, self._patterns))
        found = await self._environment.thread_pool.run(read)
        if not sees_all(principal):
            client_tools = {tool.name for tool in history.header.request.client_tools}
            found = [redacted_branch(each, client_tools if each.branch == ROOT else ()) for each in found]
        return [each.view() for each in found]

    async def snapshot(self, principal: Principal, request_id: RequestId) -> FlowSnapshot:
        """Return where an execution of mode flow stands.

        Raises: RequestFailure (REQUEST_NOT_FOUND) for another mode; StorageFailure (STORAGE_SNAPSHOT_INVALID) if the
        flow's graph has changed since.
        """
        history = await self._history(principal.readable, request_id)
        if history.header.mode is not Mode.FLOW:
            raise RequestFailure(Code.REQUEST_NOT_FOUND, "only a flow has a snapshot", condition="path")
        snapshot = await self._environment.thread_pool.run(partial(flow_snapshot, history, self._flows))
        return snapshot if sees_all(principal) else redacted_snapshot(snapshot)

    async def predecessor(self, principal: Principal, request_id: RequestId) -> Predecessor:
        """Return an execution that has ended with the conversation that it ended with.

        Raises: as `require_ended`; RequestFailure (REQUEST_RESUME_UNEXPECTED) if its input was refused; StorageFailure
        (STORAGE_SNAPSHOT_INVALID) if its response cannot be read.
        """
        if self._local.find(principal.own, request_id) is not None:
            raise still_running()
        stored = await self.stored(principal.own, request_id, with_header=True)
        header = whole_header(stored)
        require_ended(stored)
        response = stored.status.response
        if response is None:
            raise StorageFailure(Code.STORAGE_SNAPSHOT_INVALID, "this version cannot read the stored response")
        in_session: tuple[Message, ...] = ()
        if response.state is not State.COMPLETE:
            in_session = await self._begun_with(stored, header)
        elif header.request.session_id is not None:
            in_session = await self._environment.conversations.transcript(
                principal.own, header.request.session_id, header.execution_id
            )
        return Predecessor(header, response, transcript_of(await self._with_media(header), response, in_session))

    async def _with_media(self, header: ExecutionHeader) -> ExecutionHeader:
        """Return the header with what was fetched for its request in the place of URLs."""
        if not any(message.media_by_url for message in header.request.messages):
            return header
        history = await self._store.load(header.tenant, header.execution_id)
        return header if history is None else replace(header, request=with_fetched(header.request, history.steps))

    async def _begun_with(self, stored: StoredExecution, header: ExecutionHeader) -> tuple[Message, ...]:
        """Return the messages before those of the request with which an execution began that has no answer.

        Raises: RequestFailure (REQUEST_RESUME_UNEXPECTED) if its input was refused.
        """
        is_of_session = header.request.session_id is not None and header.origin is None
        if not is_of_session and not header.judges:
            return header.inherited_messages
        history = await self._store.load(stored.tenant, stored.execution_id)
        if history is None:
            raise no_such_execution()
        if not passed_judges(history):
            raise refused_predecessor()
        return inherited_conversation(header, history.steps.values())

    async def find_predecessor(self, principal: Principal, request_id: RequestId) -> Predecessor | None:
        """Return such an execution, None if nothing can continue after one of this id, or if parts are redacted."""
        if not sees_all(principal):
            return None
        try:
            return await self.predecessor(principal, request_id)
        except RequestFailure:
            return None

    async def suspensions(
        self, principal: Principal, selected: SuspensionFilter, *, after: str | None, limit: int
    ) -> SuspensionPage:
        """Return a page of the suspensions that the principal may answer or asked for, or may read."""
        others = OtherUsers.NONE
        if principal.readable.user is None:
            others = OtherUsers.ALL
        elif principal.permissions.allows(Permission.APPROVE):
            others = OtherUsers.CALLS
        page = await self._records.suspensions(principal.own, selected, others, after=after, limit=limit)
        views = [suspension_view(each, is_whole=principal.readable.user in {None, each.user}) for each in page.items]
        return SuspensionPage(views if sees_all(principal) else redacted_suspensions(views), page.next)

    async def stored(self, scope: AccessScope, request_id: RequestId, *, with_header: bool = False) -> StoredExecution:
        """Return the stored execution; one in memory that has just ended is written first."""
        environment = self._environment
        return await stored_execution(self._store, environment.journal, scope, request_id, with_header=with_header)

    async def _history(self, scope: AccessScope, request_id: RequestId) -> ExecutionHistory:
        """Return what is recorded so far."""
        history = await self._running_history(scope, request_id)
        if history is None:
            stored = await self.stored(scope, request_id)
            history = await self._store.load(stored.tenant, stored.execution_id)
        if history is None:
            raise no_such_execution()
        return history

    async def _running_history(self, scope: AccessScope, request_id: RequestId) -> ExecutionHistory | None:
        local = self._local.find(scope, request_id)
        return None if local is None else await self._environment.journal.load(local.execution_id)

    async def _header(self, scope: AccessScope, request_id: RequestId) -> ExecutionHeader:
        history = await self._running_history(scope, request_id)
        if history is not None:
            return history.header
        return whole_header(await self.stored(scope, request_id, with_header=True))


def whole_header(stored: StoredExecution) -> ExecutionHeader:
    """Return the header that a stored execution was found with."""
    assert stored.header is not None  # noqa: S101 - it was asked for
    return stored.header


def suspension_view(found: OpenSuspension, *, is_whole: bool) -> SuspensionView:
    """Return the view of an open suspension; unless it `is_whole`, only the call of its value."""
    shown, value = found.suspension, found.suspension.value
    if not is_whole and isinstance(value, dict):
        value = {name: value[name] for name in _CALL_FIELDS if name in value}
    return SuspensionView(
        **shown.model_dump(exclude={"value"}),
        value=value,
        request_id=found.request_id,
        session_id=found.session_id,
        user=found.user,
        channel=found.channel,
    )
