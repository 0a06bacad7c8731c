"""Running one request in this process, watched from its first event to its last."""

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
from app.domain.lifecycle import Mode
from app.entrypoints.cli.live_view import LiveView, write_answer
from app.orchestration.facade import Accepted, CallOptions, ExecutionHandle, ExecutionView
from app.settings import Settings

TEMPORARY_STORE = "sqlite://"


@dataclass(frozen=True, slots=True)
class ExecuteOptions:
    """What the options ask for. No `tools` means all, as in a request."""

    text: str
    system: str | None
    model: str | None
    mode: Mode
    tools: list[str] | None

    def request(self) -> SystemRequest:
        """Raises: RequestFailure (REQUEST_INVALID)."""
        spoken = [("system", self.system), ("user", self.text)]
        messages = [{"role": role, "content": content} for role, content in spoken if content is not None]
        given = {"messages": messages, "mode": self.mode, "model": self.model, "tools": self.tools or None}
        try:
            return SystemRequest.model_validate(given)
        except ValidationError as error:
            faults = (f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
            failure = RequestFailure(Code.REQUEST_INVALID, "; ".join(faults))
        raise failure


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """What goes where: the answer to standard output, as text or JSON; tokens beside the events when it is JSON."""

    stream: bool
    as_json: bool

    def view(self) -> LiveView:
        """The view for the events."""
        tokens = sys.stderr if self.as_json else sys.stdout
        return LiveView(Console(stderr=True, highlight=False), tokens if self.stream else None)

    def write(self, response: SystemResponse, shown: str) -> None:
        """Writes the answer, unless all of it was shown as it came."""
        if self.as_json:
            sys.stdout.write(response.model_dump_json(indent=2) + "\n")
        elif response.error is None and not (self.stream and shown == response.content):
            write_answer(response, sys.stdout)


def with_temporary_storage(settings: Settings) -> Settings:
    """The same with a store of its own, gone when the process ends: the file of the settings may belong to a server."""
    return settings.model_copy(update={"storage": settings.storage.model_copy(update={"url": TEMPORARY_STORE})})


async def run_once(
    open_service: Callable[[Settings], AbstractAsyncContextManager[Service]],
    settings: Settings,
    request: SystemRequest,
    output: OutputOptions,
) -> SystemResponse:
    """Runs it to its end; Ctrl-C cancels it. The log keeps to errors, for the view tells the rest.

    Raises: Failure when it is refused.
    """
    quiet = settings.model_copy(update={"telemetry": settings.telemetry.model_copy(update={"log_level": "error"})})
    view = output.view()
    async with open_service(with_temporary_storage(quiet)) as service:
        running = await service.facade.execute(request, LOCAL, CallOptions(subscribe=True))
        if isinstance(running, ExecutionView | Accepted):
            raise AssertionError("what is watched begins at once, and without an Idempotency-Key it is new")  # noqa: TRY004 - a bug of ours
        response = await _follow(running, view)
    output.write(response, view.shown)
    return response


async def _follow(running: ExecutionHandle, view: LiveView) -> SystemResponse:
    ended = anyio.Event()
    running.add_done_callback(ended.set)
    async with anyio.create_task_group() as group:
        await group.start(_cancel_on_signal, running)
        while running.subscription is not None and (items := await running.subscription.next()):
            for item in items:
                view.show(item)
        view.end_line()
        await ended.wait()
        group.cancel_scope.cancel()
    if running.response is None:
        raise AssertionError("an execution that is done has a response")
    return running.response


async def _cancel_on_signal(running: ExecutionHandle, *, task_status: TaskStatus[None]) -> None:
    """Cancels at the first signal; from then on a signal does what it always does."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            running.cancel()
            return
