"""The part of STS that AWS clients need: GetCallerIdentity."""

from trainshed_service.sts.operations import OPERATIONS

__all__ = ["OPERATIONS"]
