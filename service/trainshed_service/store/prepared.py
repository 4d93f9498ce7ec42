"""Statements for hot paths: compiled once, then run on the driver's own connection, which keeps them prepared.

SQLAlchemy's Core takes several times as long per statement as SQLite does. What stays of it here is what matters: the
statement is written with the tables of `models`, values go through the types of their columns, and errors are
SQLAlchemy's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Dialect, Table, bindparam, insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session
from sqlalchemy.sql import Executable

Row = tuple[Any, ...]
_Process = Callable[[Any], Any]


class Prepared:
    """One SELECT, or one INSERT with or without RETURNING. Parameters are named as in the statement."""

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
        connection = session.connection()
        driver = connection.connection.dbapi_connection
        compiled = self.on(connection.dialect)
        try:
            return compiled.rows(driver, parameters)
        except connection.dialect.loaded_dbapi.Error as error:
            raise _wrapped(error, compiled.sql, connection) from error

    def on(self, dialect: Dialect) -> _Compiled:
        compiled = self._by_dialect.get(dialect.name)
        if compiled is None:
            compiled = self._by_dialect[dialect.name] = _Compiled(self._statement, dialect)
        return compiled


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
        self._types = [column.type for column in statement.exported_columns]  # type: ignore[attr-defined]
        self._outward: list[_Process | None] | None = None  # known when the driver has told its own types
        self._dialect = dialect

    def rows(self, driver: Any, parameters: Mapping[str, Any]) -> list[Row]:
        """Run it on a connection of the driver. Raises the driver's errors."""
        values = {**self._constants, **parameters} if self._constants else dict(parameters)
        for name, process in self._inward.items():
            values[name] = process(values[name])
        bound = values if self._positional is None else [values[name] for name in self._positional]
        cursor = driver.execute(self.sql, bound)
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
