"""Composition of the tools that run programs, and code, in a box; loaded only if the configuration has one."""

from portico.adapters.tools.code.installed import installed_interpreter
from portico.adapters.tools.code.interpreter import MontyInterpreter
from portico.adapters.tools.files.directories import FileDirectories
from portico.adapters.tools.programs.program_tool import ProgramConfig, ProgramTool
from portico.adapters.tools.programs.python_tool import PythonConfig, PythonTool
from portico.adapters.tools.sandbox.box import ProcessLimits
from portico.adapters.tools.sandbox.levels import Sandbox
from portico.bootstrap.sandbox import isolated, isolated_interpreter
from portico.bootstrap.tool_facts import facts_of
from portico.capabilities.tools.code_tool import CodeTool
from portico.domain.failures import Code, ConfigurationFailure
from portico.ports.tool import Tool
from portico.settings import Settings
from portico.settings.tables.tool_sources import ProgramSettings, PythonSettings, RunSettings


def code_tools(settings: Settings, sandbox: Sandbox, files: FileDirectories | None) -> list[Tool]:
    """Return the tools that run code of models, those whose tables the configuration has."""
    tools: list[Tool] = []
    if settings.tools.python is not None:
        tools.append(_python(settings.tools.python, settings, sandbox, files))
    if settings.tools.code is not None:
        reason = isolated_interpreter(sandbox).refusal()
        tools.append(CodeTool(replaces_tools=settings.tools.code.replace_tools, reason=reason))
    return tools


def code_interpreter(settings: Settings, sandbox: Sandbox) -> MontyInterpreter | None:
    """Return the interpreter of code that calls tools. Raises: ConfigurationFailure (CONFIG_INVALID) without it."""
    table = settings.tools.code
    if table is None:
        return None
    if installed_interpreter() is None:
        raise ConfigurationFailure(Code.CONFIG_INVALID, "tools.code: install portico[code]")
    return MontyInterpreter(isolated_interpreter(sandbox), table.workers)


def program_tools(settings: Settings, sandbox: Sandbox) -> list[ProgramTool]:
    """Return the programs as tools. Raises: ConfigurationFailure (CONFIG_INVALID) for one that cannot be used."""
    return [_program(name, table, settings, sandbox) for name, table in settings.tools.cli.items()]


def _python(table: PythonSettings, settings: Settings, sandbox: Sandbox, files: FileDirectories | None) -> PythonTool:
    config = PythonConfig(
        interpreter=table.interpreter,
        base=settings.directory.absolute(),
        isolated=isolated("tools.python", table, settings, sandbox),
        limits=_limits(table, table.timeout),
        environment=table.environment(settings.child_environment),
        timeout=table.timeout,
        files=files,
    )
    return PythonTool(config)


def _program(name: str, table: ProgramSettings, settings: Settings, sandbox: Sandbox) -> ProgramTool:
    """Return a program as a tool. Raises: ConfigurationFailure (CONFIG_INVALID) if no call could fill its command."""
    config = ProgramConfig(
        facts=facts_of(name, table),
        command=table.command,
        base=table.directory(settings.directory) or settings.directory.absolute(),
        isolated=isolated(f"tools.cli.{name}", table, settings, sandbox),
        limits=_limits(table, table.timeout),
        environment=table.environment(settings.child_environment),
        ok_exit_codes=frozenset(table.ok_exit_codes),
        pass_caller=table.pass_caller,
        credentials=table.credentials,
    )
    try:
        return ProgramTool(config)
    except ValueError as error:
        raise ConfigurationFailure(Code.CONFIG_INVALID, f"tools.cli.{name}.command: {error}") from None


def _limits(table: RunSettings, timeout: float) -> ProcessLimits:
    return ProcessLimits(
        output=table.output_limit,
        memory=table.memory,
        processes=table.processes,
        open_files=table.open_files,
        file_bytes=table.file_bytes,
        cpu_seconds=table.cpu_seconds or timeout,
    )
