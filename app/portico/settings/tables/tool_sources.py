"""Tools of the configuration: Python modules, programs and their isolation, files, HTTP APIs and MCP servers."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator, StringConstraints, model_validator

from portico.domain.contract.messages import TOOL_NAME_PATTERN
from portico.domain.json_path import PathStep, parse
from portico.domain.tools import AGENT_TOOL_PREFIX, NetworkAccess, SideEffects
from portico.domain.value import value
from portico.settings.tables.connection import HeadersFromFile
from portico.settings.tables.modules import ModuleNames
from portico.settings.values import BaseUrl, Secret, SecretFromVariable, Table

_KIB: Final = 1024
_MIB: Final = 1024 * 1024
_VARIABLE: Final = re.compile(r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")
_HOST: Final = re.compile(r"^(\*\.)?[A-Za-z0-9]([A-Za-z0-9.:-]{0,251}[A-Za-z0-9])?$")
_COMPOSITION: Final = ("$ref", "allOf", "anyOf", "oneOf")
"""Keywords under which a schema may declare properties that `additionalProperties` beside them does not know."""


def _parameters(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema, which refuses undeclared properties unless it says otherwise. Raises: ValueError."""
    if schema.get("type") != "object" or not isinstance(schema.get("properties", {}), Mapping):
        raise ValueError('must be a JSON Schema of an object: { type = "object", properties = { … } }')
    if any(name.startswith(("caller.", "metadata.")) for name in schema.get("properties", {})):
        raise ValueError("must have no property `caller.…` or `metadata.…`: these places are for facts of the caller")
    if "additionalProperties" in schema:
        return schema
    for keyword in _COMPOSITION:
        if keyword in schema:
            raise ValueError(f"has {keyword}, so it must say additionalProperties: true or false")
    return {**schema, "additionalProperties": False}


def _path(text: str) -> str:
    parse(text)
    return text


