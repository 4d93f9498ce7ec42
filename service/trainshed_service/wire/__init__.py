"""The AWS wire: protocols, signatures, errors and pagination. Operations live in the rooms of their services."""

from trainshed_service.wire.context import Context, Operation, Operations
from trainshed_service.wire.errors import ApiError
from trainshed_service.wire.pagination import PageTokens

__all__ = ["ApiError", "Context", "Operation", "Operations", "PageTokens"]
