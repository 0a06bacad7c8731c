"""Code port: an interpreter of code that models write, which calls tools and does nothing else to the world."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from pydantic import JsonValue

from portico.domain.value import value


@value
class CodeProgram:
    """Code to run. It may call `functions`, by name and with keyword arguments.

    The same program with the same results of its calls goes the same way in every run: its clock stands at
    `started_at`, in Unix seconds, and its random numbers follow from the `seed`.
    """

    code: str
    functions: frozenset[str]
    started_at: float
    seed: str


@value
class FunctionCall:
    """A call that code has made and not heard of yet."""

    function: str
    arguments: Mapping[str, JsonValue]


@value
class FunctionResult:
    """The result of a call: a value, or the text of an exception that the code is to catch."""

    value: JsonValue = None
    error: str | None = None


@value
class CodeEnd:
    """The end of code: the value of its last expression, or what went wrong, and what it printed."""

    result: JsonValue
    output: str
    error: str | None = None


CodeTurn: TypeAlias = Sequence[FunctionCall] | CodeEnd
"""Where a turn leads: to calls that the code waits for, in the order in which it made them, or to its end."""


class CodeNotStarted(Exception):  # noqa: N818 - nothing has begun
    """The interpreter could not be started."""


class CodeRun(Protocol):
    """One run of a program."""

    async def start(self) -> CodeTurn:
        """Run the code until it can only wait, or ends. Raises: CodeNotStarted."""
        ...

    async def resume(self, results: Sequence[FunctionResult]) -> CodeTurn:
        """Go on with the results of all calls that it waits for, in their order."""
        ...


class CodeInterpreter(Protocol):
    """Interpreter of code."""

    @property
    def version(self) -> str:
        """Return its version: another one may go another way."""
        ...

    def open(self, program: CodeProgram) -> AbstractAsyncContextManager[CodeRun]:
        """Open a run in a process of its own, which ends with the context."""
        ...
