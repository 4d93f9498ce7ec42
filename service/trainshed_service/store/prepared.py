"""Statements for hot paths: compiled once, then run on the driver's own connection, which keeps them prepared.

SQLAlchemy's Core takes several times as long per statement as SQLite does. What stays of it here is what matters: the
statement is written with the tables of `models`, values go through the types of their columns, and errors are
SQLAlchemy's.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Dialect, Table, and_, bindparam, insert, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session
from sqlalchemy.sql import Executable

T = TypeVar("T")
Row = tuple[Any, ...]
_Process = Callable[[Any], Any]


class Prepared:
    """One SELECT, one INSERT with or without RETURNING, one UPDATE or DELETE. Parameters are named as in the
    statement."""

    def __init__(self, statement: Executable) -> None:
        self._statement = statement
        self._by_dialect: dict[str, _Compiled] = {}

    @classmethod
    def insert(cls, table: Table, *columns: str, returning: ColumnElement[Any] | None = None) -> Prepared:
        """One row; each of `columns` is a parameter, all others stay null (defaults of the model are not looked at)."""
        statement = insert(table).values({name: bindparam(name) for name in columns})
        return cls(statement if returning is None else statement.returning(returning))

    def run(self, session: Session, parameters: Mapping[str, Any]) -> list[Row]:
        """Run it in the session's transaction; its rows."""
        return self._on_connection(session, _Compiled.rows, parameters)

    def find(self, session: Session, parameters: Mapping[str, Any]) -> list[Any]:
        """As `run`; the rows have their columns as attributes."""
        return self._on_connection(session, _Compiled.named, parameters)

    def change(self, session: Session, parameters: Mapping[str, Any]) -> int:
        """Run an UPDATE or DELETE; how many rows it changed."""
        return self._on_connection(session, _Compiled.change, parameters)

    def _on_connection(
        self, session: Session, action: Callable[[_Compiled, Any, Mapping[str, Any]], T], parameters: Mapping[str, Any]
    ) -> T:
        connection = session.connection()
        driver = connection.connection.dbapi_connection
        compiled = self.on(connection.dialect)
        try:
            return action(compiled, driver, parameters)
        except connection.dialect.loaded_dbapi.Error as error:
            raise _wrapped(error, compiled.sql, connection) from error

    def on(self, dialect: Dialect) -> _Compiled:
        compiled = self._by_dialect.get(dialect.name)
        if compiled is None:
            compiled = self._by_dialect[dialect.name] = _Compiled(self._statement, dialect)
        return compiled


def set_where(
    session: Session,
    table: Table,
    guard: Mapping[str, Any],
    values: Mapping[str, Any],
    *,
    counting: str | None = None,
) -> int:
    """UPDATE the rows whose columns equal all of `guard` (no nulls); how many were changed: none, where somebody else
    was faster. The column named by `counting` gets one more."""
    statement = _update(table, tuple(guard), tuple(values), counting)
    return statement.change(
        session,
        {f"is_{name}": value for name, value in guard.items()}
        | {f"to_{name}": value for name, value in values.items()},
    )


@cache
def _update(table: Table, guards: tuple[str, ...], columns: tuple[str, ...], counting: str | None) -> Prepared:
    """One for each set of columns that the code names: there are a few dozen."""
    values: dict[str, Any] = {name: bindparam(f"to_{name}") for name in columns}
    if counting is not None:
        values[counting] = table.c[counting] + 1
    # the types of the columns go with the comparison and with the value
    return Prepared(
        update(table).where(and_(*(table.c[name] == bindparam(f"is_{name}") for name in guards))).values(values)
    )


def add_row(session: Session, table: Table, values: Mapping[str, Any]) -> None:
    """INSERT one row. Columns that are not named stay null: defaults of the model are not looked at."""
    _insert(table, tuple(values)).run(session, values)


@cache
def _insert(table: Table, columns: tuple[str, ...]) -> Prepared:
    return Prepared.insert(table, *columns)


class _Compiled:
    def __init__(self, statement: Executable, dialect: Dialect) -> None:
        compiled: Any = statement.compile(dialect=dialect)  # type: ignore[attr-defined]
        self.sql = str(compiled)
        self._positional: list[str] | None = compiled.positiontup
        self._constants: dict[str, Any] = {name: value for name, value in compiled.params.items() if value is not None}
        names: list[str] = self._positional if self._positional is not None else list(compiled.params)
        types = {name: bind.type for bind, name in compiled.bind_names.items()}
        self._inward = {
            name: process for name in names if (process := _bind_processor(types[name], dialect)) is not None
        }
        columns = list(getattr(statement, "exported_columns", ()))
        self._types = [column.type for column in columns]
        self._named: Any = namedtuple("_named", [column.key for column in columns], rename=True)  # type: ignore[misc]
        self._outward: list[_Process | None] | None = None  # known when the driver has told its own types
        self._dialect = dialect

    def rows(self, driver: Any, parameters: Mapping[str, Any]) -> list[Row]:
        """Run it on a connection of the driver. Raises the driver's errors."""
        cursor = self._execute(driver, parameters)
        if not self._types:
            cursor.close()
            return []
        rows: list[Row] = cursor.fetchall()
        if self._outward is None:
            self._outward = self._processors(cursor.description)
        cursor.close()
        if not any(self._outward):
            return rows
        outward = self._outward
        return [
            tuple(value if process is None else process(value) for value, process in zip(row, outward, strict=True))
            for row in rows
        ]

    def named(self, driver: Any, parameters: Mapping[str, Any]) -> list[Any]:
        return [self._named._make(row) for row in self.rows(driver, parameters)]

    def change(self, driver: Any, parameters: Mapping[str, Any]) -> int:
        cursor = self._execute(driver, parameters)
        count: int = cursor.rowcount
        cursor.close()
        return count

    def _execute(self, driver: Any, parameters: Mapping[str, Any]) -> Any:
        values = {**self._constants, **parameters} if self._constants else dict(parameters)
        for name, process in self._inward.items():
            values[name] = process(values[name])
        bound = values if self._positional is None else [values[name] for name in self._positional]
        return driver.execute(self.sql, bound)

    def _processors(self, description: Any) -> list[_Process | None]:
        return [
            kind.dialect_impl(self._dialect).result_processor(self._dialect, column[1])
            for kind, column in zip(self._types, description, strict=True)
        ]


def _bind_processor(kind: Any, dialect: Dialect) -> _Process | None:
    process: _Process | None = kind.dialect_impl(dialect).bind_processor(dialect)
    return process


def _wrapped(error: Exception, sql: str, connection: Connection) -> BaseException:
    """The error as SQLAlchemy raises it; a connection that is lost is not used again."""
    dialect = connection.dialect
    lost = dialect.is_disconnect(error, connection.connection.dbapi_connection, None)  # type: ignore[arg-type]
    if lost:
        connection.invalidate(error)
    return DBAPIError.instance(
        sql,
        None,
        error,
        dialect.loaded_dbapi.Error,
        connection_invalidated=lost,
        dialect=dialect,
    )
