"""Statements and transactions that run on both databases.

A transaction is a generator without I/O of its own: it yields statement calls and is sent their rows. So every query
has one implementation, which `sqlite.py` and `postgres.py` run. A transaction may be restarted when the database asks
for a retry, so it must have no other effects.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

from sqlalchemy import CompoundSelect, Delete, Insert, Select, Update, make_url
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import Dialect

from portico.domain.value import value

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

T = TypeVar("T")
Backend = Literal["sqlite", "postgresql"]
ResultRows: TypeAlias = "Sequence[ResultRow]"
Parameters: TypeAlias = Mapping[str, Any]
Insertion: TypeAlias = "Callable[..., postgresql.Insert] | Callable[..., sqlite.Insert]"
"""The `insert` of either dialect; both have ON CONFLICT."""
_URLS: Mapping[Backend, str] = MappingProxyType({"sqlite": "sqlite+pysqlite://", "postgresql": "postgresql+asyncpg://"})


class ResultRow(Protocol):
    """One row of a result, by position."""

    def __getitem__(self, index: int, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...


@value
class CompiledStatement:
    """A statement in the SQL of one database; `parameters` orders the parameters that are given by name.

    `row_placeholder` is the part of an insertion with all parameters, which may be repeated; it is empty in any other
    statement.
    """

    sql: str
    parameters: Callable[[Parameters], Sequence[Any]]
    returns_rows: bool
    row_placeholder: str

    def for_rows(self, count: int) -> str:
        """Return the SQL that inserts that many rows at once."""
        return self.sql.replace(self.row_placeholder, ", ".join([self.row_placeholder] * count), 1)


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """A statement of SQLAlchemy Core, made with the dialect's `insert` and compiled when it is first used."""

    make: Callable[[Any], Select[Any] | CompoundSelect[Any] | Insert | Update | Delete]

    def compiled(self, backend: Backend) -> CompiledStatement:
        return _compile(self, backend)


@value
class StatementCall:
    """A statement that is run with each set of parameters in turn; its result has the rows of all of them.

    If `count_only` is set, for an insertion, the result is one row with the number of inserted rows.
    """

    statement: Statement
    parameters: Sequence[Parameters]
    count_only: bool = False


Transaction: TypeAlias = Generator[StatementCall, ResultRows, T]


def execute(statement: Statement, parameters: Parameters) -> Generator[StatementCall, ResultRows, ResultRows]:
    """Run a statement once and return its rows."""
    return (yield StatementCall(statement, (parameters,)))


def execute_each(
    statement: Statement, parameters: Sequence[Parameters]
) -> Generator[StatementCall, ResultRows, ResultRows]:
    """Run a statement with each set of parameters and return all rows; without parameters, run nothing."""
    return (yield StatementCall(statement, parameters)) if parameters else ()


def count_inserted(statement: Statement, parameters: Sequence[Parameters]) -> Generator[StatementCall, ResultRows, int]:
    """Run an insertion that ignores existing rows and return the number of inserted rows."""
    rows = yield StatementCall(statement, parameters, count_only=True)
    count: int = rows[0][0]
    return count


class Database(Protocol):
    """A database that runs transactions, each within a limited time.

    Every coroutine raises StorageFailure (STORAGE_UNAVAILABLE, STORAGE_FULL).
    """

    async def write(self, work: Callable[[], Transaction[T]], *, idempotent: bool = False) -> T:
        """Run a transaction and commit it.

        If the connection breaks during COMMIT, an idempotent transaction is run again, because it recognises that it
        was applied before; any other one fails.
        """
        ...

    async def append(self, work: Callable[[], Transaction[T]]) -> T:
        """Run an idempotent transaction of the ordered writer, which has a connection of its own."""
        ...

    async def maintain(self, work: Callable[[], Transaction[T]]) -> T:
        """Run an idempotent transaction that may take long, as the deletion of many rows does.

        What it deletes does not stay in a log of the database file, unless another process reads it at that moment.
        """
        ...

    async def read(self, work: Callable[[], Transaction[T]]) -> T:
        """Run a transaction that only reads, on one snapshot if it has more than one statement."""
        ...


@cache
def dialect_of(backend: Backend) -> Dialect:
    """Return the dialect of a database; that of PostgreSQL is imported when it is first used."""
    return make_url(_URLS[backend]).get_dialect()()


def _insertion(backend: Backend) -> "Insertion":
    if backend == "sqlite":
        return sqlite.insert
    from sqlalchemy.dialects import postgresql  # noqa: PLC0415 - see above

    return postgresql.insert


@cache
def _compile(statement: Statement, backend: Backend) -> CompiledStatement:
    core = statement.make(_insertion(backend))
    compiled = core.compile(dialect=dialect_of(backend))
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
