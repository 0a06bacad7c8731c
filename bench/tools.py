"""The cost of tools: of a call in the process, of a program, and of tools that are registered and not offered.

The scenario runs `python -m bench.tools`, which prints its numbers, in a process of its own on the measured core.
"""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import orjson

from bench.few_tools import FEW_TOOLS
from bench.processes import run_measured_module
from bench.scenarios import BenchEnvironment, Numbers
from portico.adapters.system import SystemClock, SystemEntropy
from portico.adapters.tools.external_tool import ExternalToolFacts
from portico.adapters.tools.programs.program_tool import ProgramConfig, ProgramTool
from portico.adapters.tools.sandbox.box import SEARCH_PATH, Box, ProcessLimits
from portico.adapters.tools.sandbox.levels import IsolatedProgram, Sandbox, try_levels
from portico.bootstrap.service import Service, open_service
from portico.domain.access.principal import LOCAL
from portico.domain.contract.request import SystemRequest
from portico.domain.ids import IdempotencyKey, ToolCallId
from portico.domain.lifecycle import State
from portico.domain.tools import IsolationLevel, SideEffects
from portico.orchestration.facade import DEFAULT_OPTIONS, CallOptions
from portico.orchestration.runtime.handle import ExecutionHandle
from portico.ports.tool import ToolContext
from portico.settings import load_settings

FEW, MANY = 2, 22
"""Calls of one reply."""
WARM_UP, ROUNDS, CHATS = 40, 15, 20
REGISTRY_ROUNDS, REGISTRY_CHATS = 25, 60
PROGRAM_RUNS, LEVEL_RUNS = 60, 50
_PROGRAM: Final = "true"
_MIB: Final = 1 << 20


async def tools(bench: BenchEnvironment) -> Numbers:
    """Measure a call of a tool, a run of a program, and chats that are offered ten of many tools."""
    return await run_measured_module("bench.tools", bench.cores)


async def measure() -> Mapping[str, float]:
    """Return the numbers, measured in this process."""
    return {
        "tool_call_ms": await _call_ms(),
        "program_more_ms": await _program_more_ms(),
        **await _level_ratios(),
        "many_tools_more_ms": await _many_tools_more_ms(),
    }


async def _call_ms() -> float:
    """Return the CPU time of one more call in a journaled tool round, the thread of SQLite included."""
    rounds = [FEW, MANY] * WARM_UP + ([MANY] * CHATS + [FEW] * CHATS) * ROUNDS
    replies = [reply for calls in rounds for reply in (_calls(calls), {"text": "Done."})]
    keys = count()
    async with _open(["bench.few_tools"], replies) as service:
        request = _request(FEW_TOOLS[:1])

        async def cpu_ms(chats: int) -> float:
            began = time.process_time()
            for _ in range(chats):
                await run_chat(service, request, CallOptions(idempotency_key=IdempotencyKey(f"chat-{next(keys)}")))
            return (time.process_time() - began) / chats * 1000

        await cpu_ms(2 * WARM_UP)
        costs = [(await cpu_ms(CHATS) - await cpu_ms(CHATS)) / (MANY - FEW) for _ in range(ROUNDS)]
    return statistics.median(costs)


async def _program_more_ms() -> float:
    """Return how much longer a program takes as a tool than started bare, in turn; a median of pairs."""
    with tempfile.TemporaryDirectory(prefix="portico-bench-") as directory:
        program = _program(Path(directory), Sandbox("bwrap", {}), IsolationLevel.LIMITS)
        differences = []
        for number in range(PROGRAM_RUNS):
            duration = await _program_s(program, number)
            began = time.perf_counter()
            subprocess.run([_PROGRAM], env={"PATH": SEARCH_PATH}, check=True)  # noqa: ASYNC221 - this is what is measured
            differences.append(duration - (time.perf_counter() - began))
    return statistics.median(differences) * 1000


async def _level_ratios() -> Mapping[str, float]:
    """Return how long a program takes in a box of each level, relative to the level `limits`: medians, in turn."""
    sandbox, durations = Sandbox("bwrap", try_levels("bwrap")), defaultdict[IsolationLevel, list[float]](list)
    with tempfile.TemporaryDirectory(prefix="portico-bench-") as directory:
        programs = {level: _program(Path(directory), sandbox, level) for level in IsolationLevel}
        for number in range(LEVEL_RUNS):
            for level, program in programs.items():
                durations[level].append(await _program_s(program, number))
    medians = {level: statistics.median(each) for level, each in durations.items()}
    limits = medians.pop(IsolationLevel.LIMITS)
    return {f"{level}_ratio": median / limits for level, median in medians.items()}


