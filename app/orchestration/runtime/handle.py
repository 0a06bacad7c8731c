"""Handle of an execution that runs in this process."""

from collections.abc import Callable

from app.domain.contract.response import SystemResponse
from app.domain.failures import Code, Failure
from app.domain.journal.events import LiveDelta
from app.domain.lifecycle import State
from app.orchestration.execution.execution import Execution
from app.ports.events import Subscription


class ExecutionHandle:
    """One execution as its starter sees it."""

    def __init__(self, execution: Execution, subscription: Subscription | None) -> None:
        self.execution_id = execution.header.execution_id
        self.request_id = execution.header.request_id
        self.trace_id = execution.header.trace_id
        self.root_span_id = execution.correlation.span_id
        self.session = execution.header.tenant, execution.header.request.session_id
        self.subscription = subscription
        self._execution = execution
        self._done = False
        self._callbacks: list[Callable[[], None]] = []

    @property
    def response(self) -> SystemResponse | None:
        """The answer; None until the execution ended or was suspended."""
        return self._execution.response

    @property
    def is_suspended(self) -> bool:
        """Whether it waits for an answer, and may go on."""
        return self.response is not None and self.response.state is State.SUSPENDED

    @property
    def upstream_ms(self) -> float:
        """Milliseconds that attempts on providers took, all together."""
        return self._execution.ledger.upstream_ms

    def streamed_deltas(self) -> list[LiveDelta]:
        """All that was streamed so far in what is still being said."""
        return [piece for so_far in self._execution.live_attempts.values() for piece in so_far()]

    @property
    def outlives_client(self) -> bool:
        """Whether it goes on when the connection that started it is closed."""
        request = self._execution.header.request
        asked = request.on_disconnect
        return self._execution.header.durability == "journaled" if asked is None else asked == "continue"

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Calls back once when the execution has ended or was suspended; at once when it already has."""
        if self._done:
            callback()
        else:
            self._callbacks.append(callback)

    def cancel(self, why: str = "the client cancelled it", code: Code = Code.CANCELLED_SIGNAL) -> None:
        """Recorded first, then everything that runs is stopped. A second cancel changes nothing."""
        self._execution.stop(code, why)

    def stop(self) -> None:
        """The service is stopping: it is cancelled, or left as it is to its next owner where it is journaled."""
        if self._execution.header.durability == "journaled":
            self._execution.abandon()
        else:
            self.cancel("the service is stopping")

    def fail_unsaved(self, failure: Failure) -> None:
        """What it does is not kept any more: it ends at once, and its answer says so."""
        self._execution.abandon(failure)

    def notify_done(self) -> None:
        """Tells everybody who waits, once, and forgets them, who know it."""
        self._done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
