"""Channels of notifications that only remember what was sent; hosts that fail or hang where a test says so."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import ClassVar

from trainshed_service.notifications.messages import Message
from trainshed_service.notifications.outcome import DELIVERED, Outcome


@dataclass
class FakeChannels:
    """`down`: hosts that refuse; `hanging`: hosts that never answer."""

    sent: list[tuple[str, str]] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    down: set[str] = field(default_factory=set)
    hanging: set[str] = field(default_factory=set)
    any_address: dict[str, bool] = field(default_factory=dict)

    def open(self, url: str, *, any_address: bool, trusted: bool) -> FakeChannel:
        host = url.split("/")[2]
        self.any_address[host] = any_address
        assert not trusted or any_address
        return FakeChannel(self, host)

    def of(self, host: str) -> list[str]:
        return [title for to, title in self.sent if to == host]


@dataclass
class FakeChannel:
    heavy: ClassVar[bool] = False
    owner: FakeChannels
    host: str

    async def send(self, message: Message) -> Outcome:
        self.owner.tried.append(self.host)
        if self.host in self.owner.hanging:
            await asyncio.Event().wait()
        if self.host in self.owner.down:
            return Outcome("it is down")
        self.owner.sent.append((self.host, message.title))
        return DELIVERED

    async def close(self) -> None:
        pass
