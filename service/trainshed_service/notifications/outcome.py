"""What became of one delivery."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """`error` null: delivered; else one line without a secret. `retry_after`: seconds that the other side asked for."""

    error: str | None = None
    retry_after: float | None = None


DELIVERED = Outcome()
