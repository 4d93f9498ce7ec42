"""The processes of the service that share a database: one leads, all tell each other what they committed.

Invariants:

* At most one process leads at a time. Where two still act for a moment, guarded updates let one of them win.
* A process listens before it serves, and asks for what it missed whenever it begins to listen.
* `tell` never blocks and never fails; what is told meanwhile goes out as one message.

A SQLite database belongs to one process, which leads alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from sqlalchemy.engine import make_url

from trainshed_service.replicas.message import Message

Received = Callable[[Message], None]
ChangeRole = Callable[[bool], Awaitable[None]]


class Group(Protocol):
    @property
    def leads(self) -> bool:
        """Whether this process does what only one may do."""
        ...

    async def join(self, received: Received, change_role: ChangeRole) -> None:
        """Begin to listen. `received` gets what the others say; `change_role` is awaited with `leads` once before this
        returns, and whenever it has changed."""

    def message(self, **members: Any) -> Message:
        """A message of this process."""
        ...

    def tell(self, message: Message) -> None:
        """Say it to all others."""

    async def leave(self) -> None:
        """Somebody else may lead."""


class Alone:
    """The only process: leads from the beginning, has nobody to tell."""

    leads = True

    async def join(self, received: Received, change_role: ChangeRole) -> None:
        del received
        await change_role(True)

    def message(self, **members: Any) -> Message:
        return Message("alone", **members)

    def tell(self, message: Message) -> None:
        del message

    async def leave(self) -> None:
        return


def open_group(url: str) -> Group:
    """The group of the processes that use the database at `url`."""
    if make_url(url).drivername.startswith("sqlite"):
        return Alone()
    from trainshed_service.replicas.postgres import PostgresGroup

    return PostgresGroup(url)
