"""One request, as far as the gateway understands it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from trainshed_service.s3 import bodies
from trainshed_service.s3.authorization import Caller
from trainshed_service.s3.http_server import Request
from trainshed_service.s3.operations import Operation
from trainshed_service.s3.sse import Asked
from trainshed_service.s3.target import Target

_UNKNOWN = Operation("Unknown")
_NOWHERE = Target("", "")


@dataclass(slots=True)
class Exchange:
    request: Request
    raw_path: str
    raw_query: str
    request_id: str
    headers: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)
    operation: Operation = _UNKNOWN
    target: Target = _NOWHERE
    caller: Caller | None = None
    asked: Asked | None = None
    continue_sent: bool = False
    status: int | None = None
    """Of the answer, once its head is out."""
    sent_bytes: int = 0
    error_code: str | None = None

    def pieces(self) -> AsyncIterator[bytes]:
        """The request's body. Raises ClientGone where it ends early."""
        return bodies.as_received(self.request.body)

    async def send_continue(self) -> None:
        """Answer `Expect: 100-continue`, once, where the client said so."""
        if not self.continue_sent and self.headers.get("expect", "").lower() == "100-continue":
            self.continue_sent = True
            self.request.send_continue()