def _program(directory: Path, sandbox: Sandbox, level: IsolationLevel) -> ProgramTool:
    facts = ExternalToolFacts(
        "program", "A program.", {"type": "object"}, SideEffects.READ, idempotent=True, timeout=10
    )
    limits = ProcessLimits(
        output=4096, memory=1024 * _MIB, processes=64, open_files=256, file_bytes=_MIB, cpu_seconds=10
    )
    config = ProgramConfig(
        facts=facts,
        command=(_PROGRAM,),
        base=directory,
        isolated=IsolatedProgram(sandbox, Box(), _MIB, level),
        limits=limits,
        environment={"PATH": SEARCH_PATH},
    )
    return ProgramTool(config)


async def _program_s(program: ProgramTool, number: int) -> float:
    """Return how many seconds a call of the program takes. Raises: ToolError where its level does not start."""
    began = time.perf_counter()
    await program.execute({}, _context(number))
    return time.perf_counter() - began


async def _many_tools_more_ms() -> float:
    """Return how much more CPU time a chat takes that is offered ten tools if 1,000 others are registered."""
    chats = WARM_UP + REGISTRY_ROUNDS * REGISTRY_CHATS
    replies, request = [{"text": "Done."}] * chats, _request(FEW_TOOLS)
    async with (
        _open(["bench.few_tools"], replies) as few,
        _open(["bench.few_tools", "bench.many_tools"], replies) as many,
    ):

        async def cpu_ms(service: Service, chats: int) -> float:
            began = time.thread_time()
            for _ in range(chats):
                await run_chat(service, request)
            return (time.thread_time() - began) / chats * 1000

        for service in (few, many):
            await cpu_ms(service, WARM_UP)
        differences = []
        for number in range(REGISTRY_ROUNDS):
            order = (few, many) if number % 2 else (many, few)
            costs = {id(service): await cpu_ms(service, REGISTRY_CHATS) for service in order}
            differences.append(costs[id(many)] - costs[id(few)])
    return statistics.median(differences)


@asynccontextmanager
async def _open(modules: Sequence[str], replies: Sequence[Mapping[str, Any]]) -> AsyncIterator[Service]:
    """Open a service with the tools of these modules and an engine that gives these replies."""
    with tempfile.TemporaryDirectory(prefix="portico-bench-") as directory:
        path = _write_configuration(Path(directory), modules, replies)
        async with open_service(load_settings({}, path, local_model=lambda: None)) as service:
            yield service


def _write_configuration(directory: Path, modules: Sequence[str], replies: Sequence[Mapping[str, Any]]) -> Path:
    script, path = directory / "script.json", directory / "portico.toml"
    script.write_bytes(orjson.dumps(replies))
    path.write_text(
        f'[engines.script]\nmodel = "scripted://{script}"\n'
        f"[tools]\nmodules = {orjson.dumps(modules).decode()}\n"
        f'[storage]\nurl = "sqlite:///{directory}/portico.db"\n'
        '[telemetry]\nlog_level = "error"\n',
        encoding="utf-8",
    )
    return path


def _calls(number: int) -> dict[str, object]:
    """Return a reply that asks for so many calls."""
    return {"tool_calls": [{"name": FEW_TOOLS[0], "arguments": {"number": each}} for each in range(number)]}


def _request(names: Sequence[str]) -> SystemRequest:
    messages = [{"role": "user", "content": "What is the answer?"}]
    return SystemRequest.model_validate({"messages": messages, "tools": list(names)})


def _context(number: int) -> ToolContext:
    clock = SystemClock()
    key = IdempotencyKey(f"run-{number}")
    return ToolContext(ToolCallId("call"), 10, clock, SystemEntropy(clock), key)


async def run_chat(service: Service, request: SystemRequest, options: CallOptions = DEFAULT_OPTIONS) -> None:
    """Run a chat to its end, which must be an answer after calls without an error."""
    handle = await service.facade.execute(request, LOCAL, options)
    assert isinstance(handle, ExecutionHandle)
    ended = asyncio.Event()
    handle.add_done_callback(ended.set)
    await ended.wait()
    assert handle.response is not None
    assert handle.response.state is State.COMPLETE
    assert not any(call.is_error for call in handle.response.tool_calls_made)


if __name__ == "__main__":
    sys.stdout.buffer.write(orjson.dumps(asyncio.run(measure())))
