"""The cost of code that calls tools, beside the same calls in rounds of a model and beside a Python program.

The scenario runs `python -m bench.code`, which prints its numbers, in a process of its own on the measured core.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import orjson

from bench.processes import run_measured_module
from bench.scenarios import BenchEnvironment, Numbers
from bench.tools import run_chat
from portico.adapters.tools.sandbox.levels import Sandbox, try_levels
from portico.bootstrap.service import open_service
from portico.domain.contract.request import SystemRequest
from portico.settings import load_settings

CALLS: Final = 100
RUNS: Final = 50
PAUSE_S: Final = 0.1
"""Pause before each chat with code, in which its process starts: models take longer to write code."""
LEVELS: Final[Mapping[str, str]] = MappingProxyType({"bubblewrap": "bwrap", "landlock": "no-bubblewrap"})
"""What is looked for as bubblewrap, for the level to be the strongest one."""
_CALL: Final = "calculate(expression=f'{n} + 1')"
_GATHERED: Final = f"import asyncio\nfor n in (0, 50):\n    await asyncio.gather(*[{_CALL} for n in range(n, n + 50)])"
CODES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "empty_code": ("run_code", "1"),
        "loop": ("run_code", f"for n in range({CALLS}):\n    await {_CALL}"),
        "gathered": ("run_code", _GATHERED),
        "empty_python": ("run_python", "1"),
    }
)
"""Tool and code of each kind of chat; one more kind makes the calls in rounds of the model."""


async def code(bench: BenchEnvironment) -> Numbers:
    """Measure chats with code that calls tools."""
    return await run_measured_module("bench.code", bench.cores)


async def measure() -> Mapping[str, float]:
    """Return the numbers, measured in this process."""
    numbers: dict[str, float] = {}
    for level, program in LEVELS.items():
        medians = await _medians(level, program)
        numbers |= {
            f"code_empty_{level}_ratio": medians["empty_code"] / medians["empty_python"],
            f"code_gathered_{level}_ratio": medians["gathered"] / medians["rounds"],
            f"code_loop_{level}_ratio": medians["loop"] / medians["rounds"],
        }
    return numbers


async def _medians(level: str, program: str) -> Mapping[str, float]:
    """Return the seconds of each kind of chat at that level: medians, measured in turn."""
    durations = defaultdict[str, list[float]](list)
    assert Sandbox(program, try_levels(program)).strongest == level, f"{level} does not start here"
    with tempfile.TemporaryDirectory(prefix="portico-bench-") as directory:
        path = _write_configuration(Path(directory), program)
        async with open_service(load_settings({}, path, local_model=lambda: None)) as service:
            for _ in range(RUNS):
                for kind in ("rounds", *CODES):
                    tool = CODES[kind][0] if kind in CODES else "calculate"
                    if tool == "run_code":
                        await asyncio.sleep(PAUSE_S)
                    began = time.perf_counter()
                    await run_chat(service, _request({"calculate", tool}))
                    durations[kind].append(time.perf_counter() - began)
    return {kind: statistics.median(each) for kind, each in durations.items()}


def _write_configuration(directory: Path, program: str) -> Path:
    script, path = directory / "script.json", directory / "portico.toml"
    replies: list[Mapping[str, Any]] = [_calls("calculate", {"expression": f"{n} + 1"}) for n in range(CALLS)]
    replies.append({"text": "Done."})
    for tool, code in CODES.values():
        replies += [_calls(tool, {"code": code}), {"text": "Done."}]
    script.write_bytes(orjson.dumps(replies * RUNS))
    path.write_text(
        f'[engines.script]\nmodel = "scripted://{script}"\n'
        f"[limits]\ntool_rounds = {CALLS}\ntool_calls = {CALLS + 1}\n"
        f'[tools.sandbox]\nbubblewrap = "{program}"\n[tools.code]\n[tools.python]\n'
        f'[storage]\nurl = "sqlite:///{directory}/portico.db"\n'
        '[telemetry]\nlog_level = "error"\n',
        encoding="utf-8",
    )
    return path


def _calls(tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"tool_calls": [{"name": tool, "arguments": arguments}]}


def _request(names: set[str]) -> SystemRequest:
    messages = [{"role": "user", "content": "What is the answer?"}]
    limits = {"tool_rounds": CALLS, "tool_calls": CALLS + 1}
    return SystemRequest.model_validate({"messages": messages, "tools": sorted(names), "limits": limits})


if __name__ == "__main__":
    sys.stdout.buffer.write(orjson.dumps(asyncio.run(measure())))
