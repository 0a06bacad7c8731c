"""The filter of system calls as data: what the kernel of each architecture would answer, played by an interpreter."""

import errno
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from portico.adapters.tools.sandbox import syscalls
from portico.adapters.tools.sandbox.seccomp import ARCHITECTURES, filter_program
from portico.adapters.tools.sandbox.syscalls import CONDITIONAL, LAST, METADATA, Numbers

ALLOWED, KILLED, REFUSED = 0x7FFF0000, 0x80000000, 0x00050000
HEADERS: Final = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
DENIED: Final[Mapping[str, Numbers]] = {
    name: numbers
    for table, rows in vars(syscalls).items()
    if isinstance(rows, Mapping) and table.isupper() and table not in {"CONDITIONAL", "METADATA"}
    for name, numbers in rows.items()
}
CALLS: Final = {"read": (0, 63), "openat": (257, 56), "execve": (59, 221), "futex": (202, 98), "kill": (62, 129)}
"""Calls that every program makes."""
NEW_USER, AF_UNIX, AF_INET, STREAM, DATAGRAM, TIOCSTI = 0x10000000, 1, 2, 1, 2, 0x5412


def verdict(machine: str, number: int, *arguments: int, network: bool = False, metadata: bool = False) -> int:
    """Return what the filter of the machine says about a call, step by step as the kernel does."""
    program = filter_program(machine, network=network, metadata=metadata)
    return play(program, number, ARCHITECTURES[machine].audit, *arguments)


def play(program: bytes, number: int, audit: int, *arguments: int) -> int:
    data = struct.pack("=IIQ6Q", number, audit, 0, *arguments, *[0] * (6 - len(arguments)))
    steps, at, value = list(struct.iter_unpack("=HBBI", program)), 0, 0
    while True:
        code, if_true, if_false, operand = steps[at]
        at += 1
        if code == 0x06:
            return int(operand)
        if code == 0x20:
            value = int(struct.unpack_from("=I", data, operand)[0])
        elif code == 0x54:
            value &= operand
        else:
            holds = {0x15: value == operand, 0x25: value > operand, 0x35: value >= operand, 0x45: value & operand}[code]
            at += if_true if holds else if_false


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_each_call_of_the_table_is_refused_and_what_every_program_needs_is_not(machine: str) -> None:
    column = ARCHITECTURES[machine].column
    refused = [number for numbers in DENIED.values() if (number := numbers[column]) is not None]
    assert len(refused) > 75
    assert {verdict(machine, number) for number in refused} == {REFUSED | errno.EPERM}
    assert {verdict(machine, numbers[column]) for numbers in CALLS.values()} == {ALLOWED}
    changes = [number for numbers in METADATA.values() if (number := numbers[column]) is not None]
    assert {verdict(machine, number) for number in changes} == {REFUSED | errno.EPERM}
    assert {verdict(machine, number, metadata=True) for number in changes} == {ALLOWED}


@pytest.mark.parametrize("machine", ARCHITECTURES)
@pytest.mark.parametrize(
    ("name", "arguments", "network", "expected"),
    [
        ("clone", (NEW_USER,), False, REFUSED | errno.EPERM),
        ("clone", (0x11,), False, ALLOWED),
        ("clone3", (0,), False, REFUSED | errno.ENOSYS),
        ("fallocate", (3,), False, REFUSED | errno.EOPNOTSUPP),
        ("ioctl", (0, TIOCSTI), False, REFUSED | errno.EPERM),
        ("ioctl", (0, 0x5401), False, ALLOWED),
        ("prlimit64", (0,), False, ALLOWED),
        ("prlimit64", (4711,), False, REFUSED | errno.EPERM),
        ("socket", (AF_INET,), False, REFUSED | errno.EPERM),
        ("socket", (AF_INET,), True, ALLOWED),
        ("socket", (AF_UNIX,), True, REFUSED | errno.EPERM),
        ("socketpair", (AF_UNIX, STREAM), False, ALLOWED),
        ("socketpair", (AF_UNIX, DATAGRAM), False, REFUSED | errno.EPERM),
        ("socketpair", (AF_INET, STREAM), True, REFUSED | errno.EPERM),
    ],
)
def test_arguments_decide_about_a_conditional_call(
    machine: str, name: str, arguments: tuple[int, ...], *, network: bool, expected: int
) -> None:
    number = CONDITIONAL[name][ARCHITECTURES[machine].column]
    assert number is not None
    assert verdict(machine, number, *arguments, network=network) == expected


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_another_architecture_and_x32_are_killed_and_a_later_call_is_unknown(machine: str) -> None:
    program = filter_program(machine, network=True, metadata=True)
    [other] = [each.audit for name, each in ARCHITECTURES.items() if name != machine]
    assert play(program, 0, other) == KILLED
    assert verdict(machine, 0x40000000) == KILLED
    assert verdict(machine, LAST + 1) == REFUSED | errno.ENOSYS


def test_the_numbers_are_those_of_the_headers_that_are_installed() -> None:
    for machine, path in HEADERS.items():
        text = path.read_text(encoding="ascii") if path.exists() else ""
        found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)
        numbers, column = {name: int(number) for name, number in found}, ARCHITECTURES[machine].column
        table = {**DENIED, **METADATA, **CONDITIONAL}
        known = {name: row[column] for name, row in table.items() if name in numbers and row[column] is not None}
        assert known == {name: numbers[name] for name in known}
        assert len(known) > 75 or not text
