"""Registry of the executions that run in this process, and what only the service may do to them."""

from app.domain.failures import Code, Failure
from app.domain.ids import ExecutionId, RequestId, SessionId, TenantId
from app.domain.journal.events import LiveDelta
from app.orchestration.execution.execution import Execution
from app.orchestration.runtime.handle import Completion, ExecutionHandle
from app.ports.events import EventFeed, Subscription


class LocalExecution:
    """An execution that runs here, with the controls that its handle does not give to entry points."""

    def __init__(self, execution: Execution, subscription: Subscription | None = None) -> None:
        self.execution = execution
        self._completion = Completion()
        self.handle = ExecutionHandle(execution, subscription, self._completion)

    @property
    def execution_id(self) -> ExecutionId:
        return self.execution.header.execution_id

    @property
    def name(self) -> tuple[str, str]:
        """Return the tenant and the request id."""
        return self.execution.header.tenant, self.execution.header.request_id

    @property
    def session(self) -> tuple[str, str | None]:
        """Return the tenant and the session id."""
        return self.execution.header.tenant, self.execution.header.request.session_id

    @property
    def is_journaled(self) -> bool:
        """Return whether another owner could continue it."""
        return self.execution.header.durability == "journaled"

    def streamed_deltas(self) -> list[LiveDelta]:
        """Return all deltas of the attempts that are still streaming."""
        return self.execution.streamed_deltas

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

    def complete(self) -> None:
        """Run the callbacks of those who wait for the end or the suspension."""
        self._completion.complete()


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

    def find(self, tenant: TenantId, request_id: RequestId) -> LocalExecution | None:
        """Return the execution of that name if it runs here."""
        return self._by_name.get((tenant, request_id))

    def in_session(self, tenant: TenantId, session_id: SessionId) -> list[LocalExecution]:
        """Return the executions of that session that run here or wait here for their turn."""
        return [local for local in self._by_id.values() if local.session == (tenant, session_id)]

    def is_running(self, execution_id: ExecutionId) -> bool:
        """Return whether the execution runs here."""
        return execution_id in self._by_id

    def cancel_if_local(self, execution_id: ExecutionId) -> bool:
        """Cancel the execution if it runs here, and return whether it does."""
        local = self._by_id.get(execution_id)
        if local is not None:
            local.stop("the client cancelled it")
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
