"""The tool `run_python`: code that a model writes, run by a Python interpreter in a box."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from portico.adapters.tools.external_tool import ExternalTool, ExternalToolFacts
from portico.adapters.tools.files.directories import FileDirectories, FileLimitError
from portico.adapters.tools.programs.program_tool import result_of
from portico.adapters.tools.sandbox.box import SEARCH_PATH, BoxError, ProcessLimits, find_program
from portico.adapters.tools.sandbox.levels import IsolatedProgram
from portico.adapters.tools.sandbox.run import ProgramRun, run_program
from portico.capabilities.tools.definition import ToolArgumentError
from portico.domain.fingerprints import digest
from portico.domain.tools import Availability, Caller, SideEffects
from portico.domain.value import replace, value
from portico.ports.tool import ToolContext, ToolError

MAX_CODE_BYTES: Final = 64 * 1024
_PARAMETERS: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"code": {"type": "string", "minLength": 1, "description": "Python code, which prints its result"}},
    "required": ["code"],
    "additionalProperties": False,
}
_DESCRIPTION: Final = "Run Python code and return what it prints."
_WITH_FILES: Final = " Its working directory has the files of this session; what it writes there stays."
_OPTIONS: Final = ("-I", "-B", "-")


@value
class PythonConfig:
    """Configuration of the tool: the interpreter, by its name on PATH or its path from `base`, its box and its limits.

    With `files` it runs in the caller's directory, else in its home. `timeout` is in seconds.
    """

    interpreter: str
    base: Path
    isolated: IsolatedProgram
    limits: ProcessLimits
    environment: Mapping[str, str]
    timeout: float
    files: FileDirectories | None = None


class PythonTool(ExternalTool):
    """Python code as a tool: each call is a process in a box that the kernel enforces, never at the level `limits`."""

    def __init__(self, config: PythonConfig) -> None:
        self._config = config
        isolated, files = config.isolated, config.files
        effects = SideEffects.NONE if files is None else SideEffects.WRITE
        facts = ExternalToolFacts(
            "run_python",
            _DESCRIPTION if files is None else _DESCRIPTION + _WITH_FILES,
            _PARAMETERS,
            SideEffects.EXTERNAL if isolated.box.network else effects,
            idempotent=False,
            timeout=config.timeout,
        )
        root = None if files is None else str(files.root)
        super().__init__(
            facts,
            "python",
            identity=digest("run_python", config.interpreter, root, isolated.network, isolated.is_enforced),
            containment=isolated.containment(),
            isolation=isolated.level_in_force,
            network=isolated.network,
        )
        self._info = replace(self._info, repeatable=not isolated.box.network)

    def available(self) -> Availability:
        """Return whether the interpreter can be started here, and why not."""
        isolated = self._config.isolated
        reason = isolated.refusal()
        if not reason and not isolated.is_enforced:
            reason = "code of models never runs at the level limits"
        if not reason and self._path() is None:
            reason = f"{self._config.interpreter} is not installed"
        return Availability(available=not reason, reason=reason)

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Run the code and return what it prints.

        Raises: ToolArgumentError for code that is too long or no Unicode; ToolError if it cannot be started, exits with
        another code than 0, or exceeds a limit.
        """
        code, path = _code(arguments["code"]), self._path()
        if path is None:
            raise ToolError(f"{self._config.interpreter} is not installed")
        run = ProgramRun(
            command=(path, *_OPTIONS),
            run=context.idempotency_key,
            isolated=self._config.isolated,
            environment=self._config.environment,
            limits=self._config.limits,
            given=code,
        )
        files = self._config.files
        if files is not None:
            run = _in_directory(run, files, _caller(context))
        try:
            end = await run_program(run)
        except BoxError as cause:
            raise ToolError(f"the box could not be made: {cause}") from cause
        except OSError as cause:
            raise ToolError(f"the program could not be started: {os.strerror(cause.errno or 0)}") from cause
        excess = None if run.quota is None or end.exceeded else run.quota()
        return result_of(end if excess is None else replace(end, exceeded=excess), frozenset({0}))

    def _path(self) -> str | None:
        return find_program(
            self._config.interpreter, self._config.environment.get("PATH", SEARCH_PATH), self._config.base
        )


def _in_directory(run: ProgramRun, files: FileDirectories, caller: Caller) -> ProgramRun:
    """Return the run in the caller's directory, to which it may add what is left of its quota."""
    directory = files.made(caller)

    def excess() -> str | None:
        try:
            size, entries = files.space_left(directory)
        except FileLimitError as limit:
            return f"its files: {limit}"
        except FileNotFoundError:
            return "its directory was deleted"
        if size < 0:
            return f"its files have more than {files.limits.bytes} bytes"
        return f"it made more than {files.limits.entries} files and directories" if entries < 0 else None

    if (before := excess()) is not None:
        raise ToolError(f"the quota is used up, delete files first: {before}")
    box = replace(run.isolated.box, directory=directory, writable=(*run.isolated.box.writable, directory))
    return replace(run, isolated=replace(run.isolated, box=box), quota=excess)


def _caller(context: ToolContext) -> Caller:
    if context.caller is None:
        raise ToolError("files belong to a session or an execution, and this call is of neither")
    return context.caller


def _code(text: str) -> bytes:
    try:
        code = text.encode()
    except UnicodeEncodeError:
        raise ToolArgumentError((("arguments.code", "must be valid Unicode"),)) from None
    if len(code) > MAX_CODE_BYTES:
        raise ToolArgumentError((("arguments.code", f"must have at most {MAX_CODE_BYTES} bytes"),))
    return code
