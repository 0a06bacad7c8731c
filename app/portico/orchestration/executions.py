"""Existing executions: those that run here, wait for an answer, or have ended."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from pydantic import JsonValue

from portico.capabilities.context.title import title_of
from portico.capabilities.tools.credentials import CredentialHolder
from portico.domain.access.principal import AccessScope, Permission, Principal
from portico.domain.contract.response import Suspension, SuspensionKind
from portico.domain.credentials import NO_CREDENTIALS
from portico.domain.failures import (
    AccessFailure,
    Code,
    RequestFailure,
    StorageFailure,
    invalid_request,
)
from portico.domain.fingerprints import digest
from portico.domain.ids import ExecutionId, RequestId, TenantId
from portico.domain.journal.events import StoredEvent
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import RecordedStep
from portico.domain.journal.status import ExecutionStatus
from portico.domain.journal.suspensions import ABOUT_CALLS, APPROVAL_DECISIONS, AUTHORIZED, Approve
from portico.domain.lifecycle import State
from portico.domain.value import replace, value
from portico.orchestration.execution.environment import Environment
from portico.orchestration.execution_views import ExecutionView, shown_view, view_of
from portico.orchestration.guards import check_later_text
from portico.orchestration.redaction import (
    RedactedSubscription,
    redact_handle,
    redacted_events,
    sees_all,
)
from portico.orchestration.rights import require
from portico.orchestration.runtime.agent_trace import AgentTrace, agent_trace
from portico.orchestration.runtime.approval_answer import (
    USUAL_APPROVALS,
    ApprovalCheck,
    ApprovalConfig,
    CollectedAnswers,
)
from portico.orchestration.runtime.authorizations import credential_of, has_value
from portico.orchestration.runtime.driver import pattern_for, require_current_version
from portico.orchestration.runtime.event_page import EventPage, EventSelection, event_page
from portico.orchestration.runtime.fork import whole_request
from portico.orchestration.runtime.handle import CANCELLED_BY_CLIENT, ExecutionHandle
from portico.orchestration.runtime.launcher import Launcher
from portico.orchestration.runtime.lookup import no_such_execution, stored_execution
from portico.orchestration.runtime.recovery import Recovery
from portico.orchestration.runtime.replay import (
    OfflineReplayer,
    ReplayReport,
    follows_record,
    open_code,
    require_at_rest,
)
from portico.orchestration.runtime.resume import (
    ResumeRequest,
    answer_step,
    require_answer,
    select_suspensions,
    status_of,
)
from portico.orchestration.runtime.subscription import CatchUpSubscription
from portico.ports.events import EventTailer, Subscription
from portico.ports.journal import ExecutionHistory
from portico.ports.storage import (
    AnswerReceipt,
    ExecutionFilter,
    ExecutionStore,
    OutdatedAnswers,
    StoredExecution,
    SuspensionAnswers,
)

EVENTS_PER_PAGE = 1_000


@value
class ExecutionPage:
    """A page of executions, newest first; `next` is the cursor of the following page, None on the last."""

    executions: list[ExecutionView]
    next: str | None


@value
class AnswerAccepted:
    """The answer to a suspension of another user's execution was accepted; the execution itself is not shown.

    It `is_pending` if other users must approve a call, too.
    """

    is_pending: bool = False


@value
class ResumeAccepted:
    """The answer was accepted, but the execution was not started: other suspensions are still open.

    If events were asked for, `events` are those from that answer to its end or its next suspension.
    """

    view: ExecutionView
    events: Subscription | None


class Executions:
    """Queries and commands for executions, by principal and request id.

    Those of another tenant or user do not exist; a principal that may view its tenant also reads those of other users.

    Raises: RequestFailure (REQUEST_NOT_FOUND), StorageFailure, in every method that names one.
    """

    def __init__(
        self,
        environment: Environment,
        store: ExecutionStore,
        *,
        launcher: Launcher,
        recovery: Recovery,
        event_tailer: EventTailer,
        approvals: ApprovalConfig = USUAL_APPROVALS,
    ) -> None:
        self._environment = environment
        self._store = store
        self._launcher = launcher
        self._recovery = recovery
        self._replayer = OfflineReplayer(launcher.patterns)
        self._event_tailer = event_tailer
        self._approvals = approvals

    async def show(self, principal: Principal, request_id: RequestId) -> ExecutionView:
        """Return the execution with its status."""
        local = self._launcher.local.find(principal.readable, request_id)
        history = None if local is None else await self._environment.journal.load(local.execution_id)
        status = None if history is None else status_of(history)
        if local is not None and history is not None and status is not None and status.state is not State.SUSPENDED:
            return shown_view(view_of(_running_here(history, status), local.execution.branches.progress), principal)
        return shown_view(view_of(await self._stored(principal.readable, request_id)), principal)

    async def require(self, scope: AccessScope, request_id: RequestId) -> None:
        """Raise RequestFailure (REQUEST_NOT_FOUND) if there is no such execution in the scope."""
        if self._launcher.local.find(scope, request_id) is None:
            await self._stored(scope, request_id)

    async def page(
        self, principal: Principal, selected: ExecutionFilter, *, after: str | None, limit: int
    ) -> ExecutionPage:
        """Return a page of executions. The first one has those that ended here before the call, in memory, too."""
        if after is None:
            await self._environment.journal.flushed()
        page = await self._store.executions(principal.readable, selected, after=after, limit=limit)
        return ExecutionPage([shown_view(view_of(each), principal) for each in page.items], page.next)

    async def read(
        self, principal: Principal, request_id: RequestId, *, after: int = 0, types: frozenset[str] | None = None
    ) -> Subscription:
        """Return a subscription to the events after that number, across suspensions, until the execution ends.

        It has `ended` already if no events are left, or none of the `types`, if the reader wants only these. While the
        service is stopping, a subscription to an execution that does not run here ends after the stored events.
        """
        subscription = await self._subscription(principal, request_id, after, types)
        return subscription if sees_all(principal) else RedactedSubscription(subscription)

    async def _subscription(
        self, principal: Principal, request_id: RequestId, after: int, types: frozenset[str] | None
    ) -> Subscription:
        local = self._launcher.local.find(principal.readable, request_id)
        if local is not None:
            live = self._environment.event_feed.subscribe(local.execution_id, past_suspension=True)
            deltas = local.streamed_deltas()
            history = await self._environment.journal.load(local.execution_id)
            if history is not None:
                committed = [item for item in history.events if item.sequence_number > after]
                return CatchUpSubscription([*committed, *deltas], after, live)
            live.close()
        stored = await self._stored(principal.readable, request_id)
        if stored.status.ended or self._launcher.is_draining:
            events = await self._events(stored.tenant, stored.execution_id, after)
            is_wanted = types is None or any(event.event.type in types for event in events)
            return CatchUpSubscription(events if is_wanted else (), after, None)
        return self._event_tailer.tail(stored, after)

    async def events(self, principal: Principal, request_id: RequestId) -> list[StoredEvent]:
        """Return all stored events."""
        stored = await self._stored(principal.readable, request_id)
        events = await self._events(stored.tenant, stored.execution_id, 0)
        return events if sees_all(principal) else redacted_events(events)

    async def event_page(self, principal: Principal, request_id: RequestId, selected: EventSelection) -> EventPage:
        """Return a page of the events that are stored so far, or that are in memory while the execution runs there."""
        stored = await self._store.find(principal.readable, request_id)
        history = None if stored is not None else await self._running_history(principal.readable, request_id)
        if history is not None:
            events, last = history.events, len(history.events)

            async def read(after: int, limit: int) -> Sequence[StoredEvent]:
                return events[after : after + limit]
        else:
            found = stored or await self._stored(principal.readable, request_id)
            last = found.last_sequence_number

            async def read(after: int, limit: int) -> Sequence[StoredEvent]:
                page = await self._store.events(found.tenant, found.execution_id, after=after, limit=limit)
                if page is None:
                    raise no_such_execution()
                return page

        page = await event_page(read, last, selected)
        return page if sees_all(principal) else replace(page, events=redacted_events(page.events))

    async def trace(self, principal: Principal, request_id: RequestId) -> AgentTrace:
        """Return the trace that the events so far add up to.

        Raises: RequestFailure (REQUEST_NOT_FOUND) if the events were deleted, (REQUEST_IN_PROGRESS) before the first.
        """
        history = await self._running_history(principal.readable, request_id)
        if history is not None and history.events:
            return agent_trace(history.events, history.header.request.agent, history.steps.values())
        stored = await self._stored(principal.readable, request_id)
        events = await self._events(stored.tenant, stored.execution_id, 0)
        if events:
            return agent_trace(events, stored.agent, await self._steps(stored))
        if stored.status.ended:
            raise RequestFailure(Code.REQUEST_NOT_FOUND, "the execution's events were deleted", condition="path")
        raise RequestFailure(Code.REQUEST_IN_PROGRESS, "the execution has no events yet", retry_after=1.0)

    async def cancel(self, principal: Principal, request_id: RequestId) -> bool:
        """Cancel the execution, whether it runs or waits, and return once that cannot be lost.

        Return False if it has ended already.
        """
        while True:
            local = self._launcher.local.find(principal.own, request_id)
            if local is not None:
                require(principal.permissions, Permission.SEND_MESSAGES, "cancel executions")
                is_running = local.handle.response is None
                local.handle.cancel()
                await self._environment.journal.flush(local.execution_id)
                if not local.handle.is_suspended:
                    return is_running
                await local.handle.wait()
            stored = await self._stored(principal.own, request_id)
            require(principal.permissions, Permission.SEND_MESSAGES, "cancel executions")
            if stored.status.ended:
                return False
            if stored.owner is not None:
                await self._store.request_cancel(stored.tenant, stored.execution_id)
                return True
            if await self._recovery.end_unowned(stored, CANCELLED_BY_CLIENT):
                return True

    async def require_answerable(self, principal: Principal, request_id: RequestId) -> None:
        """Raise RequestFailure (REQUEST_NOT_FOUND) if the principal has no such execution and may not decide on it."""
        if self._launcher.local.find(principal.own, request_id) is None:
            await self._answerable(principal, request_id)

    async def resume(
        self,
        principal: Principal,
        request_id: RequestId,
        request: ResumeRequest,
        *,
        subscribe: bool,
        is_untrusted: bool = False,
        credentials: Mapping[str, str] = NO_CREDENTIALS,
    ) -> ExecutionHandle | ResumeAccepted | AnswerAccepted:
        """Record the answers to open suspensions, all or none; after the last one the execution continues here.

        Their text is trusted like that of the tool that asked, unless it `is_untrusted`: a model has given it. The
        owner's request may bring values of credentials, by name, which the execution has from then on.

        The history is read once and replayed before the answers are recorded, since an answer is taken once: it must
        not be lost to a journal that diverges. The answer to the last suspension claims the execution. It runs under
        the rights of its header.

        Raises: RequestFailure (REQUEST_RESUME_UNEXPECTED, REQUEST_RESUME_MISMATCH, REQUEST_INVALID,
        REQUEST_SHUTTING_DOWN); ValidationFailure (VALIDATION_INPUT_REFUSED); AccessFailure (ACCESS_DENIED);
        StorageFailure (STORAGE_SNAPSHOT_INVALID) if today's pattern diverges from the journal. Nothing is changed then.
        """
        if credentials:
            await self._hold(principal, request_id, credentials)
        while True:
            stored, history, answers = await self._answers(principal, request_id, request, is_untrusted=is_untrusted)
            with suppress(OutdatedAnswers):
                receipt = await self._store.answer(stored.tenant, stored.execution_id, answers, claim=True)
                break
        is_own = stored.user == principal.user
        if receipt.open_suspensions and is_own:
            return await self._accepted(principal, stored, subscribe=subscribe)
        if not receipt.open_suspensions:
            history = await self._answered(stored, history, answers.steps, receipt)
            handle = self._launcher.start(history, claimed=True, subscribe=subscribe and is_own)
            if is_own:
                return handle if sees_all(principal) else redact_handle(handle)
        return AnswerAccepted(is_pending=bool(answers.changed))

    async def _hold(self, principal: Principal, request_id: RequestId, credentials: Mapping[str, str]) -> None:
        """Store what the owner's request brought of credentials; of another user's request nothing is taken."""
        stored, suspensions = await self._answerable(principal, request_id)
        source = self._environment.credentials
        if source is not None and suspensions and stored.user == principal.user:
            holder = CredentialHolder(stored.tenant, stored.user, stored.execution_id)
            await source.hold(holder, credentials, stored=True)

    async def _answers(
        self, principal: Principal, request_id: RequestId, request: ResumeRequest, *, is_untrusted: bool
    ) -> tuple[StoredExecution, ExecutionHistory, SuspensionAnswers]:
        """Return the execution, its history, and the answers, which may be recorded. Raises: as `resume`."""
        if self._launcher.local.find(principal.own, request_id) is not None:
            raise RequestFailure(Code.REQUEST_RESUME_UNEXPECTED, "the execution is not suspended")
        self._launcher.require_accepting()
        stored, suspensions = await self._answerable(principal, request_id)
        selected = select_suspensions(suspensions, request.given)
        for suspension in selected:
            self._require_right_to_answer(principal, stored, suspension)
        history = await self._history(stored)
        require_current_version(history.header, self._launcher.patterns)
        answers = await self._checked(principal, history, request, selected, is_untrusted=is_untrusted)
        await self._verify_replayable(history)
        if answers.changed or any(each.approvals is not None for each in selected):
            answers = replace(answers, after=stored.last_sequence_number)
        return stored, history, answers

    async def _checked(
        self,
        principal: Principal,
        history: ExecutionHistory,
        request: ResumeRequest,
        selected: Sequence[Suspension],
        *,
        is_untrusted: bool,
    ) -> SuspensionAnswers:
        """Return the answers to these suspensions, with their events.

        Raises: RequestFailure (REQUEST_INVALID, REQUEST_RESUME_MISMATCH); ValidationFailure (VALIDATION_INPUT_REFUSED).
        """
        header, correlation, now = history.header, history.events[0].correlation, self._environment.clock.now()
        pattern, whole = pattern_for(header, self._launcher.patterns), whole_request(header)
        collected = CollectedAnswers(principal.user, correlation)
        for index, (suspension, answer) in enumerate(zip(selected, request.given, strict=True)):
            guards = await check_later_text(pattern, whole, self._environment, answer.payload)
            errors = pattern.answer_errors(header.request, suspension, answer.payload)
            within = "" if request.answers is None else f"answers.{index}."
            require_answer(suspension, answer.payload, errors, within=within)
            given = None
            if suspension.kind is SuspensionKind.APPROVAL:
                check = ApprovalCheck(self._environment, history, principal, self._approvals, within=within)
                given = check.check(suspension, answer.payload)
                if header.user != principal.user:
                    await self._require_own_arguments(header, suspension, answer.payload)
            if suspension.kind is SuspensionKind.AUTHORIZATION and answer.payload == AUTHORIZED:
                await self._require_value(header, suspension, within)
            step = answer_step(
                suspension,
                answer.payload,
                at=now,
                guards=guards,
                is_untrusted=is_untrusted,
                by=() if given is None else given.by,
            )
            collected.add(suspension, step, given)
        return collected.answers()

    async def _require_value(self, header: ExecutionHeader, suspension: Suspension, within: str) -> None:
        """Raise RequestFailure (REQUEST_INVALID) while the credential that a call waits for has no value."""
        source = self._environment.credentials
        holder = CredentialHolder(header.tenant, header.user, header.execution_id)
        if source is None or not await has_value(source, suspension, holder):
            message = f"must be deny while the credential {credential_of(suspension)} has no value"
            raise invalid_request((f"{within}payload.decision", message))

    async def _require_own_arguments(self, header: ExecutionHeader, suspension: Suspension, payload: JsonValue) -> None:
        """Raise AccessFailure (ACCESS_DENIED) if another user changes a call that has its owner's own credential."""
        answer, call = APPROVAL_DECISIONS.validate_python(payload), suspension.value
        if not isinstance(answer, Approve) or answer.arguments is None or not isinstance(call, dict):
            return
        tool, source = self._environment.tool_registry.get(str(call["tool"])), self._environment.credentials
        if tool is None or source is None or digest(answer.arguments) == digest(call["arguments"]):
            return
        holder = CredentialHolder(header.tenant, header.user, header.execution_id)
        for name in tool.info().credentials:
            if await source.is_personal(name, holder):
                message = f"only its owner may change the arguments of this call: it uses the owner's {name}"
                raise AccessFailure(Code.ACCESS_DENIED, message)

    async def _answerable(
        self, principal: Principal, request_id: RequestId
    ) -> tuple[StoredExecution, Sequence[Suspension]]:
        """Return the execution and the suspensions of it that the principal may answer; none while it is being ended.

        They are all of its own; of another user those about calls, if it may approve. Raises: RequestFailure
        (REQUEST_NOT_FOUND) without such an execution, or without such a suspension of another user.
        """
        scope = AccessScope(principal.tenant) if principal.permissions.allows(Permission.APPROVE) else principal.own
        stored = await self._stored(scope, request_id)
        suspensions = stored.suspensions if stored.owner is None else ()
        if stored.user == principal.user:
            return stored, suspensions
        about_calls = [each for each in suspensions if each.kind in ABOUT_CALLS]
        if not about_calls:
            raise no_such_execution()
        return stored, about_calls

    def _require_right_to_answer(self, principal: Principal, stored: StoredExecution, suspension: Suspension) -> None:
        """Raise AccessFailure (ACCESS_DENIED) if the principal may not answer the suspension."""
        if suspension.kind not in ABOUT_CALLS:
            require(principal.permissions, Permission.SEND_MESSAGES, "answer questions")
            return
        require(principal.permissions, Permission.APPROVE, "decide about calls")
        if stored.user == principal.user and not self._approvals.self_approval:
            message = "another user must decide: policy.self_approval is false"
            raise AccessFailure(Code.ACCESS_DENIED, message)

    async def replay(self, principal: Principal, request_id: RequestId) -> ReplayReport:
        """Replay the execution offline. Raises: as `load_at_rest`."""
        history = await self.load_at_rest(principal.readable, request_id)
        replay = partial(self._replayer.replay, history, redacted=not sees_all(principal))
        return await self._environment.thread_pool.run(replay)

    async def load_at_rest(self, scope: AccessScope, request_id: RequestId) -> ExecutionHistory:
        """Return the history of an execution that has ended or is suspended.

        Raises: RequestFailure (REQUEST_IN_PROGRESS) while it runs; StorageFailure (STORAGE_SNAPSHOT_INVALID) if its
        pattern has another version by now.
        """
        stored = await self._stored(scope, request_id)
        require_at_rest(stored)
        history = await self._history(stored)
        require_current_version(history.header, self._launcher.patterns)
        return history

    async def _answered(
        self, stored: StoredExecution, history: ExecutionHistory, steps: Sequence[RecordedStep], receipt: AnswerReceipt
    ) -> ExecutionHistory:
        """Return the claimed history with its last answers; read it again only if another answer came in between."""
        if receipt.commit_count != history.commit_count + len(steps):
            return replace(await self._history(stored), epoch=receipt.epoch)
        return replace(
            history,
            steps={**history.steps, **{step.key: step for step in steps}},
            events=[*history.events, *receipt.events],
            commit_count=receipt.commit_count,
            epoch=receipt.epoch,
        )

    async def _accepted(self, principal: Principal, stored: StoredExecution, *, subscribe: bool) -> ResumeAccepted:
        view = await self.show(principal, stored.request_id)
        after = stored.last_sequence_number
        events = self._event_tailer.tail(stored, after, past_suspension=False) if subscribe else None
        if events is not None and not sees_all(principal):
            events = RedactedSubscription(events)
        return ResumeAccepted(view, events)

    async def _verify_replayable(self, history: ExecutionHistory) -> None:
        if not (await self._environment.thread_pool.run(partial(self._replayer.replay, history))).identical:
            raise StorageFailure(
                Code.STORAGE_SNAPSHOT_INVALID, "the journal differs from what its pattern does in this version"
            )
        if open_code(history):
            interpreter, patterns = self._environment.code, self._launcher.patterns
            if interpreter is None or not await follows_record(history, patterns, interpreter):
                raise StorageFailure(
                    Code.STORAGE_SNAPSHOT_INVALID,
                    "the interpreter of its code is not the recorded one, or goes another way",
                )

    async def _running_history(self, scope: AccessScope, request_id: RequestId) -> ExecutionHistory | None:
        """Return the history of an execution that runs here; None if it does not."""
        local = self._launcher.local.find(scope, request_id)
        return None if local is None else await self._environment.journal.load(local.execution_id)

    async def _stored(self, scope: AccessScope, request_id: RequestId) -> StoredExecution:
        return await stored_execution(self._store, self._environment.journal, scope, request_id)

    async def _steps(self, stored: StoredExecution) -> Sequence[RecordedStep]:
        """Return the recorded steps; none if this version cannot read them."""
        try:
            history = await self._store.load(stored.tenant, stored.execution_id)
        except StorageFailure as unreadable:
            if unreadable.code is not Code.STORAGE_SNAPSHOT_INVALID:
                raise
            return ()
        return () if history is None else tuple(history.steps.values())

    async def _history(self, stored: StoredExecution) -> ExecutionHistory:
        history = await self._store.load(stored.tenant, stored.execution_id)
        if history is None:
            raise no_such_execution()
        return history

    async def _events(self, tenant: TenantId, execution_id: ExecutionId, after: int) -> list[StoredEvent]:
        events: list[StoredEvent] = []
        while True:
            last = events[-1].sequence_number if events else after
            page = await self._store.events(tenant, execution_id, after=last, limit=EVENTS_PER_PAGE)
            if page is None:
                raise no_such_execution()
            events += page
            if len(page) < EVENTS_PER_PAGE:
                return events


def _running_here(history: ExecutionHistory, status: ExecutionStatus) -> StoredExecution:
    last = history.events[-1].sequence_number if history.events else 0
    return StoredExecution.of_running(history.header, status, last, title_of(history.header))
