"""A configured program as a tool."""

import os
from collections.abc import Mapping, Set
from dataclasses import field
from pathlib import Path
from typing import Any

from portico.adapters.tools.caller_values import caller_environment
from portico.adapters.tools.external_tool import ExternalTool, ExternalToolFacts
from portico.adapters.tools.programs.command_template import CommandTemplate
from portico.adapters.tools.sandbox.box import SEARCH_PATH, BoxError, ProcessLimits, find_program
from portico.adapters.tools.sandbox.levels import IsolatedProgram
from portico.adapters.tools.sandbox.output import LEFT_OUT
from portico.adapters.tools.sandbox.run import ProcessEnd, ProgramRun, run_program
from portico.capabilities.tools.mask import mask_ends
from portico.domain.fingerprints import digest
from portico.domain.tools import Availability
from portico.domain.value import replace, value
from portico.ports.tool import ToolContext, ToolError


@value
class ProgramConfig:
    """Configuration of one program tool.

    `command` is the program and its words with places for arguments; a relative path of the program begins at `base`.
    `environment` is that of the program, to which `pass_caller` adds for whom it acts, and `credentials` their values,
    by variable.
    """

    facts: ExternalToolFacts
    command: tuple[str, ...]
    base: Path
    isolated: IsolatedProgram
    limits: ProcessLimits
    environment: Mapping[str, str]
    ok_exit_codes: frozenset[int] = frozenset({0})
    pass_caller: bool = False
    credentials: Mapping[str, str] = field(default_factory=dict)


class ProgramTool(ExternalTool):
    """A program as a tool: each call is one process, ended with everything that it started.

    Raises: ValueError, from the constructor, for a command whose places do not fit the parameters.
    """

    def __init__(self, config: ProgramConfig) -> None:
        self._config = config
        self._template = CommandTemplate(config.command, config.facts.parameters)
        isolated, box = config.isolated, config.isolated.box
        passed = ["pass_caller"] if config.pass_caller else []
        named = [sorted(config.credentials.items())] if config.credentials else []
        identity = digest(config.command, str(box.directory), isolated.network, isolated.is_enforced, *passed, *named)
        super().__init__(
            config.facts,
            "cli",
            identity=identity,
            containment=isolated.containment(),
            isolation=isolated.level_in_force,
            network=isolated.network,
            credentials=tuple(dict.fromkeys(config.credentials.values())),
        )

    def available(self) -> Availability:
        """Return whether the program can be started here, and why not."""
        reason, directory = self._config.isolated.refusal(), self._config.isolated.box.directory
        if not reason and self._path() is None:
            reason = f"{self._template.program} is not installed"
        elif not reason and directory is not None and not directory.is_dir():
            reason = "its working directory does not exist"
        return Availability(available=not reason, reason=reason)

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Run the program and return its output.

        Raises: ToolArgumentError for arguments that it cannot take; ToolError if it cannot be started, exits with
        another code than the accepted ones, or exceeds a limit.
        """
        words = self._template.fill(arguments, context.caller)
        own = caller_environment(context.caller) if self._config.pass_caller else {}
        path = self._path()
        if path is None:
            raise ToolError(f"{self._template.program} is not installed")
        credentials = {name: await context.credential(each) for name, each in self._config.credentials.items()}
        try:
            end = await run_program(
                ProgramRun(
                    command=(path, *words),
                    run=context.idempotency_key,
                    isolated=self._config.isolated,
                    environment={**self._config.environment, **own, **credentials},
                    limits=self._config.limits,
                )
            )
        except BoxError as cause:
            raise ToolError(f"the box could not be made: {cause}") from cause
        except OSError as cause:
            raise ToolError(f"the program could not be started: {os.strerror(cause.errno or 0)}") from cause
        if credentials:
            values = [(each, credentials[name]) for name, each in self._config.credentials.items()]
            end = replace(end, output=mask_ends(end.output, LEFT_OUT, values))
        return result_of(end, self._config.ok_exit_codes)

    def _path(self) -> str | None:
        """Return the path of the program, which is looked up anew for each call; a relative one starts here."""
        return find_program(
            self._template.program, self._config.environment.get("PATH", SEARCH_PATH), self._config.base
        )


def result_of(end: ProcessEnd, ok_exit_codes: Set[int]) -> str:
    """Return the output of a run. Raises: ToolError with it for another exit code, and for a limit that ended it."""
    if end.exceeded is not None:
        raise ToolError(f"the program was ended: {end.exceeded}")
    if end.exit_code in ok_exit_codes:
        return end.output
    how = f"exited with {end.exit_code}" if end.exit_code >= 0 else f"was ended by signal {-end.exit_code}"
    raise ToolError(f"the program {how}; its output:\n{end.output}" if end.output else f"the program {how}")
