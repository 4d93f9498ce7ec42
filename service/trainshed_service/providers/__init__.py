"""Capacity: which instance types there are, and (later) where nodes come from."""

from trainshed_service.providers.instance_types import (
    InstanceType,
    add_types,
    added_types,
    is_stand_in,
    known_type,
    load_types,
)

__all__ = ["InstanceType", "add_types", "added_types", "is_stand_in", "known_type", "load_types"]
