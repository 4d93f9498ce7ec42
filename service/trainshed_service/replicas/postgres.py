"""A group on PostgreSQL: the leader's connection holds an advisory lock, messages go by NOTIFY.

Invariant: the lock goes with the connection, so the next process leads as soon as the server has noticed that the
leader is gone, and a leader whose connection fails stops to lead before it tries again.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import psycopg
import structlog
from psycopg.conninfo import make_conninfo
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from trainshed_service.replicas.group import ChangeRole, Received
from trainshed_service.replicas.message import Message, decode

_log = structlog.get_logger(__name__)
CHANNEL = "trainshed"
LOCK = 0x747261696E736864
"""`trainshd`: the key of the leader's advisory lock."""
_LOOK_SECONDS = 1.0
_RETRY_SECONDS = 1.0
_KEEPALIVE = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": 15_000}
_FAILURES = (psycopg.Error, SQLAlchemyError, OSError)
Connection = psycopg.AsyncConnection[Any]


class PostgresGroup:
    """`name` is this process in its messages and in `pg_stat_activity`."""

    def __init__(self, url: str) -> None:
        self.name = secrets.token_hex(6)
        plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        self._address = make_conninfo(
            plain, application_name=f"trainshed-{self.name}", client_encoding="utf8", **_KEEPALIVE
        )
        self._leads = False
        self._waiting: Message | None = None
        self._something = asyncio.Event()
        self._joined = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def leads(self) -> bool:
        return self._leads

    async def join(self, received: Received, change_role: ChangeRole) -> None:
        self._tasks = [
            asyncio.create_task(self._listen_always(received, change_role)),
            asyncio.create_task(self._send_always()),
        ]
        await self._joined.wait()

    def message(self, **members: Any) -> Message:
        return Message(self.name, **members)

    def tell(self, message: Message) -> None:
        self._waiting = message if self._waiting is None else self._waiting.merged(message)
        self._something.set()

    async def leave(self) -> None:
        """What was told and is not sent yet is lost, as where the process is killed."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._leads = False

    async def _connect(self) -> Connection:
        return await psycopg.AsyncConnection.connect(self._address, autocommit=True)

    # -- listening and leading -----------------------------------------------------------------------------------

    async def _listen_always(self, received: Received, change_role: ChangeRole) -> None:
        while True:
            try:
                async with await self._connect() as connection:
                    await self._listen(connection, received, change_role)
            except _FAILURES as error:
                _log.warning("replicas.not_listening", error=str(error).strip(), retry_seconds=_RETRY_SECONDS)
            except Exception:  # noqa: BLE001 - the lock went with the connection: whatever it is, this process leads no more
                _log.exception("replicas.not_listening", retry_seconds=_RETRY_SECONDS)
            if self._leads:
                self._leads = False
                await change_role(False)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _listen(self, connection: Connection, received: Received, change_role: ChangeRole) -> None:
        await connection.execute(f"LISTEN {CHANNEL}")
        self._leads = await self._take_lead(connection)
        if self._leads or not self._joined.is_set():
            await change_role(self._leads)
        self.tell(self.message(hello=True))
        if self._joined.is_set():
            received(self.message(everything=True, replan=True))  # whatever was said meanwhile
        self._joined.set()
        while True:
            async for notice in connection.notifies(timeout=_LOOK_SECONDS):
                self._take(notice.payload, received)
            if self._leads:
                await connection.execute("SELECT 1")  # the lock goes with a connection that is gone
            elif await self._take_lead(connection):
                self._leads = True
                await change_role(True)

    async def _take_lead(self, connection: Connection) -> bool:
        found = await (await connection.execute("SELECT pg_try_advisory_lock(%s)", (LOCK,))).fetchone()
        return bool(found and found[0])

    def _take(self, payload: str, received: Received) -> None:
        try:
            message = decode(payload)
        except (ValueError, TypeError):
            _log.warning("replicas.not_understood", payload=payload[:200])
            message = Message("", everything=True, replan=True)
        if message.sender != self.name:
            received(message)

    # -- telling -------------------------------------------------------------------------------------------------

    async def _send_always(self) -> None:
        while True:
            try:
                async with await self._connect() as connection:
                    await self._send(connection)
            except _FAILURES as error:
                _log.warning("replicas.not_telling", error=str(error).strip(), retry_seconds=_RETRY_SECONDS)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _send(self, connection: Connection) -> None:
        while True:
            await self._something.wait()
            self._something.clear()
            message, self._waiting = self._waiting, None
            if message is None:
                continue
            try:
                await connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, message.encode()))
            except BaseException:
                self._waiting = message if self._waiting is None else message.merged(self._waiting)
                self._something.set()
                raise
