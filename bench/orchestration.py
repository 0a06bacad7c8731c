"""The cost of the orchestration alone, of chats and of passes: from the facade to the answer, with scripted engines.

The scenario runs `python -m bench.orchestration`, which prints its numbers, in a process of its own on the measured
core. The chats run one after the other, so that the number of Python calls is the same in each run.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

import orjson

import portico
from bench.passes import measure_passes
from bench.processes import run_measured_module
from bench.scenarios import BenchEnvironment, Numbers
from bench.upstream import TEXT
from portico.bootstrap.service import Service, open_service
from portico.domain.access.principal import LOCAL
from portico.domain.contract.request import SystemRequest
from portico.orchestration.runtime.handle import ExecutionHandle
from portico.settings import load_settings

WARM_UP, ROUNDS, CHATS, COUNTED = 300, 15, 200, 100
ROOT = Path(portico.__file__).parent
CORE = tuple(f"{ROOT}/{layer}/" for layer in ("orchestration", "capabilities", "domain"))
CHAT = SystemRequest.model_validate({"messages": [{"role": "user", "content": "What is the answer?"}]})


async def orchestration(bench: BenchEnvironment) -> Numbers:
    """Measure plain chat, and passes of reasoning, between the facade and a scripted engine."""
    return await run_measured_module("bench.orchestration", bench.cores)


async def measure() -> Mapping[str, float]:
    """Return CPU time and Python calls of a plain chat, and CPU time of a pass, in this process."""
    with tempfile.TemporaryDirectory(prefix="portico-bench-") as directory:
        settings = load_settings({}, _write_configuration(Path(directory)), local_model=lambda: None)
        async with open_service(settings) as service:
            await _chat(service, WARM_UP)
            costs = [await _cpu_seconds(service, CHATS) / CHATS for _ in range(ROUNDS)]
            calls, core_calls = await _python_calls(service, COUNTED)
    return {
        "orchestration_cpu_us": statistics.median(costs) * 1e6,
        "orchestration_calls": calls / COUNTED,
        "orchestration_core_calls": core_calls / COUNTED,
        **await measure_passes(),
    }


def _write_configuration(directory: Path) -> Path:
    script, path = directory / "script.json", directory / "portico.toml"
    script.write_bytes(orjson.dumps([{"text": TEXT}] * (WARM_UP + ROUNDS * CHATS + COUNTED)))
    path.write_text(
        f'[engines.script]\nmodel = "scripted://{script}"\n'
        f'[storage]\nurl = "sqlite:///{directory}/portico.db"\n'
        '[telemetry]\nlog_level = "error"\n',
        encoding="utf-8",
    )
    return path


async def _chat(service: Service, count: int) -> None:
    """Run so many chats one after the other."""
    for _ in range(count):
        handle = await service.facade.execute(CHAT, LOCAL)
        assert isinstance(handle, ExecutionHandle)
        ended = asyncio.Event()
        handle.add_done_callback(ended.set)
        await ended.wait()
        assert handle.response is not None
        assert handle.response.content == TEXT


async def _cpu_seconds(service: Service, count: int) -> float:
    """Return the CPU time of the event loop's thread; the thread of SQLite is not counted."""
    began = time.thread_time()
    await _chat(service, count)
    return time.thread_time() - began


async def _python_calls(service: Service, count: int) -> tuple[int, int]:
    """Return the Python calls of so many chats, and how many of them belong to the core."""
    calls = core_calls = 0

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls, core_calls
        if event == "call":
            calls += 1
            core_calls += _is_core(frame)

    sys.setprofile(profile)
    try:
        await _chat(service, count)
    finally:
        sys.setprofile(None)
    return calls, core_calls


def _is_core(frame: FrameType) -> bool:
    """Tell if a frame runs code of the core; a generated method of a dataclass counts for its caller."""
    path = frame.f_code.co_filename
    if path == "<string>" and frame.f_back is not None:
        path = frame.f_back.f_code.co_filename
    return path.startswith(CORE)


if __name__ == "__main__":
    sys.stdout.buffer.write(orjson.dumps(asyncio.run(measure())))
