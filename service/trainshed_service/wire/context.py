"""What an operation is, and what it gets with each call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainshed_service.identity import Principal
    from trainshed_service.services import Services


@dataclass(frozen=True, slots=True)
class Context:
    """One verified, authorized, validated call."""

    principal: Principal
    services: Services
    raw_body: bytes
    """The body as it came, byte for byte."""
    request_id: str
    service: str
    operation: str
    unknown_members: tuple[str, ...] = ()
    """Paths of members that the service model does not know; the operation decides what becomes of them."""


Operation = Callable[[Context, dict[str, Any]], Awaitable[dict[str, Any] | None]]
"""Gets the request as botocore's model shapes it (times are epoch seconds); returns the response in the same way."""

Operations = Mapping[str, Operation]
