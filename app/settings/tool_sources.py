"""Tools of the configuration that need no Python: programs and HTTP APIs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, StringConstraints

from app.domain.contract.messages import TOOL_NAME_PATTERN
from app.domain.json_path import PathStep, parse
from app.domain.tools import SideEffects
from app.settings.connection import HeadersFromFile
from app.settings.values import SecretFromVariable, Table

_KIB: Final = 1024
_MIB: Final = 1024 * 1024


def _parameters(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if schema.get("type") != "object" or not isinstance(schema.get("properties", {}), Mapping):
        raise ValueError('must be a JSON Schema of an object: { type = "object", properties = { … } }')
    return schema


def _path(text: str) -> str:
    parse(text)
    return text


def _word(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain NUL")
    return text


ToolName = Annotated[str, StringConstraints(pattern=TOOL_NAME_PATTERN)]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
Word = Annotated[str, AfterValidator(_word)]
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class ExternalToolSettings(Table):
    """A tool outside of this process. Without further words it is taken for one that acts on the outside world."""

    description: Annotated[str, Field(min_length=1)] = Field(description="Description that the model reads")
    parameters: Annotated[Mapping[str, Any], AfterValidator(_parameters)] = Field(
        default_factory=lambda: {"type": "object", "properties": {}}, description="JSON Schema of the arguments"
    )
    side_effects: Annotated[SideEffects, Field(strict=False)] = Field(
        SideEffects.EXTERNAL, description="`none`, `read`, `write`, or `external`, whose calls wait for approval"
    )
    idempotent: bool = Field(False, description="True if a second call has no further effect")
    timeout: Seconds = Field(30, description="Seconds after which a call is given up")


class ProgramSettings(ExternalToolSettings):
    """A program as a tool."""

    command: Annotated[tuple[Word, ...], Field(min_length=1, strict=False)] = Field(
        description="Program and its arguments; `{name}` is the argument of that name, no shell is involved"
    )
    working_dir: Annotated[str, Field(min_length=1)] = Field(
        ".", description="Directory in which it runs; a relative one begins at the configuration file"
    )
    ok_exit_codes: Annotated[tuple[int, ...], Field(min_length=1, strict=False)] = Field(
        (0,), description="Exit codes of a success"
    )
    env: Mapping[VariableName, Word] = Field(
        default_factory=dict, description="Variables of its environment, beside PATH, LANG and TZ"
    )
    env_from: Mapping[VariableName, SecretFromVariable] = Field(
        default_factory=dict, description="Variables that take their value from one of the service's, by its name"
    )
    output_limit: Count = Field(256 * _KIB, description="Bytes of output that a result has: its beginning and its end")
    memory: Count = Field(1024 * _MIB, description="Bytes of memory that a process may have")
    processes: Count = Field(64, description="Processes that a call may have at the same time")
    open_files: Count = Field(256, description="Files that a process may have open")
    file_bytes: Count = Field(64 * _MIB, description="Bytes that a file may have that it writes")
    cpu_seconds: Seconds | None = Field(None, description="Seconds of CPU time of a process; by default `timeout`")
    require_isolation: bool = Field(False, description="True if it may only run isolated, which is not available yet")

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a call: the inherited variables, and those of the configuration."""
        secrets = {name: secret.read() or "" for name, secret in self.env_from.items()}
        return {**inherited, **self.env, **secrets}

    def directory(self, base: Path) -> Path:
        """Return the directory in which the program runs."""
        return (base / self.working_dir).absolute()


class HttpToolSettings(ExternalToolSettings):
    """An HTTP API as a tool."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = Field("GET", description="Method of the request")
    url: Annotated[str, Field(min_length=1)] = Field(
        description="URL; `{name}` in its path or query is the argument of that name"
    )
    headers_file: HeadersFromFile | None = Field(
        None, description="File of request headers, one `Name: value` a line; it is read again when it changes"
    )
    select: Annotated[str, AfterValidator(_path)] | None = Field(
        None, description="JSON path of the part of the reply that is the result, such as `$.days[0].high`"
    )
    max_bytes: Count = Field(_MIB, description="Bytes that a reply may have")
    allow_private: bool = Field(False, description="True if the host may be on loopback or in a private network")

    @property
    def selected(self) -> tuple[PathStep, ...] | None:
        """Return the steps of `select`."""
        return None if self.select is None else parse(self.select)
