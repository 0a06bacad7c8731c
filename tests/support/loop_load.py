"""Load of an event loop: its longest round, and the CPU time and memory of the work.

A ticker runs beside the work on a real event loop and reads the CPU time of the process in each round. Other processes
and waiting for the network make no round longer; a thread that holds the interpreter's lock does. `machine_slowness`
compares the machine with the one on which the limits were measured.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import TypeVar

T = TypeVar("T")
_REFERENCE_S = 0.009
"""CPU time of the reference work on the machine on which the limits were measured."""
_PEAK_RESET = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


@dataclass(frozen=True, slots=True)
class LoopLoad:
    """Longest round of the loop and total, in seconds of CPU time, and growth of memory in bytes."""

    longest_s: float
    total_s: float
    memory_bytes: int

    def normalised(self) -> "LoopLoad":
        """Return the load as it would be on the reference machine."""
        slower = machine_slowness()
        return LoopLoad(self.longest_s / slower, self.total_s / slower, self.memory_bytes)

    def is_within(self, most: "LoopLoad") -> bool:
        return (
            self.longest_s <= most.longest_s and self.total_s <= most.total_s and self.memory_bytes <= most.memory_bytes
        )


async def measure_load(work: Callable[[], Awaitable[T]]) -> tuple[T, LoopLoad]:
    """Run the work and return its result and its load."""
    before = _reset_peak()
    rounds: list[float] = []
    ticker = asyncio.create_task(_tick(rounds))
    await asyncio.sleep(0)
    began = process_time()
    result = await work()
    total = process_time() - began
    await asyncio.sleep(0)
    ticker.cancel()
    return result, LoopLoad(max(rounds), total, _resident("VmHWM") - before)


async def _tick(rounds: list[float]) -> None:
    before = process_time()
    while True:
        await asyncio.sleep(0)
        now = process_time()
        rounds.append(now - before)
        before = now


def _reset_peak() -> int:
    """Reset the kernel's peak of memory and return the current value in bytes."""
    _PEAK_RESET.write_text("5")
    return _resident("VmRSS")


def _resident(name: str) -> int:
    """Return a memory value of the process in bytes, by its name in /proc."""
    (line,) = (line for line in _STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def machine_slowness() -> float:
    """Return how many times slower this machine is now than the reference machine; at least 1."""
    return max(1.0, min(_work() for _ in range(3)) / _REFERENCE_S)


def _work() -> float:
    began = process_time()
    value = [{"number": number, "text": f"word {number}", "of": [number, None, True]} for number in range(3_000)]
    text = json.dumps(value)
    found = sum(1 for token in re.finditer(r'"[^"]*"|[\[\]{}]', text) if token[0] != "]")
    assert (json.loads(text), found) == (value, 21_001)
    return process_time() - began
