"""Service under a filter of system calls as Docker's default one: tries the levels, and runs a program at `landlock`.

It is started with masked parts of /proc by `test_container.py`. It prints what starts, why not, and the output as JSON.
"""

import ctypes
import errno
import json
import os
import platform
import struct
import sys
from pathlib import Path

import anyio

from portico.adapters.tools.sandbox.box import SEARCH_PATH, Box, ProcessLimits
from portico.adapters.tools.sandbox.levels import IsolatedProgram, Sandbox, try_levels
from portico.adapters.tools.sandbox.run import ProgramRun, run_program
from portico.adapters.tools.sandbox.seccomp import ARCHITECTURES
from portico.domain.tools import IsolationLevel
from tests.adversarial.attack import numbers

REFUSED = (
    *("unshare", "setns", "mount", "umount2", "pivot_root", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount"),
    *("fspick", "mount_setattr", "bpf", "perf_event_open", "keyctl", "add_key", "request_key"),
)
"""Calls that the default profile of Docker refuses without a capability for them."""
NEW_NAMESPACES = 0x7E020000
"""Flags of clone(2) with which that profile refuses it."""
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
NO_NEW_PRIVILEGES, SET_FILTER, FILTER_MODE = 38, 22, 2
LIMITS = ProcessLimits(output=4096, memory=1 << 30, processes=8, open_files=64, file_bytes=1 << 20, cpu_seconds=5)


class Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))


def step(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)


def refuse_as_docker() -> None:
    """Let this process and all that it starts meet the filter. Raises: OSError."""
    found = numbers()
    steps = [
        step(LOAD, 4),
        step(EQUAL, ARCHITECTURES[platform.machine()].audit, 1, 0),
        step(RETURN, ALLOW),
        step(LOAD, 0),
    ]
    for name in REFUSED:
        steps += [step(EQUAL, found[name], 0, 1), step(RETURN, REFUSE | errno.EPERM)]
    steps += [step(EQUAL, found["clone3"], 0, 1), step(RETURN, REFUSE | errno.ENOSYS)]
    steps += [step(EQUAL, found["clone"], 1, 0), step(RETURN, ALLOW)]
    steps += [
        step(LOAD, 16),
        step(ANY_BIT, NEW_NAMESPACES, 0, 1),
        step(RETURN, REFUSE | errno.EPERM),
        step(RETURN, ALLOW),
    ]
    data = ctypes.create_string_buffer(b"".join(steps))
    program = Program(len(steps), ctypes.addressof(data))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((NO_NEW_PRIVILEGES, 1, 0, 0, 0), (SET_FILTER, FILTER_MODE, ctypes.byref(program), 0, 0)):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "the filter cannot be set")


async def run(sandbox: Sandbox, place: Path) -> str:
    code = f"print(open({str(place / 'own')!r}).read())\nopen({str(place / 'outside' / 'secret')!r})"
    box = Box(readable=(place / "own",))
    isolated = IsolatedProgram(sandbox, box, 1 << 20, IsolationLevel.LANDLOCK)
    command = ("/usr/bin/env", "-S", "python3", "-I", "-S", "-c", code)
    return (await run_program(ProgramRun(command, "in-container", isolated, {"PATH": SEARCH_PATH}, LIMITS))).output


def main(place: Path) -> None:
    (place / "outside").mkdir()
    (place / "outside" / "secret").write_text("secret")
    (place / "own").write_text("its own")
    refuse_as_docker()
    states = try_levels("bwrap")
    sandbox = Sandbox("bwrap", states)
    output = "" if states[IsolationLevel.LANDLOCK].reason else anyio.run(run, sandbox, place)
    shown = {"strongest": sandbox.strongest, "reasons": {level: state.reason for level, state in states.items()}}
    json.dump({**shown, "output": output, "user": os.geteuid()}, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
