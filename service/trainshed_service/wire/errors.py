"""The one error that operations raise towards a client. The protocol of the call decides how it is framed.

`code` is AWS's error code without a namespace, `message` a sentence for people: neither ever holds a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ApiError(Exception):
    """An answer other than success: `status` 4xx is the caller's fault, 5xx ours (clients retry those)."""

    def __init__(
        self,
        code: str,
        message: str,
        status: int = 400,
        *,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
        self.detail = dict(detail or {})
        """Further members of the error body (JSON framing only), by their name on the wire."""


def validation_error(message: str) -> ApiError:
    """The request is well-formed but says something that is not allowed."""
    return ApiError("ValidationException", message)


def not_found() -> ApiError:
    """AWS's answer for a SageMaker resource that does not exist: a ValidationException, on which waiters end."""
    return validation_error("Requested resource not found.")


def access_denied(message: str) -> ApiError:
    return ApiError("AccessDeniedException", message)


def resource_in_use(message: str) -> ApiError:
    return ApiError("ResourceInUse", message)


def serialization_error(message: str) -> ApiError:
    """The body is not what the protocol says it is; nothing of it was looked at."""
    return ApiError("SerializationException", message)


def internal_error() -> ApiError:
    """An unexpected fault. The text tells nothing of its nature; the service's log has it under the request id."""
    return ApiError("InternalFailure", "We encountered an internal error. Please try again.", 500)
