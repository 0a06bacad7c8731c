"""Time, randomness, ids and memory of the operating system."""

import asyncio
import ctypes
import secrets
import time
from collections.abc import Callable
from io import BytesIO
from os import urandom
from typing import Final

import anyio

from portico.ports.runtime import Clock

_RANDOM_BITS = 74
_STEP_BITS = 32
_M_MMAP_THRESHOLD: Final = -3
_LARGE_BLOCK_BYTES: Final = 128 * 2**10
_RANDOM_BLOCK_BYTES: Final = 4_096


class SystemClock:
    """Implementation of the `Clock` port; `monotonic` is the clock of asyncio's event loops."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        return asyncio.get_running_loop().call_later(seconds, callback).cancel


class SystemEntropy:
    """Implementation of the `Entropy` port.

    Ids are UUIDs of version 7 [RFC 9562] and strictly increasing. Within a millisecond, and after the clock was set
    back, the next id is the previous one plus a random step (section 6.2, method 2). The system is asked for many
    random bytes at once, since each question takes microseconds; none of them is used twice.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0
        self._random_bytes = BytesIO()

    def uuid7(self) -> str:
        milliseconds = int(self._clock.now() * 1000)
        if milliseconds > self._last >> _RANDOM_BITS:
            self._last = milliseconds << _RANDOM_BITS | self._random_bits(_RANDOM_BITS - 1)
        else:
            self._last += 1 + self._random_bits(_STEP_BITS)
        return format_uuid7(self._last)

    def token(self, size: int) -> str:
        return self._random(size).hex()

    def random_below(self, bound: int) -> int:
        return secrets.randbelow(bound)

    def _random_bits(self, count: int) -> int:
        return int.from_bytes(self._random(-(-count // 8))) >> -count % 8

    def _random(self, size: int) -> bytes:
        found = self._random_bytes.read(size)
        if len(found) < size:
            self._random_bytes = BytesIO(urandom(max(size, _RANDOM_BLOCK_BYTES)))
            found = self._random_bytes.read(size)
        return found


def format_uuid7(value: int) -> str:
    """Format 48 bits of milliseconds followed by 74 random bits as a UUID of version 7."""
    high = value >> 74 << 16 | 7 << 12 | value >> 62 & 0xFFF
    low = 0b10 << 62 | value & (1 << 62) - 1
    text = f"{high:016x}{low:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def map_large_blocks() -> None:
    """Let the C library map each large block of memory on its own, so that freeing it gives it back to the system.

    Otherwise glibc raises its limit to the largest block that was ever freed, and the blocks below it fragment the
    heap. Other C libraries have no such option.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)
