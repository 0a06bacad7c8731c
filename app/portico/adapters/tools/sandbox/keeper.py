"""Keeper of one run at the level `landlock`: a process of its own, which ends everything that the run started.

It adopts the orphans of its run. Its child enters the box and becomes the program. When the program ends, at SIGTERM
and when the service ends, it kills all of its descendants until none is left, and removes the run's home. The program
cannot signal it, since Landlock keeps its signals in the box.

It is run by an interpreter without packages (`python -I -S`), so it imports nothing of Portico. Each run waits for its
imports, so there are few: `typing`, `json` and the enumerations of `signal` would double the time to start. The first
argument is the descriptor of its orders, which `_read_orders` reads, the second that of its report: a line of JSON with
`failed`, if the box could not be made and nothing has begun, or with `exit`, the exit code of the program, negative for
a signal.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Iterator
    from typing import Final, NoReturn
else:
    import _signal as signal

GRACE_ROUNDS: Final = 30
"""Rounds of 10 ms between SIGTERM and SIGKILL for the program; the service gives its keeper half a second."""
_ROUND_S: Final = 0.01
_FOREVER_S: Final = 86_400
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_SECCOMP: Final = 22
_PR_CAPBSET_DROP: Final = 24
_PR_SET_SECUREBITS: Final = 28
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAP_AMBIENT: Final = 47
_AMBIENT_CLEAR_ALL: Final = 4
_FILTER_MODE: Final = 2
_LOCKED_SECUREBITS: Final = 0xEF
"""No rights for root, no change of that, and no rights over a change of user; all of it locked [capabilities(7)]."""
_CAPABILITY_VERSION: Final = 0x20080522
_CAPSET: Final = 126 if os.uname().machine == "x86_64" else 91
_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
_PATH_BENEATH: Final = 1
_ALL_FILE_RIGHTS: Final = (1 << 16) - 1
_READ: Final = 0b1101
"""Execute, read a file, read a directory."""
_WRITE: Final = 0b0111_0001_1011_0010
"""Write, remove, make directories, files and links, move to another directory, truncate."""
_OF_FILES: Final = 0b1100_0000_0000_0111
"""Those rights that a rule about a file may have: execute, write, read, truncate, control."""
_NET_RIGHTS: Final = 0b11
_SCOPES: Final = 0b11

_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    """Run the program of the orders in its box and return the exit code of the keeper."""
    with open(int(sys.argv[1]), "rb") as file:
        orders = _read_orders(file.read().decode())
    report = int(sys.argv[2])
    _check(_prctl(_PR_SET_CHILD_SUBREAPER, 1))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
    _check(_prctl(_PR_SET_PDEATHSIG, signal.SIGTERM))
    if os.getppid() != int(orders["service"][0]):
        return 1
    keeper = os.getpid()
    program = os.fork()
    if program == 0:
        _become_program(orders, report, keeper)
    _silence()
    exit_code = _wait(program)
    _end_descendants()
    _remove(orders["home"][0])
    if exit_code is not None:
        os.write(report, b'{"exit": %d}\n' % exit_code)
    return 0


def _read_orders(text: str) -> dict[str, list[str]]:
    """Return the values by name: each name is followed by the number of its values and the values, all ended by NUL."""
    words, orders, start = text.split("\0"), {}, 0
    while words[start]:
        end = start + 2 + int(words[start + 1])
        orders[words[start]] = words[start + 2 : end]
        start = end
    return orders


def _become_program(orders: dict[str, list[str]], report: int, keeper: int) -> NoReturn:
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGCHLD})
        report = os.dup2(report, 3, inheritable=False)
        os.closerange(4, 1 << 20)
        _check(_prctl(_PR_SET_PDEATHSIG, signal.SIGKILL))
        if os.getppid() != keeper:
            os._exit(1)
        for name, limit in _pairs(orders["limits"]):
            resource.setrlimit(getattr(resource, name), (int(limit), int(limit)))
        os.chdir(orders["directory"][0])
        rules = _ruleset(orders)
        _drop_capabilities()
        _check(_prctl(_PR_SET_NO_NEW_PRIVS, 1))
        _check(_LIBC.syscall(_RESTRICT_SELF, rules, 0))
        os.close(rules)
        _filter_calls(bytes.fromhex(orders["filter"][0]))
        command, environment = orders["command"], dict(_pairs(orders["environment"]))
        os.execve(command[0], command, environment)  # noqa: S606 - no shell is wanted
    except (OSError, ValueError) as error:
        reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else str(error)
        os.write(report, b'{"failed": "%s"}\n' % reason.replace('"', "'").replace("\\", "/").encode())
        os._exit(126)


def _pairs(values: list[str]) -> Iterator[tuple[str, str]]:
    for each in values:
        name, _, given = each.partition("=")
        yield name, given


def _ruleset(orders: dict[str, list[str]]) -> int:
    """Return a ruleset that lets the paths of the orders be used, and nothing else."""
    network = _NET_RIGHTS if orders["network"] == ["none"] else 0
    attributes = struct.pack("=QQQ", _ALL_FILE_RIGHTS, network, _SCOPES)
    rules = _check(_LIBC.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0))
    own = f"/proc/{os.getpid()}"
    for path in (*orders["readable"], own):
        _allow(rules, path, _READ)
    for path in orders["writable"]:
        _allow(rules, path, _READ | _WRITE)
    return rules


def _allow(rules: int, path: str, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not os.path.isdir(path):
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights, descriptor)
        _check(_LIBC.syscall(_ADD_RULE, rules, _PATH_BENEATH, rule, 0))
    finally:
        os.close(descriptor)


def _drop_capabilities() -> None:
    """Empty all sets of capabilities and lock them. Only root has any to begin with."""
    _prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL)
    number = 0
    while _prctl(_PR_CAPBSET_DROP, number) == 0:
        number += 1
    if ctypes.get_errno() == errno.EINVAL:
        _check(_prctl(_PR_SET_SECUREBITS, _LOCKED_SECUREBITS))
    header, nothing = struct.pack("=Ii", _CAPABILITY_VERSION, 0), bytes(24)
    _check(_LIBC.syscall(_CAPSET, header, nothing))


def _filter_calls(program: bytes) -> None:
    instructions = ctypes.create_string_buffer(program, len(program))
    attributes = struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions))
    _check(_LIBC.prctl(_PR_SET_SECCOMP, _FILTER_MODE, attributes))


def _silence() -> None:
    """Let go of the program's input and output, whose end is that of the program."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)


