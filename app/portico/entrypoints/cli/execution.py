"""Execution of one request in this process, shown event by event."""

import signal

import anyio
from anyio.abc import TaskStatus
from pydantic import JsonValue
from rich.console import Console

from portico.domain.access.channels import CLI, Entrance
from portico.domain.access.principal import LOCAL
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import Suspension, SystemResponse
from portico.domain.failures import Code, RequestFailure, invalid_request
from portico.domain.ids import RequestId, SuspensionId
from portico.domain.lifecycle import State
from portico.entrypoints.cli.display.live_view import LiveView
from portico.entrypoints.cli.display.suspension_prompt import Ask, ask_person
from portico.entrypoints.cli.display.terminal import print_failure
from portico.entrypoints.cli.output import OutputOptions
from portico.entrypoints.cli.service_parts import OpenService
from portico.orchestration.facade import (
    Accepted,
    AnswerAccepted,
    CallOptions,
    ExecutionHandle,
    Executions,
    ExecutionView,
    ResumeAccepted,
    ResumeRequest,
)
from portico.settings import AuditSettings, AuthSettings, Settings

TEMPORARY_STORE = "sqlite://"


def settings_of_command(settings: Settings) -> Settings:
    """Return the settings with a store in memory, because the configured one may belong to a running server.

    The local user is the only caller, so the issuer of tokens is not asked. Only errors are logged, because the command
    shows everything else.
    """
    storage = settings.storage.model_copy(update={"url": TEMPORARY_STORE})
    telemetry = settings.telemetry.model_copy(update={"log_level": "error"})
    own = {"storage": storage, "telemetry": telemetry, "auth": AuthSettings(), "audit": AuditSettings()}
    return settings.model_copy(update=own)


async def run_once(
    open_service: OpenService,
    settings: Settings,
    request: SystemRequest,
    output: OutputOptions,
) -> SystemResponse:
    """Run the request to its end and write the answer; Ctrl-C cancels it.

    Raises: Failure if the request is refused.
    """
    if request.run_at is not None:
        raise invalid_request(("run_at", "needs a server that waits until then: give its --url"))
    view = output.view(request)
    async with open_service(settings_of_command(settings)) as service:
        caller = service.channels.enter(LOCAL, Entrance(CLI))
        handle = await service.facade.execute(request, caller, CallOptions(subscribe=True))
        if isinstance(handle, ExecutionView | Accepted):
            raise AssertionError("an execution with a subscriber and without an Idempotency-Key starts at once")  # noqa: TRY004 - a bug, not a type error
        response = await _follow(handle, view)
        while response.state is State.SUSPENDED and output.ask is not None:
            resumed = await _answer(service.facade.executions, response, output.ask)
            if resumed is None:
                break
            response = await _follow(resumed, view)
    view.close()
    output.write(response, view.shown)
    return response


async def _answer(executions: Executions, response: SystemResponse, ask: Ask) -> ExecutionHandle | None:
    """Ask the person every open question, and return the execution, which continues after the last answer.

    Return None if it waits on, for other users who must approve a call, too.
    """
    resumed: ExecutionHandle | ResumeAccepted | None = None
    for suspension in response.suspensions:
        resumed = None
        while resumed is None:
            resumed = await _resume(executions, response.request_id, suspension, ask_person(suspension, ask))
    return resumed if isinstance(resumed, ExecutionHandle) else None


async def _resume(
    executions: Executions, request_id: RequestId, suspension: Suspension, payload: JsonValue
) -> ExecutionHandle | ResumeAccepted | None:
    """Answer the suspension; show why a payload is no answer to it, and return None."""
    suspension_id = SuspensionId(suspension.suspension_id)
    answer = ResumeRequest(tool_id=suspension.tool_id, payload=payload, suspension_id=suspension_id)
    try:
        resumed = await executions.resume(LOCAL, request_id, answer, subscribe=True)
    except RequestFailure as misfit:
        if misfit.code is not Code.REQUEST_INVALID:
            raise
        print_failure(Console(stderr=True), misfit.code, misfit.message)
        return None
    if isinstance(resumed, AnswerAccepted):
        raise AssertionError("the execution of a command is its user's own")  # noqa: TRY004 - a bug, not a type error
    return resumed


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
