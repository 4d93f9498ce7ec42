"""Capacity: which instance types there are, and (later) where nodes come from."""

from trainshed_service.providers.instance_types import InstanceType, is_stand_in, known_type, load_types

__all__ = ["InstanceType", "is_stand_in", "known_type", "load_types"]