def _word(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain NUL")
    return text


def _server_name(name: str) -> str:
    if f"{name}__" == AGENT_TOOL_PREFIX:
        raise ValueError("must have another name: agents are tools under this one")
    return name


@value
class EnvironmentFile:
    """Variables of an environment in a file, one `NAME=value` a line, read at start."""

    path: Path
    variables: Mapping[str, Secret]


def _environment_file(given: object) -> EnvironmentFile:
    if isinstance(given, EnvironmentFile):
        return given
    if not isinstance(given, str) or not given or "\0" in given:
        raise ValueError("must be the path of a file")
    try:
        lines = Path(given).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ValueError(f"names a file that cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError("names a file that is not UTF-8") from None
    pairs = [line.partition("=") for line in lines if line.strip() and not line.startswith("#")]
    if not all(equals and _VARIABLE.fullmatch(name) and "\0" not in value for name, equals, value in pairs):
        raise ValueError("names a file that must have one `NAME=value` a line")
    return EnvironmentFile(Path(given), {name: Secret(value) for name, _, value in pairs})


def _file_text(_: object) -> str:
    return "(file)"


EnvironmentFromFile = Annotated[
    EnvironmentFile,
    PlainValidator(_environment_file, json_schema_input_type=str),
    PlainSerializer(_file_text, return_type=str),
]
ToolName = Annotated[str, StringConstraints(pattern=TOOL_NAME_PATTERN)]
VariableName = Annotated[str, StringConstraints(pattern=_VARIABLE)]
ServerName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,24}$"), AfterValidator(_server_name)]
HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")]
HeaderText = Annotated[str, StringConstraints(pattern=r"^[ -~]*$", max_length=1024)]
Word = Annotated[str, AfterValidator(_word)]
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Isolation = Literal["auto", "bubblewrap", "landlock", "limits"]
Paths = Annotated[
    tuple[Annotated[str, StringConstraints(min_length=1), AfterValidator(_word)], ...], Field(strict=False)
]


class ExternalToolSettings(Table):
    """A tool outside of this process. Without further words it is taken for one that acts on the outside world."""

    description: Annotated[str, Field(min_length=1)] = Field(description="Description that the model reads")
    parameters: Annotated[Mapping[str, Any], AfterValidator(_parameters)] = Field(
        default_factory=lambda: _parameters({"type": "object", "properties": {}}),
        description="JSON Schema of the arguments; without `additionalProperties` others are refused",
    )
    side_effects: Annotated[SideEffects, Field(strict=False)] = Field(
        SideEffects.EXTERNAL, description="`none`, `read`, `write`, or `external`, whose calls wait for approval"
    )
    idempotent: bool = Field(False, description="True if a second call has no further effect")
    timeout: Seconds = Field(30, description="Seconds after which a call is given up")


class SandboxSettings(Table):
    """Isolation of the programs that tools start, where a program has no setting of its own."""

    isolation: Isolation = Field(
        "auto", description="Level of isolation; `auto` is the strongest that starts here: bubblewrap, landlock, limits"
    )
    bubblewrap: Word = Field(
        "bwrap", description="Name on PATH, or path, of bubblewrap; a relative one begins at the configuration file"
    )


class ChildSettings(Table):
    """Box, directory and environment of a program that the service starts."""

    isolation: Isolation | None = Field(
        None, description="Level of isolation, without fallback unless it is `auto`; by default that of [tools.sandbox]"
    )
    require_isolation: bool = Field(
        False, description="True if it is unavailable where only the level `limits` is in force"
    )
    network: Annotated[NetworkAccess, Field(strict=False)] = Field(
        NetworkAccess.NONE, description="`none`, or `open`: it reaches all that the service reaches"
    )
    read_paths: Paths = Field((), description="Files and directories that it may read, beside the system's and its own")
    write_paths: Paths = Field((), description="Directories that it may write")
    written_bytes: Count = Field(256 * _MIB, description="Bytes that a run may write to disk")
    working_dir: Annotated[str, Field(min_length=1)] | None = Field(
        None,
        description="Directory in which it runs; a relative one begins at the configuration file. By default its home,"
        " which is empty and new for each run",
    )
    env: Mapping[VariableName, Word] = Field(
        default_factory=dict, description="Variables of its environment, beside PATH, LANG and TZ"
    )
    env_from: Mapping[VariableName, SecretFromVariable] = Field(
        default_factory=dict, description="Variables that take their value from one of the service's, by its name"
    )
    env_file: EnvironmentFromFile | None = Field(
        None, description="File of further variables, one `NAME=value` a line, read at start"
    )

    def secrets(self) -> dict[str, str]:
        """Return the variables whose values are secret."""
        from_file = {} if self.env_file is None else self.env_file.variables
        return {name: secret.read() or "" for name, secret in {**from_file, **self.env_from}.items()}

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the program: the inherited variables, and those of the configuration."""
        return {**inherited, **self.env, **self.secrets()}

    def directory(self, base: Path) -> Path | None:
        """Return the directory in which the program runs; None for its home."""
        return None if self.working_dir is None else (base / self.working_dir).absolute()


class RunSettings(ChildSettings):
    """Limits of a program that is started for each call."""

    output_limit: Count = Field(256 * _KIB, description="Bytes of output that a result has: its beginning and its end")
    memory: Count = Field(1024 * _MIB, description="Bytes of memory that a call may have, and each of its processes")
    processes: Count = Field(64, description="Processes that a call may have at the same time")
    open_files: Count = Field(256, description="Files that a process may have open")
    file_bytes: Count = Field(64 * _MIB, description="Bytes that a file may have that it writes")
    cpu_seconds: Seconds | None = Field(None, description="Seconds of CPU time of a process; by default `timeout`")


class ProgramSettings(ExternalToolSettings, RunSettings):
    """A program as a tool."""

    command: Annotated[tuple[Word, ...], Field(min_length=1, strict=False)] = Field(
        description="Program and its arguments; a relative path begins at its `working_dir`, or at the configuration"
        " file; `{name}` is the argument of that name, `{caller.user}` and"
        " `{metadata.NAME}` are facts of the caller, no shell is involved"
    )
    ok_exit_codes: Annotated[tuple[int, ...], Field(min_length=1, strict=False)] = Field(
        (0,), description="Exit codes of a success"
    )
    pass_caller: bool = Field(
        False, description="True if its environment says for whom it acts: `PORTICO_TENANT`, `PORTICO_USER`, …"
    )
    credentials: Mapping[VariableName, str] = Field(
        default_factory=dict, description="Variables that have the value of a credential, by the name of its table"
    )


class PythonSettings(RunSettings):
    """Code of models, run by a Python interpreter in the directory of the caller's files, or in its home."""

    interpreter: Word = Field(
        "python3",
        description="Name on PATH, or path, of the Python interpreter; a relative one begins at the configuration file",
    )
    timeout: Seconds = Field(30, description="Seconds after which a call is given up")

    @model_validator(mode="after")
    def _check_python(self) -> Self:
        if self.isolation == "limits":
            raise ValueError("must not run at the level limits")
        if self.working_dir is not None:
            raise ValueError("runs in the directory of the caller, so working_dir has no meaning")
        return self


class CodeSettings(Table):
    """Code of models that calls tools, run by an interpreter without system calls of its own."""

    replace_tools: bool = Field(
        False, description="Offer `run_code` instead of the tools that it calls, with their signatures"
    )
    workers: Annotated[int, Field(ge=1, le=64)] = Field(
        4, description="Calls whose interpreters may be there at the same time; others wait"
    )


class FileSettings(Table):
    """Files that tools keep for their callers."""

    root: Annotated[str, Field(min_length=1), AfterValidator(_word)] = Field(
        description="Directory of all files; a relative one begins at the configuration file. It is made if need be"
    )
    scope: Literal["session", "tenant"] = Field(
        "session", description="`session`: each has a directory of its own; `tenant`: all of a tenant share one"
    )
    max_file_bytes: Count = Field(_MIB, description="Bytes that a file may have")
    quota_bytes: Count = Field(64 * _MIB, description="Bytes that all files of a directory of the scope may have")
    quota_files: Count = Field(1024, description="Files and directories that a directory of the scope may have")


def _host(name: str) -> str:
    if name != "*" and _HOST.fullmatch(name) is None:
        raise ValueError("must be the name of a host, `*.` before a name, or `*`")
    return name


HostPatterns = Annotated[tuple[Annotated[str, AfterValidator(_host)], ...], Field(strict=False)]


class HttpGetSettings(Table):
    """GET requests to URLs that models choose."""

    hosts: HostPatterns = Field(
        (),
        description="Hosts that may be asked, such as `docs.example.com`, `*.example.org` or `*`; without any,"
        " each call waits for approval",
    )
    max_bytes: Count = Field(_MIB, description="Bytes that a reply may have")
    timeout: Seconds = Field(30, description="Seconds after which a call is given up")


class HttpToolSettings(ExternalToolSettings):
    """An HTTP API as a tool."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = Field("GET", description="Method of the request")
    url: Annotated[str, Field(min_length=1)] = Field(
        description="URL; `{name}` in its path or query is the argument of that name, `{caller.user}` and"
        " `{metadata.NAME}` are facts of the caller"
    )
    headers: Mapping[HeaderName, HeaderText] = Field(
        default_factory=dict,
        description="Request headers; `{caller.user}` and `{metadata.NAME}` are facts of the caller, empty if absent",
    )
    headers_file: HeadersFromFile | None = Field(
        None, description="File of request headers, one `Name: value` a line; it is read again when it changes"
    )
    credential: str | None = Field(
        None, description="Credential that is sent to the host of the URL, with https or with allow_private"
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


class McpServerSettings(ChildSettings):
    """An MCP server whose tools are taken: a program that is started, or a server that runs."""

    command: Annotated[tuple[Word, ...], Field(strict=False)] = Field(
        (),
        description="Program that is started and speaks over its standard input and output; a relative path begins at"
        " its `working_dir`, or at the configuration file",
    )
    url: BaseUrl | None = Field(None, description="URL of a server that runs and speaks streamable HTTP")
    headers_file: HeadersFromFile | None = Field(
        None, description="File of request headers, one `Name: value` a line; it is read again when it changes"
    )
    credential: str | None = Field(
        None, description="Credential that is sent to the URL: client credentials, or a secret of the service alone"
    )
    trusted: bool = Field(
        False, description="True if its hints about side effects are believed; else every call waits for approval"
    )
    allow: Annotated[tuple[str, ...], Field(strict=False)] | None = Field(
        None, description="Names of its tools that are taken, as the server names them; all by default"
    )
    timeout: Seconds = Field(30, description="Seconds after which a call is given up")
    pass_caller: bool = Field(
        False, description="True if each call says for whom it acts, as `portico/caller` in its `_meta`"
    )

    @model_validator(mode="after")
    def _check_transport(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("must have either a command or a url")
        given = [key for key in ChildSettings.model_fields if key in self.model_fields_set]
        if self.url and given:
            raise ValueError(f"has a url, so {given[0]} has no meaning")
        if self.command and self.headers_file is not None:
            raise ValueError("has a command, so headers_file has no meaning")
        if self.command and self.credential is not None:
            raise ValueError("has a command, so credential has no meaning: it needs a url")
        return self


class ToolSettings(Table):
    """Tools: Python modules that define them, programs, HTTP APIs and MCP servers."""

    modules: ModuleNames = Field(
        (), description="Python modules that define tools; the directory of the configuration file is importable"
    )
    threads: Annotated[int, Field(ge=1)] = Field(
        32, description="Blocking functions of tools that run at the same time, those included that never return"
    )
    show_exceptions: bool = Field(
        False, description="Let models read the text of an exception that a tool raised; else they read its type"
    )
    sandbox: SandboxSettings = Field(
        default_factory=SandboxSettings, description="Isolation of programs that have no setting of their own"
    )
    files: FileSettings | None = Field(None, description="Files that tools keep; without it there are no such tools")
    http_get: HttpGetSettings | None = Field(
        None, description="Requests to URLs that models choose; without it there are none"
    )
    python: PythonSettings | None = Field(None, description="The tool `run_python`; without it there is none")
    code: CodeSettings | None = Field(
        None, description="The tool `run_code`, which needs the optional package `portico[code]`"
    )
    cli: Mapping[ToolName, ProgramSettings] = Field(default_factory=dict, description="Programs, by tool name")
    http: Mapping[ToolName, HttpToolSettings] = Field(default_factory=dict, description="HTTP APIs, by tool name")
    mcp: Mapping[ServerName, McpServerSettings] = Field(default_factory=dict, description="MCP servers, by name")

    def programs(self) -> Iterator[tuple[str, ChildSettings]]:
        """Yield the key and the table of each program that tools start."""
        yield from ((f"tools.cli.{name}", table) for name, table in self.cli.items())
        yield from ((f"tools.mcp.{name}", table) for name, table in self.mcp.items() if table.command)
        if self.python is not None:
            yield "tools.python", self.python

    @property
    def has_boxes(self) -> bool:
        """Return True if a tool runs a program, or code."""
        return self.code is not None or any(True for _ in self.programs())
