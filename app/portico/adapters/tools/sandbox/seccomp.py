"""Filter of system calls as a program for the kernel (classic BPF) [seccomp(2)].

Each rule is a block of its own that ends in a verdict, so no jump leads further than its block. A call that no rule
names is allowed. Another architecture than the machine's, and the x32 calls of x86_64, end the process; a number above
the table's last one is answered as on an older kernel.
"""

import errno
import socket
import struct
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from portico.adapters.tools.sandbox.syscalls import (
    CONDITIONAL,
    INSPECTION,
    KERNEL,
    LAST,
    MEMORY,
    METADATA,
    NAMESPACES,
    NOTIFICATION,
    SCHEDULING,
)
from portico.domain.value import value

_LOAD: Final = 0x20
_JUMP_IF_EQUAL: Final = 0x15
_JUMP_IF_GREATER: Final = 0x25
_JUMP_IF_AT_LEAST: Final = 0x35
_JUMP_IF_SET: Final = 0x45
_AND: Final = 0x54
_RETURN: Final = 0x06

_ALLOW: Final = 0x7FFF0000
_KILL_PROCESS: Final = 0x80000000
_REFUSE: Final = 0x00050000
_NUMBER_OFFSET: Final = 0
_ARCHITECTURE_OFFSET: Final = 4
_X32: Final = 0x40000000

_NEW_NAMESPACES: Final = 0x7E020080
"""Flags of clone(2) that make a namespace: time, mount, cgroup, UTS, IPC, user, PID, network."""
_TERMINAL_REQUESTS: Final = (0x5412, 0x541C, 0x5423)
"""TIOCSTI, TIOCLINUX and TIOCSETD, which write into a terminal or change what it is."""
_SOCKET_TYPE: Final = 0xF
_LOCAL_PAIRS: Final = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)


@value
class Architecture:
    """One machine's audit number [linux/audit.h], and its column in the table of calls."""

    audit: int
    column: int


ARCHITECTURES: Final[Mapping[str, Architecture]] = MappingProxyType(
    {"x86_64": Architecture(0xC000003E, 0), "aarch64": Architecture(0xC00000B7, 1)}
)
"""Machines that have a filter, by their names [uname(2)]."""
_DENIED: Final = (INSPECTION, KERNEL, NAMESPACES, SCHEDULING, MEMORY, NOTIFICATION)


def filter_program(machine: str, *, network: bool, metadata: bool) -> bytes:
    """Return the filter for the machine, as an array of `struct sock_filter`.

    With `network`, sockets of the internet may be made; with `metadata`, owner, mode, times and attributes of files may
    be changed. Raises: KeyError for a machine without a table.
    """
    architecture = ARCHITECTURES[machine]
    return b"".join(_instructions(architecture, network=network, metadata=metadata))


def _instructions(architecture: Architecture, *, network: bool, metadata: bool) -> Iterator[bytes]:
    yield from _prologue(architecture)
    tables = _DENIED if metadata else (*_DENIED, METADATA)
    for table in tables:
        for numbers in table.values():
            yield from _block(numbers[architecture.column], [_refuse(errno.EPERM)])
    for name, verdict in _conditions(network=network).items():
        yield from _block(CONDITIONAL[name][architecture.column], verdict)
    yield _return(_ALLOW)


def _prologue(architecture: Architecture) -> Iterator[bytes]:
    yield _load(_ARCHITECTURE_OFFSET)
    yield _step(_JUMP_IF_EQUAL, architecture.audit, 1, 0)
    yield _return(_KILL_PROCESS)
    yield _load(_NUMBER_OFFSET)
    yield _step(_JUMP_IF_AT_LEAST, _X32, 0, 1)
    yield _return(_KILL_PROCESS)
    yield _step(_JUMP_IF_GREATER, LAST, 0, 1)
    yield _refuse(errno.ENOSYS)


def _conditions(*, network: bool) -> Mapping[str, list[bytes]]:
    """Return what decides about each conditional call: instructions that end in a verdict."""
    families = (socket.AF_INET, socket.AF_INET6) if network else ()
    return {
        "clone": [_argument(0), _step(_JUMP_IF_SET, _NEW_NAMESPACES, 0, 1), _refuse(errno.EPERM), _return(_ALLOW)],
        "clone3": [_refuse(errno.ENOSYS)],
        "fallocate": [_refuse(errno.EOPNOTSUPP)],
        "ioctl": [_argument(1), *_one_of(_TERMINAL_REQUESTS, _refuse(errno.EPERM)), _return(_ALLOW)],
        "prlimit64": [_argument(0), *_one_of((0,), _return(_ALLOW)), _refuse(errno.EPERM)],
        "socket": [_argument(0), *_one_of(families, _return(_ALLOW)), _refuse(errno.EPERM)],
        "socketpair": [
            _argument(0),
            *(_step(_JUMP_IF_EQUAL, socket.AF_UNIX, 1, 0), _refuse(errno.EPERM)),
            *(_argument(1), _step(_AND, _SOCKET_TYPE)),
            *(*_one_of(_LOCAL_PAIRS, _return(_ALLOW)), _refuse(errno.EPERM)),
        ],
    }


def _block(number: int | None, verdict: list[bytes]) -> Iterator[bytes]:
    """Yield the rule of one call; the register has the call's number before it, and after it if it did not match."""
    if number is not None:
        yield _step(_JUMP_IF_EQUAL, number, 0, len(verdict))
        yield from verdict


def _one_of(candidates: tuple[int, ...], verdict: bytes) -> Iterator[bytes]:
    for each in candidates:
        yield _step(_JUMP_IF_EQUAL, each, 0, 1)
        yield verdict


def _argument(index: int) -> bytes:
    """Load the lower half of an argument: all of those that are compared are of 32 bits."""
    return _load(16 + 8 * index)


def _load(offset: int) -> bytes:
    return _step(_LOAD, offset)


def _return(verdict: int) -> bytes:
    return _step(_RETURN, verdict)


def _refuse(number: int) -> bytes:
    return _return(_REFUSE | number)


def _step(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)
