"""Programs as tools at one level of isolation, and their runs."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from portico.adapters.tools.external_tool import ExternalToolFacts
from portico.adapters.tools.programs.program_tool import ProgramConfig, ProgramTool
from portico.adapters.tools.sandbox.box import SEARCH_PATH, Box, ProcessLimits
from portico.adapters.tools.sandbox.levels import IsolatedProgram, Sandbox
from portico.domain.ids import IdempotencyKey, ToolCallId
from portico.domain.tools import IsolationLevel, SideEffects
from portico.ports.tool import ToolContext
from tests.support.entropy import SeededEntropy
from tests.support.virtual_time import VirtualClock

LIMITS = ProcessLimits(output=4096, memory=1 << 30, processes=32, open_files=64, file_bytes=1 << 20, cpu_seconds=5)
ONE_TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
WRITTEN_BYTES = 32 << 20
RUN = IdempotencyKey("run-of-a-test")


class Programs:
    """Programs at one level, in a directory that they may write."""

    def __init__(self, sandbox: Sandbox, level: IsolationLevel, directory: Path) -> None:
        self.sandbox = sandbox
        self.level = level
        self.directory = directory

    def __call__(self, *command: str, **changes: Any) -> ProgramTool:
        config = ProgramConfig(
            facts=ExternalToolFacts("program", "A program.", ONE_TEXT, SideEffects.WRITE, idempotent=True, timeout=10),
            command=command,
            base=self.directory,
            isolated=self.isolated,
            limits=LIMITS,
            environment={"PATH": SEARCH_PATH},
        )
        return ProgramTool(replace(config, **changes))

    @property
    def isolated(self) -> IsolatedProgram:
        """Return the box, in which the directory may be written."""
        box = Box(writable=(self.directory,), directory=self.directory)
        return IsolatedProgram(self.sandbox, box, WRITTEN_BYTES, self.level)

    def python(self, code: str, **changes: Any) -> ProgramTool:
        """Return a program of this code, which may have braces: it stands in a file."""
        (self.directory / "code.py").write_text(code)
        return self(sys.executable, "-I", "-S", str(self.directory / "code.py"), **changes)


async def run(tool: ProgramTool, mark: str = RUN, **arguments: Any) -> str:
    """Return the result of one call; the processes of its run carry the mark."""
    context = ToolContext(ToolCallId("call_1"), 10, VirtualClock(), SeededEntropy(1), IdempotencyKey(mark))
    return await tool.execute(arguments, context)
