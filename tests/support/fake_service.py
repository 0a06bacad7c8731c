"""A fake service whose executions are driven by the test, event by event."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anyio
from fastapi import FastAPI

from portico.adapters.access.authenticators import NoAuthentication
from portico.adapters.event_bus import EventBus
from portico.bootstrap.service import Readiness
from portico.domain.access.principal import Permissions, Principal
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import SystemResponse
from portico.domain.failures import Code, Failure
from portico.domain.journal.events import (
    CorrelationContext,
    Event,
    ExecutionCompleted,
    InferenceDelta,
    LiveDelta,
    StoredEvent,
)
from portico.domain.lifecycle import Mode, State
from portico.entrypoints.http.app import create_app
from portico.orchestration.channels import NO_CHANNELS
from portico.orchestration.facade import CallOptions
from portico.ports.events import Subscription
from portico.settings import Settings
from tests.support.entropy import SeededEntropy

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class FakeRunning:
    """The handle of an execution that the test drives."""

    def __init__(self, request: SystemRequest, subscription: Subscription | None, bus: EventBus) -> None:
        self.execution_id = self.request_id = request.request_id or "r-1"
        self.trace_id, self.root_span_id = TRACE, SPAN
        self.sampled = False
        self.subscription = subscription
        self.response: SystemResponse | None = None
        self.upstream_ms = 7.0
        self.outlives_client = False
        self.cancelled = False
        self._bus = bus
        self._callbacks: list[Callable[[], None]] = []
        self._number = 0

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        if self.response is None:
            self._callbacks.append(callback)
        else:
            callback()

    def cancel(self) -> None:
        self.cancelled = True

    def emit(self, *events: Event) -> None:
        """Publish these events, stored together."""
        items = [self._recorded(event) for event in events]
        self._bus.publish("r", items)

    def emit_delta(self, text: str, offset: int = 0) -> None:
        """Publish a delta."""
        delta = InferenceDelta(segment="0/0", offset=offset, text=text)
        self._bus.publish("r", [LiveDelta(at=1.5, correlation=self._correlation(), event=delta)])

    def complete(self, **changes: Any) -> None:
        """Set the response and publish the final event with it."""
        self.response = response(self.request_id, **changes)
        self.emit(ExecutionCompleted(self.response))
        for callback in self._callbacks:
            callback()

    def end_without_response(self) -> None:
        """End without a response, as after a bug."""
        self._bus.disconnect("r")
        for callback in self._callbacks:
            callback()

    def _recorded(self, event: Event) -> StoredEvent:
        self._number += 1
        return StoredEvent(self._number, 1.5, "0", self._correlation(), event)

    def _correlation(self) -> CorrelationContext:
        return CorrelationContext(self.request_id, None, self.trace_id, SPAN, None)


class FakeFacade:
    """A facade whose executions the test drives; `started` is called with each, `refusal` refuses them all."""

    def __init__(self) -> None:
        self.running: list[FakeRunning] = []
        self.calls: list[dict[str, Any]] = []
        self.started: Callable[[FakeRunning], None] = lambda running: None
        self.refusal: Failure | None = None
        self.begun = anyio.Event()
        self._entropy = SeededEntropy(0)
        self.bus = EventBus([], capacity=100, on_fault=_raise, on_drop=lambda: None)

    async def execute(
        self,
        request: SystemRequest,
        principal: Principal,
        calling: CallOptions,
    ) -> FakeRunning:
        self.calls.append({"request": request, "calling": calling})
        if self.refusal is not None:
            raise self.refusal
        running = FakeRunning(request, self.bus.subscribe("r") if calling.subscribe else None, self.bus)
        self.running.append(running)
        self.started(running)
        self.begun.set()
        return running

    @property
    def introspection(self) -> "FakeFacade":
        return self

    def engines(self, _permissions: Permissions) -> list[Any]:
        return []

    async def tools(self, _permissions: Permissions) -> list[Any]:
        return []

    def limits_of(self, _principal: Principal) -> list[Any]:
        return []

    def new_id(self) -> str:
        return self._entropy.uuid7()

    def now(self) -> float:
        return 1.5


class FakeService:
    """A service over a fake facade."""

    channels = NO_CHANNELS
    credentials = SimpleNamespace(request_headers={})

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.facade = FakeFacade()
        self.authenticator = NoAuthentication()
        self.server_spans = None
        self.links: list[tuple[str, str]] = []
        self.reason: str | None = None
        self.refusals: list[Code] = []
        self.refused_requests: list[dict[str, str | None]] = []

    def metrics(self) -> tuple[bytes, str]:
        return b"portico_up 1\n", "text/plain; version=0.0.4"

    def link_request(self, gateway_request_id: str, **request: str) -> None:
        self.links.append((request["request_id"], gateway_request_id))

    def readiness(self) -> Readiness:
        return Readiness(ready=self.reason is None, reason=self.reason)

    def record_refusal(self, failure: Failure, **request: str | None) -> None:
        self.refusals.append(failure.code)
        self.refused_requests.append(request)

    async def drain(self) -> None:
        self.reason = "draining"


def fake_app(**server: Any) -> tuple[FastAPI, FakeService]:
    """Return an application over a fake service; the values are those of `[server]` and `[limits]`."""
    settings = Settings.model_validate({"server": server.pop("server", {}), "limits": server.pop("limits", {})})
    service = FakeService(settings)

    @asynccontextmanager
    async def opener(_: Settings) -> AsyncIterator[Any]:
        yield service

    return create_app(settings, opener), service


def response(request_id: str, **changes: Any) -> SystemResponse:
    """Return a response, completed unless changed."""
    values = {"request_id": request_id, "trace_id": TRACE, "mode": Mode.CHAT, "state": State.COMPLETE, "content": "Hi"}
    return SystemResponse(**(values | changes))


def _raise(fault: Exception) -> None:
    raise fault
