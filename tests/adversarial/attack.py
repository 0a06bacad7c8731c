"""Service of the attack: runs the attacker in a box of one level and prints what came through, as JSON.

It is started in a mount namespace of its own, as root or as another user, by `test_abuse.py`. Its arguments are the
level and a directory that it may write.
"""

import json
import os
import platform
import re
import socket
import subprocess
import sys
from pathlib import Path

import anyio

from portico.adapters.tools.sandbox import syscalls
from portico.adapters.tools.sandbox.box import SEARCH_PATH, Box, ProcessLimits
from portico.adapters.tools.sandbox.levels import IsolatedProgram, Sandbox, try_levels
from portico.adapters.tools.sandbox.run import ProgramRun, run_program
from portico.adapters.tools.sandbox.seccomp import ARCHITECTURES
from portico.domain.tools import IsolationLevel
from tests.adversarial.abuse import TABLE

LIMITS = ProcessLimits(output=1 << 20, memory=1 << 30, processes=32, open_files=64, file_bytes=1 << 20, cpu_seconds=20)
WRITTEN_BYTES = 64 << 20
FURTHER_CALLS = {"tgkill": (234, 131), "capset": (126, 91)}
"""Calls that rows make and that no table of the sandbox has."""


def numbers() -> dict[str, int]:
    """Return the numbers of the system calls on this machine."""
    column = ARCHITECTURES[platform.machine()].column
    tables = [table for name, table in vars(syscalls).items() if re.fullmatch("[A-Z]+", name) and name != "LAST"]
    rows = {name: row for table in (*tables, FURTHER_CALLS) for name, row in table.items()}
    return {name: number for name, row in rows.items() if (number := row[column]) is not None}


async def attack(level: IsolationLevel, place: Path) -> list[str]:
    """Return the names of the abuses that came through."""
    outside, box = place / "outside", place / "box"
    names = prepare(outside, box)
    listener = socket.create_server(("127.0.0.1", 0))
    local, datagrams, abstract = (socket.socket(socket.AF_UNIX, kind) for kind in (1, 2, 1))
    local.bind(str(outside / "socket"))
    local.listen()
    datagrams.bind(str(outside / "datagrams"))
    abstract.bind(f"\0portico-{os.getpid()}")
    abstract.listen()
    bystander = subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)  # noqa: ASYNC220 - ended below
    names |= {"port": listener.getsockname()[1], "abstract": f"portico-{os.getpid()}", "bystander": bystander.pid}
    column = numbers()
    rows = [(row.name, row.code) for row in TABLE if all(name in column for name in called(row.code))]
    orders = {"rows": rows, "names": names, "numbers": column}
    await anyio.Path(box / "orders.json").write_text(json.dumps(orders))
    isolated = IsolatedProgram(
        Sandbox("bwrap", try_levels("bwrap")), Box(writable=(box,), directory=box), WRITTEN_BYTES, level
    )
    program = ProgramRun(
        command=(sys.executable, "-I", "-S", str(box / "attacker.py"), str(box / "orders.json")),
        run="attack",
        isolated=isolated,
        environment={"PATH": SEARCH_PATH},
        limits=LIMITS,
    )
    end = await run_program(program)
    bystander.kill()
    bystander.wait()
    if end.exit_code or end.exceeded or "fault: " in end.output:
        raise SystemExit(f"the attacker failed: {end}")
    return end.output.splitlines()


def prepare(outside: Path, box: Path) -> dict[str, str | int]:
    """Make what stands outside of the box, and return the names under which rows use it."""
    outside.mkdir()
    box.mkdir()
    (box / "attacker.py").write_text((Path(__file__).parent / "attacker.py").read_text())
    (outside / "secret").write_text("secret")
    (outside / "victim").touch()
    (outside / "program").write_text("#!/bin/true\n")
    (outside / "program").chmod(0o755)
    shared = Path(f"/dev/shm/portico-{os.getpid()}")  # noqa: S108 - removed with the namespace
    shared.write_text("secret")
    os.setxattr(outside / "secret", "user.y", b"1")
    return {
        "secret": str(outside / "secret"),
        "outside": str(outside),
        "shared": str(shared),
        "home": str(box),
        "service": os.getpid(),
    }


def called(code: str) -> list[str]:
    """Return the names of the system calls that a row makes by number."""
    return re.findall(r"call\('(\w+)'", code)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(anyio.run(attack, IsolationLevel(sys.argv[1]), Path(sys.argv[2]))))
