"""The port through which messages leave, and its adapters by kind of URL.

A channel serves one target for a while: messages one after the other over the same connection or helper process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from trainshed_service.notifications.apprise_process import AppriseChannel
from trainshed_service.notifications.masking import scheme_of
from trainshed_service.notifications.messages import Message
from trainshed_service.notifications.outcome import Outcome
from trainshed_service.notifications.webhook import SCHEMES, WebhookChannel


class Channel(Protocol):
    heavy: ClassVar[bool]
    """It costs a process: only a few are open at once."""

    async def send(self, message: Message) -> Outcome:
        """Deliver it, in bounded time. Never raises for what the other side does."""
        ...

    async def close(self) -> None: ...


class Channels(Protocol):
    def open(self, url: str, *, any_address: bool, trusted: bool) -> Channel:
        """`any_address`: also at private ones. `trusted`: an administrator's, which may use files of this machine."""
        ...


@dataclass(frozen=True)
class RealChannels:
    """A webhook for http and https; apprise for everything else."""

    def open(self, url: str, *, any_address: bool, trusted: bool) -> Channel:
        if scheme_of(url) in SCHEMES:
            return WebhookChannel(url, any_address=any_address)
        return AppriseChannel(url, any_address=any_address, trusted=trusted)
