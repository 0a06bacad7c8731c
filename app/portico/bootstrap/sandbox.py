"""Boxes of configured programs: the level of each, and its paths, which must not open what the service protects."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from portico.adapters.tools.sandbox.box import FORBIDDEN_ROOTS, Box
from portico.adapters.tools.sandbox.levels import IsolatedProgram, Sandbox, try_levels
from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.tools import IsolationLevel, NetworkAccess, SideEffects
from portico.settings import Settings
from portico.settings.tables.tool_sources import ChildSettings, McpServerSettings, ProgramSettings


def open_sandbox(settings: Settings) -> Sandbox | None:
    """Return the levels of isolation that start here, each tried once; None if no program and no code is configured."""
    if not settings.tools.has_boxes:
        return None
    bubblewrap = settings.tools.sandbox.bubblewrap
    if "/" in bubblewrap:
        bubblewrap = str(settings.directory.absolute() / bubblewrap)
    return Sandbox(bubblewrap, try_levels(bubblewrap))


def network_warnings(settings: Settings) -> Iterator[str]:
    """Yield a warning for each program that reaches all that the service reaches."""
    for key, table in settings.tools.programs():
        if table.network is NetworkAccess.OPEN:
            yield f"{key}.network: it reaches all that the service reaches, loopback and metadata services included"


def isolated(key: str, table: ChildSettings, settings: Settings, sandbox: Sandbox) -> IsolatedProgram:
    """Return the program's box, and the level at which it runs. Raises: ConfigurationFailure (CONFIG_INVALID)."""
    chosen = table.isolation or settings.tools.sandbox.isolation
    if table.require_isolation and chosen == "limits":
        raise _invalid(f"{key}.require_isolation", "cannot be kept at the level limits")
    is_open = table.network is NetworkAccess.OPEN
    if is_open and isinstance(table, ProgramSettings) and table.side_effects is SideEffects.NONE:
        raise _invalid(f"{key}.network", 'must be "none" for a tool without side effects')
    directory, protected = table.directory(settings.directory), settings.protected_files
    readable = [_path(f"{key}.read_paths.{index}", path, settings) for index, path in enumerate(table.read_paths)]
    writable = [
        _path(f"{key}.write_paths.{index}", path, settings, writes=True) for index, path in enumerate(table.write_paths)
    ]
    if directory is not None:
        writes = _writes_directory(table)
        directory = _path(f"{key}.working_dir", str(directory), settings, writes=writes)
        (writable if writes else readable).append(directory)
    box = Box(tuple(readable), tuple(writable), directory, network=is_open, protected=tuple(protected))
    level = None if chosen == "auto" else IsolationLevel(chosen)
    return IsolatedProgram(sandbox, box, table.written_bytes, level, is_required=table.require_isolation)


def isolated_interpreter(sandbox: Sandbox) -> IsolatedProgram:
    """Return the box of the interpreter of code, at the strongest level: it reads and writes nothing."""
    return IsolatedProgram(sandbox, Box(), written_bytes=0)


def _writes_directory(table: ChildSettings) -> bool:
    """Return True if the program may write its working directory: its declared side effects say so."""
    return isinstance(table, ProgramSettings) and table.side_effects in {SideEffects.WRITE, SideEffects.EXTERNAL}


def _path(key: str, given: str, settings: Settings, *, writes: bool = False) -> Path:
    """Return the path without links. Raises: ConfigurationFailure (CONFIG_INVALID) for one that no box may open."""
    path = (settings.directory / given).resolve()
    if not path.exists():
        raise _invalid(key, "does not exist")
    if path in FORBIDDEN_ROOTS:
        raise _invalid(key, f"must not be {path}")
    root = settings.files_root
    if root is not None and (root.is_relative_to(path) or path.is_relative_to(root)):
        raise _invalid(key, "must not contain the root of tools.files, or lie beneath it")
    protected = settings.protected_files if not writes else (*settings.protected_files, *_code_files(settings))
    for each in protected:
        if each.is_relative_to(path):
            what = "written" if writes and each not in settings.protected_files else "opened"
            raise _invalid(key, f"must not be {what} to a program, since {each.name} is in it")
    return path


def _code_files(settings: Settings) -> Iterator[Path]:
    """Yield what the service runs or reads as its own: modules, skills, and the programs of tools."""
    directory = settings.directory
    tools = settings.tools
    for module in (*tools.modules, *settings.plan.modules, *settings.rules.modules, *settings.flows.modules):
        path = directory / module.replace(".", "/")
        yield from (each.resolve() for each in (path, path.with_suffix(".py")) if each.exists())
    if settings.skills.directory is not None:
        yield Path(settings.skills.directory).resolve()
    commands: list[Mapping[str, ProgramSettings] | Mapping[str, McpServerSettings]] = [tools.cli, tools.mcp]
    for tables in commands:
        for table in tables.values():
            if table.command and "/" in table.command[0]:
                start = table.directory(directory) or directory
                yield (start / table.command[0]).resolve()
    for program in (tools.sandbox.bubblewrap, "" if tools.python is None else tools.python.interpreter):
        if "/" in program:
            yield (directory / program).resolve()


def _invalid(key: str, message: str) -> ConfigurationFailure:
    return ConfigurationFailure(Code.CONFIG_INVALID, f"{key}: {message}")
