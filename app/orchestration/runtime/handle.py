"""Execution handle: one execution that runs here, as entry points see it."""

from collections.abc import Callable

from app.domain.contract.response import SystemResponse
from app.domain.failures import Code
from app.domain.lifecycle import State
from app.orchestration.execution.execution import Execution
from app.ports.events import Subscription


class Completion:
    """Callbacks that run once when an execution has ended or was suspended."""

    def __init__(self) -> None:
        self._is_complete = False
        self._callbacks: list[Callable[[], None]] = []

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Call back once; at once if it is complete already."""
        if self._is_complete:
            callback()
        else:
            self._callbacks.append(callback)

    def complete(self) -> None:
        """Run the callbacks and drop them."""
        self._is_complete = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class ExecutionHandle:
    """An execution that was started here: its ids, its response once it has one, and cancellation."""

    def __init__(self, execution: Execution, subscription: Subscription | None, completion: Completion) -> None:
        self.execution_id = execution.header.execution_id
        self.request_id = execution.header.request_id
        self.trace_id = execution.header.trace_id
        self.root_span_id = execution.correlation.span_id
        self.subscription = subscription
        """The events from the start on; None unless they were asked for."""
        self._execution = execution
        self._completion = completion

    @property
    def response(self) -> SystemResponse | None:
        """Return the response; None until the execution has ended or was suspended."""
        return self._execution.response

    @property
    def is_suspended(self) -> bool:
        """Return whether the execution waits for an answer."""
        return self.response is not None and self.response.state is State.SUSPENDED

    @property
    def upstream_ms(self) -> float:
        """Return the milliseconds that all provider attempts took together."""
        return self._execution.ledger.upstream_ms

    @property
    def outlives_client(self) -> bool:
        """Return whether the execution continues when the connection that started it is closed."""
        header = self._execution.header
        on_disconnect = header.request.on_disconnect
        return header.durability == "journaled" if on_disconnect is None else on_disconnect == "continue"

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Call back once when the execution has ended or was suspended; at once if it already has."""
        self._completion.add_callback(callback)

    def cancel(self) -> None:
        """Record the decision to cancel, then stop what runs. A second cancel changes nothing."""
        self._execution.stop(Code.CANCELLED_SIGNAL, "the client cancelled it")
