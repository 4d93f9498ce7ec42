"""Who makes a request. A principal is what a verified signature or token stands for; it is never built from input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Principal:
    """`user`: a person or tool with a key of their own. `job`: the short-lived key of one attempt, with a policy."""

    kind: Literal["user", "job"]
    name: str
    """User name, or the attempt's id."""
    account_id: str
    arn: str
    is_admin: bool = False
    user_id: int | None = None
    attempt_id: str | None = None
    policy: Mapping[str, Any] | None = field(default=None, hash=False)
    """What a job may do; None for users."""


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """An access key as SigV4 needs it. The secret is in the clear: never log it, never store it."""

    access_key_id: str
    secret: str = field(repr=False)
    principal: Principal
    session_token_hash: str | None
    policy: Mapping[str, Any] | None
    expires_at: float | None
    active: bool


@dataclass(frozen=True, slots=True)
class Credentials:
    """A key that was just made (or unsealed for its owner)."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    expires_at: float | None = None
