"""Requests at the command line: made of options, or read from a file."""

import sys
from pathlib import Path
from typing import Any, Final

import orjson
from pydantic import ValidationError

from portico.domain.contract.request import SystemRequest
from portico.domain.failures import Code, RequestFailure
from portico.domain.field_errors import invalid_fields, path_within
from portico.domain.lifecycle import Mode
from portico.domain.strict_json import StrictJsonError, loads
from portico.domain.value import value

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
    run_at: str | None = None

    def request(self) -> SystemRequest:
        """Return the request. Raises: RequestFailure (REQUEST_INVALID)."""
        texts = [("system", self.system), ("user", self.text)]
        messages = [{"role": role, "content": content} for role, content in texts if content is not None]
        fields: dict[str, Any] = {"messages": messages, "model": self.model, "tools": self.tools or None}
        usual = Mode.PLAN if self.passes is not None else None if self.schema is None else Mode.STRUCTURED
        mode = self.mode or usual
        if mode is not None:
            fields["mode"] = mode
        if self.run_at is not None:
            fields["run_at"] = self.run_at
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


def read_flow_request(name: str, file: Path) -> SystemRequest:
    """Return the request that runs a flow with the input in a file. Raises: RequestFailure (REQUEST_INVALID)."""
    return parse_request({"mode": Mode.FLOW, "flow": {"name": name, "input": read_json(file)}})


def read_text() -> str:
    """Return the text of standard input, without the line end at its end.

    Raises: RequestFailure (REQUEST_INVALID) if it is not UTF-8.
    """
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        message = "standard input is not UTF-8"
    raise RequestFailure(Code.REQUEST_INVALID, message)


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
