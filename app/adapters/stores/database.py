"""What both databases have in common: statements compiled once, and transactions that do no input or output themselves.

A transaction is a generator: it yields what it asks of the database and is sent the rows. So there is one
implementation of every query; `sqlite.py` and `postgres.py` only run them. It may be started anew when the database
wants it tried again, and must do nothing else than ask.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from sqlalchemy import Delete, Insert, Select, Update, make_url
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Dialect

T = TypeVar("T")
Backend = Literal["sqlite", "postgresql"]
ResultRows: TypeAlias = "Sequence[ResultRow]"
Parameters: TypeAlias = Mapping[str, Any]
Insertion: TypeAlias = "Callable[..., postgresql.Insert] | Callable[..., sqlite.Insert]"
"""The `insert` of either dialect; both know ON CONFLICT."""
_INSERTIONS: Mapping[Backend, Insertion] = MappingProxyType({"sqlite": sqlite.insert, "postgresql": postgresql.insert})
DIALECTS: Mapping[Backend, Dialect] = MappingProxyType(
    {
        "sqlite": make_url("sqlite+pysqlite://").get_dialect()(),
        "postgresql": make_url("postgresql+asyncpg://").get_dialect()(),
    }
)


class ResultRow(Protocol):
    """One row of an answer, by position."""

    def __getitem__(self, index: int, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...


@dataclass(frozen=True, slots=True)
class CompiledStatement:
    """A statement as one database reads it. `values` are its parameters in order, from those given by name.

    `row` is the part of an insertion that holds all of them, so that it may be repeated; empty in anything else.
    """

    sql: str
    parameters: Callable[[Parameters], Sequence[Any]]
    returns_rows: bool
    row_placeholder: str

    def for_rows(self, count: int) -> str:
        """The insertion of so many rows at once."""
        return self.sql.replace(self.row_placeholder, ", ".join([self.row_placeholder] * count), 1)


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """A statement of SQLAlchemy Core; `make` is given the dialect's `insert`. It is compiled when it is first asked."""

    make: Callable[[Any], Select[Any] | Insert | Update | Delete]

    def compiled(self, backend: Backend) -> CompiledStatement:
        return _compile(self, backend)


@dataclass(frozen=True, slots=True)
class StatementCall:
    """One statement, run with each of these values in turn; what it returns for all of them is the answer.

    Of an insertion that is `counted` the answer is one row: how many rows are new.
    """

    statement: Statement
    parameters: Sequence[Parameters]
    count_only: bool = False


Transaction: TypeAlias = Generator[StatementCall, ResultRows, T]


def execute(statement: Statement, values: Parameters) -> Generator[StatementCall, ResultRows, ResultRows]:
    """The rows of one statement, run once."""
    return (yield StatementCall(statement, (values,)))


def execute_each(
    statement: Statement, values: Sequence[Parameters]
) -> Generator[StatementCall, ResultRows, ResultRows]:
    """The rows of one statement run with each of the values; the database is not bothered for none."""
    return (yield StatementCall(statement, values)) if values else ()


def count_inserted(statement: Statement, values: Sequence[Parameters]) -> Generator[StatementCall, ResultRows, int]:
    """How many rows an insertion adds that leaves out what is there already."""
    rows = yield StatementCall(statement, values, count_only=True)
    count: int = rows[0][0]
    return count


class Database(Protocol):
    """Where transactions run. Raises: StorageFailure (STORAGE_UNAVAILABLE, STORAGE_FULL), wherever it is asked."""

    async def write(self, work: Callable[[], Transaction[T]], *, idempotent: bool = False) -> T:
        """Runs it as one transaction, committed when this returns.

        One that a broken connection left in doubt is run anew when it is `recognisable`: when it sees by itself that
        it was applied before. Any other is unavailable then.
        """
        ...

    async def append(self, work: Callable[[], Transaction[T]]) -> T:
        """The same for the one ordered writer, which has a connection of its own. Its work is recognisable."""
        ...

    async def read(self, work: Callable[[], Transaction[T]]) -> T:
        """Runs it on one snapshot, or none when it asks but once; it must not write."""
        ...


@cache
def _compile(statement: Statement, backend: Backend) -> CompiledStatement:
    core = statement.make(_INSERTIONS[backend])
    compiled = core.compile(dialect=DIALECTS[backend])
    names = tuple(compiled.positiontup or ())
    fixed = {name: bind.value for name, bind in compiled.binds.items() if not bind.required}
    sql, row = str(compiled), f"({', '.join('?' * len(names))})"
    returns = bool(compiled.effective_returning) or core.is_select
    return CompiledStatement(sql, _in_order(names, fixed), returns, row if f"VALUES {row}" in sql else "")


def _in_order(names: Sequence[str], fixed: Mapping[str, Any]) -> Callable[[Parameters], Sequence[Any]]:
    known = {name: fixed[name] for name in names if name in fixed}
    if known:
        return lambda values: [known[name] if name in known else values[name] for name in names]
    if len(names) > 1:
        return itemgetter(*names)
    return lambda values: [values[name] for name in names]
