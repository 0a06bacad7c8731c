"""Execution of one request in this process, shown event by event."""

import signal
import sys
from pathlib import Path
from typing import Any, Final

import anyio
import orjson
import typer
from anyio.abc import TaskStatus
from pydantic import JsonValue, ValidationError
from rich.console import Console
from rich.text import Text

from portico.domain.access.principal import LOCAL
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import Suspension, SystemResponse
from portico.domain.failures import Code, RequestFailure
from portico.domain.field_errors import invalid_fields, path_within
from portico.domain.ids import RequestId, SuspensionId
from portico.domain.lifecycle import Mode, State
from portico.domain.strict_json import StrictJsonError, loads
from portico.domain.value import value
from portico.entrypoints.cli.display.live_view import LiveView, write_answer
from portico.entrypoints.cli.display.plan_tree import PlanTreeView
from portico.entrypoints.cli.display.suspension_prompt import Ask, ask_person, describe_suspension
from portico.entrypoints.cli.display.terminal import print_degradation, print_failure
from portico.entrypoints.cli.exit_codes import EXIT_CODES, SUSPENDED
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
STANDARD_INPUT: Final = Path("-")


@value
class ExecuteOptions:
    """Options of the request. No `tools` means all tools, as in a request.

    `schema` is the file of a JSON Schema that the answer follows; with it the mode is structured unless one is given.
    With `passes` it is plan.
    """

    text: str
    system: str | None
    model: str | None
    mode: str | None
    tools: list[str] | None
    schema: Path | None
    agent: str | None = None
    passes: int | None = None

    def request(self) -> SystemRequest:
        """Return the request. Raises: RequestFailure (REQUEST_INVALID)."""
        texts = [("system", self.system), ("user", self.text)]
        messages = [{"role": role, "content": content} for role, content in texts if content is not None]
        fields: dict[str, Any] = {"messages": messages, "model": self.model, "tools": self.tools or None}
        usual = Mode.PLAN if self.passes is not None else None if self.schema is None else Mode.STRUCTURED
        mode = self.mode or usual
        if mode is not None:
            fields["mode"] = mode
        if self.agent is not None:
            fields["agent"] = self.agent
        if self.passes is not None:
            fields["plan"] = {"passes": self.passes}
        if self.schema is not None:
            fields["output"] = {"schema": read_json(self.schema)}
        return parse_request(fields)


def read_request(file: Path) -> SystemRequest:
    """Return the request in a file, as the body of `POST /v1/execute`; `-` is standard input.

    Raises: RequestFailure (REQUEST_INVALID).
    """
    return parse_request(read_json(file))


def read_json(file: Path) -> Any:
    """Return the JSON in a file; `-` is standard input. Raises: RequestFailure (REQUEST_INVALID)."""
    try:
        return loads(sys.stdin.buffer.read() if file == STANDARD_INPUT else file.read_bytes())
    except OSError as error:
        message = f"{file} cannot be read: {error.strerror}"
    except StrictJsonError as error:
        message = f"{file} is not acceptable JSON: {error.reason}"
    raise RequestFailure(Code.REQUEST_INVALID, message)


def parse_request(fields: Any) -> SystemRequest:
    """Return the request with these fields. Raises: RequestFailure (REQUEST_INVALID)."""
    try:
        return SystemRequest.model_validate_json(orjson.dumps(fields), strict=True)
    except ValidationError as invalid:
        schema = SystemRequest.model_json_schema()
        errors = invalid_fields(invalid.errors(), path_of=path_within(fields), schema=schema)
        failure = RequestFailure(Code.REQUEST_INVALID, "; ".join(map(str, errors)))
    raise failure


@value
class OutputOptions:
    """Options of the output: the answer goes to standard output, as text or JSON.

    Streamed tokens go to standard output too, or with JSON to standard error. With `quiet` no event is shown; a
    failure, a warning and what an execution waits for still go to standard error. `ask` asks the person at the terminal
    the questions of a suspended execution; without it the execution stays suspended.
    """

    stream: bool
    as_json: bool
    quiet: bool = False
    ask: Ask | None = None

    def view(self, request: SystemRequest) -> LiveView:
        """Return the view of the events; that of a plan in passes is a tree, unless tokens are streamed."""
        tokens, lines = (
            sys.stderr if self.as_json else sys.stdout,
            Console(stderr=True, highlight=False, quiet=self.quiet),
        )
        if request.plan is not None and request.plan.passes > 1 and not (self.stream or self.quiet):
            return PlanTreeView(lines, request)
        return LiveView(lines, tokens if self.stream else None)

    def write(self, response: SystemResponse, shown: str) -> None:
        """Write the answer, unless all of it was streamed already, and a warning if it is degraded."""
        if self.as_json:
            sys.stdout.write(response.model_dump_json(indent=2) + "\n")
        elif response.state is State.COMPLETE and not (self.stream and shown == response.content):
            write_answer(response, sys.stdout)
        if response.final_answer is not None and response.final_answer.is_degraded:
            print_degradation(Console(stderr=True), response.final_answer)


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
    view = output.view(request)
    async with open_service(settings_of_command(settings)) as service:
        handle = await service.facade.execute(request, LOCAL, CallOptions(subscribe=True))
        if isinstance(handle, ExecutionView | Accepted):
            raise AssertionError("an execution with a subscriber and without an Idempotency-Key starts at once")  # noqa: TRY004 - a bug, not a type error
        response = await _follow(handle, view)
        while response.state is State.SUSPENDED and output.ask is not None:
            response = await _follow(await _answer(service.facade.executions, response, output.ask), view)
    view.close()
    output.write(response, view.shown)
    return response


def exit_unless_complete(response: SystemResponse) -> None:
    """Describe a failure or what an execution waits for on standard error. Raises: typer.Exit with its code."""
    console = Console(stderr=True)
    if response.error is not None:
        print_failure(console, response.error.code, response.error.message)
        raise typer.Exit(EXIT_CODES[response.error.category])
    if response.state is State.SUSPENDED:
        for suspension in response.suspensions:
            console.print(Text(f"suspended: {describe_suspension(suspension)}"), soft_wrap=True)
        raise typer.Exit(SUSPENDED)


async def _answer(executions: Executions, response: SystemResponse, ask: Ask) -> ExecutionHandle:
    """Ask the person every open question, and return the execution, which continues after the last answer."""
    resumed: ExecutionHandle | ResumeAccepted | None = None
    for suspension in response.suspensions:
        resumed = None
        while resumed is None:
            resumed = await _resume(executions, response.request_id, suspension, ask_person(suspension, ask))
    if not isinstance(resumed, ExecutionHandle):
        raise AssertionError("an execution with an answer to every question continues")  # noqa: TRY004 - a bug, not a type error
    return resumed


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
