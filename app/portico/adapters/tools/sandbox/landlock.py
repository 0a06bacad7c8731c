"""The level `landlock`: the kernel's rules about files, connections and signals, and a keeper that ends the run."""

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from math import ceil
from pathlib import Path
from typing import Final

from portico.adapters.tools.sandbox.box import (
    PYTHON_CODE,
    Box,
    BoxedCommand,
    ProcessLimits,
    new_home,
    passed_bytes,
    paths_of_program,
    system_paths,
)
from portico.adapters.tools.sandbox.process_table import marks_of
from portico.adapters.tools.sandbox.seccomp import filter_program

MINIMUM_ABI: Final = 6
"""Version of Landlock that keeps signals in the box (Linux 6.12)."""
_KEEPER: Final = f"import sys; sys.path.append({str(Path(__file__).parent)!r}); import keeper; sys.exit(keeper.main())"
"""Code of the keeper: imported as a module it is compiled once, not for each run."""
_READABLE_DEVICES: Final = ("/dev/zero", "/dev/random", "/dev/urandom")
_WRITABLE_DEVICES: Final = ("/dev/null",)


@contextmanager
def in_landlock(
    box: Box, command: Sequence[str], environment: Mapping[str, str], limits: ProcessLimits | None
) -> Iterator[BoxedCommand]:
    """Yield the command that starts the keeper, which makes the box; what it needs is there until the end."""
    with ExitStack() as resources:
        home = resources.enter_context(new_home())
        orders = {
            "service": [str(os.getpid())],
            "command": command,
            "environment": _pairs({"HOME": home, "TMPDIR": home, **environment}),
            "directory": [str(box.directory or home)],
            "home": [str(home)],
            "readable": [str(path) for path in _readable(box, Path(command[0]))],
            "writable": [*_WRITABLE_DEVICES, str(home), *map(str, box.writable)],
            "network": ["open" if box.network else "none"],
            "filter": [filter_program(platform.machine(), network=box.network, metadata=False).hex()],
            "limits": [] if limits is None else _pairs(_resources(limits)),
        }
        given = resources.enter_context(passed_bytes(_encoded(orders)))
        report, status = os.pipe2(os.O_CLOEXEC)
        resources.callback(os.close, report)
        resources.callback(os.close, status)
        words = (*PYTHON_CODE, _KEEPER, str(given), str(status))
        yield BoxedCommand(
            words,
            marks_of(environment),
            Path("/"),
            descriptors=(given, status),
            report=report,
            home=home,
            makers=1,
        )


def _encoded(orders: Mapping[str, Sequence[str]]) -> bytes:
    """Return the orders as the keeper reads them. No word has a NUL, which no path and no variable can have."""
    words = [word for name, values in orders.items() for word in (name, str(len(values)), *values)]
    return "\0".join([*words, "", ""]).encode()


def _pairs(values: Mapping[str, object]) -> list[str]:
    return [f"{name}={value}" for name, value in values.items()]


def _readable(box: Box, program: Path) -> Iterator[Path]:
    yield from system_paths()
    yield from paths_of_program(program, box.protected)
    yield from map(Path, _READABLE_DEVICES)
    yield from box.readable


def _resources(limits: ProcessLimits) -> dict[str, int]:
    return {
        "RLIMIT_CORE": 0,
        "RLIMIT_CPU": ceil(limits.cpu_seconds),
        "RLIMIT_AS": limits.memory,
        "RLIMIT_NOFILE": limits.open_files,
        "RLIMIT_FSIZE": limits.file_bytes,
    }
