"""The priority of a job: the tag `trainshed:priority` of its request. Higher first; above 0 for administrators only."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from trainshed_service.identity import Principal
from trainshed_service.scheduling.events import MAX_PRIORITY, MIN_PRIORITY
from trainshed_service.wire.errors import access_denied, validation_error

PRIORITY_TAG = "trainshed:priority"


def refuse_change(tags: Iterable[dict[str, Any]]) -> None:
    """ValidationException for a tag that would say another priority than the job has."""
    if any(tag["Key"] == PRIORITY_TAG for tag in tags):
        raise validation_error(f"The priority of a job is given when it is created: '{PRIORITY_TAG}' cannot be added.")


def priority_of(tags: Iterable[dict[str, Any]], principal: Principal) -> int:
    """The last value given; 0 without one. ValidationException where it is no priority, AccessDeniedException where it
    is not for this caller."""
    value = None
    for tag in tags:
        if tag["Key"] == PRIORITY_TAG:
            value = tag.get("Value", "")
    if value is None:
        return 0
    if re.fullmatch(r"[+-]?[0-9]{1,3}", value, re.ASCII) is None or not MIN_PRIORITY <= int(value) <= MAX_PRIORITY:
        raise validation_error(
            f"The tag '{PRIORITY_TAG}' is a whole number from {MIN_PRIORITY} to {MAX_PRIORITY}, not '{value}'."
        )
    if int(value) > 0 and not principal.is_admin:
        raise access_denied(
            f"A priority above 0 is for administrators only; the tag '{PRIORITY_TAG}' is '{value}'. Leave it out, or "
            f"give 0 to {MIN_PRIORITY} to let others go first."
        )
    return int(value)
