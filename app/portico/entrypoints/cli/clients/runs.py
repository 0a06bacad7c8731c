"""Executions of a server as lists, facts, traces and steps, and their cancellation."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson
from rich.console import Console
from rich.text import Text

from portico.entrypoints.cli.clients.execution_client import ExecutionClient
from portico.entrypoints.cli.display.live_view import write_text
from portico.entrypoints.cli.display.suspension_prompt import question_text
from portico.entrypoints.cli.display.table import write_table
from portico.entrypoints.cli.display.terminal import printable
from portico.settings import client_key

_LISTED: Final = ("request_id", "state", "mode", "agent", "session_id", "created_at", "tokens", "duration", "title")
_FACTS: Final = ("state", "mode", "agent", "session_id", "model", "created_at", "events", "last_step")
_ATTEMPT: Final = ("segment", "step_name", "provider", "model", "tokens_in", "tokens_out", "finish_reason")
_CALL: Final = ("tool_call_id", "step_name", "tool_name", "success", "error_code", "duration_ms")
_STEP: Final = ("key", "kind", "step_name", "provider", "started_at", "duration_ms", "cost")


def write_executions(url: str, key_file: Path | None, query: dict[str, str], limit: int, *, as_json: bool) -> None:
    """Write the executions that the query selects, as a table or one JSON object per line. Raises: Failure."""
    with ExecutionClient.open(url, client_key(key_file)) as client:
        found = [*client.page_through({**query, "view": "summary"}, limit)]
    _write_rows(_LISTED, found, as_json=as_json)


def write_execution(url: str, key_file: Path | None, request_id: str, *, as_json: bool, quiet: bool) -> None:
    """Write the answer to standard output, the facts and what it waits for to standard error. Raises: Failure."""
    with ExecutionClient.open(url, client_key(key_file)) as client:
        document = client.document(request_id)
    if as_json:
        _write_json(document)
        return
    view: dict[str, Any] = orjson.loads(document)
    console = Console(stderr=True, highlight=False, quiet=quiet)
    for name in _FACTS:
        console.print(Text(printable(f"{name}: {_cell(view.get(name))}")), soft_wrap=True)
    for each in view["suspensions"]:
        question = question_text(f"{each['kind']} {each['suspension_id']} of {each['tool_id']}", each["value"])
        console.print(Text(f"suspended: {question}"), soft_wrap=True)
    response = view["response"] or {}
    if response.get("error"):
        error = response["error"]
        console.print(Text(printable(f"{error['code']}: {error['message']}")), soft_wrap=True)
    if response.get("content"):
        write_text(response["content"], sys.stdout)


def write_trace(url: str, key_file: Path | None, request_id: str, *, as_json: bool) -> None:
    """Write the attempts and the tool calls of an execution as two tables, or its trace as JSON. Raises: Failure."""
    with ExecutionClient.open(url, client_key(key_file)) as client:
        document = client.document(request_id, "/trace")
    if as_json:
        _write_json(document)
        return
    trace = orjson.loads(document)
    _write_rows(_ATTEMPT, trace["attempts"], as_json=False)
    if trace["tool_calls"]:
        sys.stdout.write("\n")
        _write_rows(_CALL, trace["tool_calls"], as_json=False)


def write_steps(url: str, key_file: Path | None, request_id: str, *, as_json: bool) -> None:
    """Write the recorded steps of an execution, as a table in brief or one JSON object per line. Raises: Failure."""
    with ExecutionClient.open(url, client_key(key_file)) as client:
        document = client.document(request_id, "/steps", {} if as_json else {"view": "summary"})
    _write_rows(_STEP, orjson.loads(document)["data"], as_json=as_json)


def cancel_executions(url: str, key_file: Path | None, ids: Sequence[str], *, as_json: bool) -> None:
    """Cancel the executions one after the other, and write the state of each. Raises: Failure at the first unknown."""
    with ExecutionClient.open(url, client_key(key_file)) as client:
        for request_id in ids:
            state = client.request_cancel(request_id)
            line = {"request_id": request_id, "state": state}
            sys.stdout.write(f"{orjson.dumps(line).decode()}\n" if as_json else f"{printable(request_id)}  {state}\n")


def _write_json(document: bytes) -> None:
    sys.stdout.write(orjson.dumps(orjson.loads(document), option=orjson.OPT_INDENT_2).decode() + "\n")


def _write_rows(columns: Sequence[str], found: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write("".join(orjson.dumps(each).decode() + "\n" for each in found))
    else:
        names = [name.replace("_", " ") for name in columns]
        write_table([names, *([_cell(each.get(name)) for name in columns] for each in found)])


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case str():
            return value
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.1f}"
        case {"amount": amount, "currency": currency}:
            return f"{amount} {currency}"
        case _:
            return orjson.dumps(value).decode()
