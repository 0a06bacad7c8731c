"""Executions that run in this process: the handle that entry points hold, and the registry of the service."""

from collections.abc import Callable

import anyio

from portico.domain.access.principal import AccessScope
from portico.domain.contract.response import SystemResponse
from portico.domain.failures import Code, Failure
from portico.domain.ids import ExecutionId, RequestId, SessionId
from portico.domain.journal.events import LiveDelta
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import StopDecision
from portico.domain.lifecycle import State
from portico.orchestration.execution.execution import Execution
from portico.ports.events import EventFeed, Subscription

CANCELLED_BY_CLIENT = StopDecision(Code.CANCELLED_SIGNAL, "the client cancelled it")


class ExecutionHandle:
    """An execution that was started here: its ids, its response once it has one, and cancellation."""

    def __init__(self, execution: Execution, subscription: Subscription | None) -> None:
        self.execution_id = execution.header.execution_id
        self.request_id = execution.header.request_id
        self.trace_id = execution.header.trace_id
        self.root_span_id = execution.correlation.span_id
        self.sampled = execution.header.sampled
        self.subscription = subscription
        """The events from the start on; None unless they were asked for."""
        self._execution = execution
        self._shown: Callable[[SystemResponse], SystemResponse] | None = None
        self._is_done = False
        self._callbacks: list[Callable[[], None]] = []

    @property
    def response(self) -> SystemResponse | None:
        """Return the response; None until the execution has ended or was suspended."""
        response = self._execution.response
        return response if response is None or self._shown is None else self._shown(response)

    @property
    def outlives_client(self) -> bool:
        """Return whether the execution continues when the connection that started it is closed."""
        header = self._execution.header
        on_disconnect = header.request.on_disconnect
        return header.durability == "journaled" if on_disconnect is None else on_disconnect == "continue"

    @property
    def is_in_session(self) -> bool:
        """Return whether the execution is a turn of a session."""
        return self._execution.header.request.session_id is not None

    def show_as(
        self, response: Callable[[SystemResponse], SystemResponse], events: Callable[[Subscription], Subscription]
    ) -> None:
        """Show the response and the events as these functions return them."""
        self._shown = response
        if self.subscription is not None:
            self.subscription = events(self.subscription)

    @property
    def is_suspended(self) -> bool:
        """Return whether the execution waits for an answer."""
        response = self._execution.response
        return response is not None and response.state is State.SUSPENDED

    @property
    def is_done(self) -> bool:
        """Return whether the execution has ended, was suspended, or is left to its next owner."""
        return self._is_done

    @property
    def has_acted(self) -> bool:
        """Return whether a call has run that must not run twice, or may run yet: its next owner continues it."""
        return self._execution.ledger.tool_calls.has_run_unsafe or self._execution.is_handed_over

    @property
    def upstream_ms(self) -> float:
        """Return the milliseconds that all provider attempts took together."""
        return self._execution.ledger.attempts_ms

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Call back once when the execution has ended or was suspended; at once if it already has."""
        if self._is_done:
            callback()
        else:
            self._callbacks.append(callback)

    async def wait(self) -> None:
        """Return when the execution has ended or was suspended."""
        done = anyio.Event()
        self.add_done_callback(done.set)
        await done.wait()

    def cancel(self) -> None:
        """Record the decision to cancel, then stop what runs. A second cancel changes nothing."""
        self._execution.stop(CANCELLED_BY_CLIENT.code, CANCELLED_BY_CLIENT.message)

    def _complete(self) -> None:
        """Run the callbacks of those who wait for the end or the suspension, and drop them."""
        self._is_done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class LocalExecution:
    """An execution that runs here, with the controls that its handle does not give to entry points."""

    def __init__(self, execution: Execution, subscription: Subscription | None = None) -> None:
        self.execution = execution
        self.execution_id = execution.header.execution_id
        self.name = execution.header.tenant, execution.header.request_id
        self.handle = ExecutionHandle(execution, subscription)

    @property
    def session_id(self) -> SessionId | None:
        """Return the id of its session, if it has one."""
        return self.execution.header.request.session_id

    def is_in(self, scope: AccessScope) -> bool:
        """Return whether it belongs to a user of that scope."""
        header = self.execution.header
        return scope.includes(header.tenant, header.user)

    @property
    def is_journaled(self) -> bool:
        """Return whether another owner could continue it."""
        return self.execution.header.durability == "journaled"

    def streamed_deltas(self) -> list[LiveDelta]:
        """Return all deltas of the attempts that are still streaming."""
        return self.execution.branches.streamed_deltas

    def stop(self, message: str) -> None:
        """Record the decision to cancel, then stop what runs. A second cancel changes nothing."""
        self.execution.stop(Code.CANCELLED_SIGNAL, message)

    def shut_down(self) -> None:
        """Leave a journaled execution to its next owner, and cancel any other."""
        if self.is_journaled:
            self.execution.abandon()
        else:
            self.stop("the service is stopping")

    def fail_unsaved(self, failure: Failure) -> None:
        """End at once with that failure: the journal does not store what it does any more."""
        self.execution.abandon(failure)


class LocalExecutions:
    """Registry of the executions that run here, by id and by name."""

    def __init__(self, event_feed: EventFeed) -> None:
        self._event_feed = event_feed
        self._by_id: dict[ExecutionId, LocalExecution] = {}
        self._by_name: dict[tuple[str, str], LocalExecution] = {}

    def add(self, local: LocalExecution) -> None:
        """Register an execution that is starting."""
        self._by_id[local.execution_id] = self._by_name[local.name] = local

    def remove(self, local: LocalExecution) -> None:
        """Unregister an execution that has ended or was suspended."""
        del self._by_id[local.execution_id], self._by_name[local.name]

    def complete(self, local: LocalExecution) -> None:
        """Run the callbacks of those who wait for the execution's end or suspension."""
        local.handle._complete()

    def find(self, scope: AccessScope, request_id: RequestId) -> LocalExecution | None:
        """Return the execution of that name if it runs here and is in the scope."""
        local = self._by_name.get((scope.tenant, request_id))
        return local if local is not None and local.is_in(scope) else None

    def in_session(self, scope: AccessScope, session_id: SessionId) -> list[LocalExecution]:
        """Return the executions of that session, in the scope, that run here or wait here for their turn."""
        return [local for local in self._by_id.values() if local.session_id == session_id and local.is_in(scope)]

    def headers(self) -> list[ExecutionHeader]:
        """Return the headers of all executions."""
        return [local.execution.header for local in self._by_id.values()]

    def header_of(self, execution_id: ExecutionId) -> ExecutionHeader | None:
        """Return the header of an execution; None if it does not run here."""
        local = self._by_id.get(execution_id)
        return None if local is None else local.execution.header

    def is_running(self, execution_id: ExecutionId) -> bool:
        """Return whether the execution runs here."""
        return execution_id in self._by_id

    def cancel_if_local(self, execution_id: ExecutionId) -> bool:
        """Cancel the execution if it runs here, and return whether it does."""
        local = self._by_id.get(execution_id)
        if local is not None:
            local.handle.cancel()
        return local is not None

    def fail_unsaved(self, execution_id: ExecutionId, failure: Failure) -> None:
        """End the execution, if it runs here, with the failure of its journal."""
        if execution_id in self._by_id:
            self._by_id[execution_id].fail_unsaved(failure)

    def disconnect_idle(self) -> None:
        """Disconnect the subscribers of executions that do not run here; these may be resumed elsewhere."""
        self._event_feed.disconnect_all_except(self._by_id.keys())

    def shut_down(self) -> None:
        """Stop everything: leave journaled executions to their next owner and cancel all others."""
        for local in list(self._by_id.values()):
            local.shut_down()