def _wait(program: int) -> int | None:
    """Return the exit code of the program once it has ended; None if it was still there when the run had to end."""
    expected, rounds_left = {signal.SIGTERM, signal.SIGCHLD}, 0
    while True:
        ended, exit_code = _reap(program)
        if ended:
            return exit_code
        received = signal.sigtimedwait(expected, _ROUND_S if rounds_left else _FOREVER_S)
        if received is None and rounds_left == 1:
            return None
        if received is None and rounds_left:
            rounds_left -= 1
        elif received is not None and received.si_signo == signal.SIGTERM and not rounds_left:
            rounds_left = GRACE_ROUNDS
            _signal_group(program)


def _reap(program: int) -> tuple[bool, int]:
    """Wait for those children that have ended; return whether the program is among them, and its exit code."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True, 1
        if pid == program:
            return True, os.waitstatus_to_exitcode(status)
        if pid == 0:
            return False, 0


def _signal_group(program: int) -> None:
    try:
        os.killpg(program, signal.SIGTERM)
    except ProcessLookupError:
        os.kill(program, signal.SIGTERM)


def _end_descendants() -> None:
    """Kill all descendants, and those that they start meanwhile, until none is left."""
    while True:
        for pid in _descendants():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        signal.sigtimedwait((), _ROUND_S)


def _descendants() -> list[int]:
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        tasks = f"/proc/{waiting.pop()}/task"
        try:
            for thread in os.listdir(tasks):
                with open(f"{tasks}/{thread}/children", encoding="ascii") as file:
                    children = [int(pid) for pid in file.read().split()]
                found += children
                waiting += children
        except OSError:
            continue
    return found


def _remove(home: str) -> None:
    """Remove the run's home; what cannot be removed the service removes, which may have more rights."""
    for directory, _, _ in os.walk(home):
        os.chmod(directory, 0o700)
    for directory, names, files in os.walk(home, topdown=False):
        for name in files:
            os.unlink(f"{directory}/{name}")
        for name in names:
            path = f"{directory}/{name}"
            if os.path.islink(path):
                os.unlink(path)
            else:
                os.rmdir(path)
    os.rmdir(home)


def _prctl(option: int, argument: int) -> int:
    return int(_LIBC.prctl(option, ctypes.c_ulong(argument), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)))


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(result)
