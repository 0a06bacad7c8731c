"""Executions of a server at the terminal: started or followed there, shown and answered here."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from pydantic import JsonValue
from rich.console import Console

from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import SuspensionKind, SystemResponse
from portico.domain.failures import Code, RequestFailure
from portico.domain.lifecycle import State
from portico.domain.value import value
from portico.entrypoints.cli.clients.execution_client import ExecutionClient
from portico.entrypoints.cli.clients.wire_events import read_event
from portico.entrypoints.cli.display.live_view import LiveView
from portico.entrypoints.cli.display.suspension_prompt import ask_person
from portico.entrypoints.cli.display.terminal import print_failure
from portico.entrypoints.cli.output import OutputOptions
from portico.settings import client_key


def execute_remotely(url: str, key_file: Path | None, request: SystemRequest, output: OutputOptions) -> SystemResponse:
    """Run the request on the server to its end and write the answer; Ctrl-C cancels it. Raises: Failure."""
    view = output.view(request)
    with ExecutionClient.open(url, client_key(key_file)) as client:
        seen = _Seen(view)
        response = client.execute(request, seen.show)
        while response.state is State.SUSPENDED and output.ask is not None:
            for suspension in response.suspensions:
                answered = False
                while not answered:
                    payload = ask_person(suspension, output.ask)
                    try:
                        client.answer(response.request_id, suspension, payload)
                        answered = True
                    except RequestFailure as misfit:
                        if misfit.code is not Code.REQUEST_INVALID:
                            raise
                        print_failure(Console(stderr=True), misfit.code, misfit.message)
            response = client.follow(response.request_id, seen.number, seen.show)
    view.end_line()
    view.close()
    output.write(response, view.shown)
    return response


def start_later(url: str, key_file: Path | None, request: SystemRequest) -> str:
    """Let the server start the request at its time, and return the id of the execution. Raises: Failure."""
    with ExecutionClient.open(url, client_key(key_file)) as client:
        return client.start_later(request)


def tail(url: str, key_file: Path | None, request_id: str, after: int, output: OutputOptions) -> SystemResponse | None:
    """Follow an execution to its end or its next suspension, and return its response; None if Ctrl-C ends the view.

    Raises: Failure.
    """
    with ExecutionClient.open(url, client_key(key_file)) as client:
        return _follow(client, request_id, after, output)


@value
class Answer:
    """An answer to a suspension of one of the `kinds`, of the named one if an id is given."""

    payload: JsonValue
    kinds: Sequence[SuspensionKind]
    suspension_id: str | None


def resume(
    url: str, key_file: Path | None, request_id: str, answer: Answer, output: OutputOptions
) -> SystemResponse | None:
    """Answer an open suspension and follow the execution; return its response.

    None if it is another user's, who alone sees how it goes on, or if Ctrl-C ends the view. Raises: Failure.
    """
    with ExecutionClient.open(url, client_key(key_file)) as client:
        suspension = client.open_suspension(request_id, answer.suspension_id, answer.kinds)
        try:
            before = client.show(request_id).events
        except RequestFailure as hidden:
            if hidden.code is not Code.REQUEST_NOT_FOUND:
                raise
            client.answer(request_id, suspension, answer.payload)
            return None
        client.answer(request_id, suspension, answer.payload)
        response = client.show(request_id).response
        if response is not None and response.state is State.SUSPENDED:
            return response
        return _follow(client, request_id, before, output)


def _follow(client: ExecutionClient, request_id: str, after: int, output: OutputOptions) -> SystemResponse | None:
    view = output.live_view()
    try:
        response = client.follow(request_id, after, _write_line if output.as_json else _Seen(view).show)
    except KeyboardInterrupt:
        view.end_line()
        return None
    view.end_line()
    if not output.as_json:
        output.write(response, view.shown)
    return response


class _Seen:
    """Events that were shown; `number` is that of the last one."""

    def __init__(self, view: LiveView) -> None:
        self.number = 0
        self._view = view

    def show(self, data: Mapping[str, Any]) -> None:
        """Show one event; one that only a newer server knows is not shown."""
        self.number = max(self.number, data.get("sequence_number", 0))
        item = read_event(data)
        if item is not None:
            self._view.show(item)


def _write_line(data: Mapping[str, Any]) -> None:
    sys.stdout.write(orjson.dumps(data).decode() + "\n")
    sys.stdout.flush()
