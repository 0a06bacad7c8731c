"""Execution of one request in this process, shown event by event."""

import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import anyio
from anyio.abc import TaskStatus
from pydantic import ValidationError
from rich.console import Console

from app.bootstrap.service import Service
from app.domain.access import LOCAL
from app.domain.contract.request import SystemRequest
from app.domain.contract.response import SystemResponse
from app.domain.failures import Code, RequestFailure
from app.domain.field_errors import invalid_fields
from app.domain.lifecycle import Mode
from app.entrypoints.cli.live_view import LiveView, write_answer
from app.orchestration.facade import Accepted, CallOptions, ExecutionHandle, ExecutionView
from app.settings import Settings

TEMPORARY_STORE = "sqlite://"


@dataclass(frozen=True, slots=True)
class ExecuteOptions:
    """Options of the request. No `tools` means all tools, as in a request."""

    text: str
    system: str | None
    model: str | None
    mode: Mode
    tools: list[str] | None

    def request(self) -> SystemRequest:
        """Return the request. Raises: RequestFailure (REQUEST_INVALID)."""
        texts = [("system", self.system), ("user", self.text)]
        messages = [{"role": role, "content": content} for role, content in texts if content is not None]
        fields = {"messages": messages, "mode": self.mode, "model": self.model, "tools": self.tools or None}
        try:
            return SystemRequest.model_validate(fields)
        except ValidationError as invalid:
            errors = invalid_fields(invalid.errors(), schema=SystemRequest.model_json_schema())
            failure = RequestFailure(Code.REQUEST_INVALID, "; ".join(map(str, errors)))
        raise failure


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """Options of the output: the answer goes to standard output, as text or JSON.

    Streamed tokens go to standard output too, or with JSON to standard error.
    """

    stream: bool
    as_json: bool

    def view(self) -> LiveView:
        """Return the view of the events."""
        tokens = sys.stderr if self.as_json else sys.stdout
        return LiveView(Console(stderr=True, highlight=False), tokens if self.stream else None)

    def write(self, response: SystemResponse, shown: str) -> None:
        """Write the answer, unless all of it was streamed already."""
        if self.as_json:
            sys.stdout.write(response.model_dump_json(indent=2) + "\n")
        elif response.error is None and not (self.stream and shown == response.content):
            write_answer(response, sys.stdout)


def settings_of_command(settings: Settings) -> Settings:
    """Return the settings with a store in memory, because the configured one may belong to a running server.

    Only errors are logged, because the command shows everything else.
    """
    storage = settings.storage.model_copy(update={"url": TEMPORARY_STORE})
    telemetry = settings.telemetry.model_copy(update={"log_level": "error"})
    return settings.model_copy(update={"storage": storage, "telemetry": telemetry})


async def run_once(
    open_service: Callable[[Settings], AbstractAsyncContextManager[Service]],
    settings: Settings,
    request: SystemRequest,
    output: OutputOptions,
) -> SystemResponse:
    """Run the request to its end and write the answer; Ctrl-C cancels it.

    Raises: Failure if the request is refused.
    """
    view = output.view()
    async with open_service(settings_of_command(settings)) as service:
        handle = await service.facade.execute(request, LOCAL, CallOptions(subscribe=True))
        if isinstance(handle, ExecutionView | Accepted):
            raise AssertionError("an execution with a subscriber and without an Idempotency-Key starts at once")  # noqa: TRY004 - a bug, not a type error
        response = await _follow(handle, view)
    output.write(response, view.shown)
    return response


async def _follow(handle: ExecutionHandle, view: LiveView) -> SystemResponse:
    done = anyio.Event()
    handle.add_done_callback(done.set)
    async with anyio.create_task_group() as group:
        await group.start(_cancel_on_signal, handle)
        while handle.subscription is not None and (items := await handle.subscription.next()):
            for item in items:
                view.show(item)
        view.end_line()
        await done.wait()
        group.cancel_scope.cancel()
    if handle.response is None:
        raise AssertionError("an execution that is done has a response")
    return handle.response


async def _cancel_on_signal(handle: ExecutionHandle, *, task_status: TaskStatus[None]) -> None:
    """Cancel at the first signal; later signals have their default effect."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            handle.cancel()
            return
