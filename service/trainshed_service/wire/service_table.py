"""The AWS services that the main port answers, and how their calls are told apart.

One row per service: its botocore model, its signing name, the prefix of its X-Amz-Target, its protocols and the error
code that it uses for a request that breaks its model.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainshed_service.wire.signature_errors import Framing


@dataclass(frozen=True, slots=True)
class AwsService:
    name: str
    """botocore's name; also the key under which operations are registered."""
    signing_name: str
    target_prefix: str | None
    query: bool
    """Speaks the query protocol (form in, XML out)."""
    validation_code: str
    denied_code: str

    @property
    def json_framing(self) -> Framing:
        return Framing.JSON


SERVICES = (
    AwsService("sagemaker", "sagemaker", "SageMaker", False, "ValidationException", "AccessDeniedException"),
    AwsService("logs", "logs", "Logs_20140328", False, "InvalidParameterException", "AccessDeniedException"),
    AwsService("cloudwatch", "monitoring", "GraniteServiceVersion20100801", True, "ValidationError", "AccessDenied"),
    AwsService("sts", "sts", None, True, "ValidationError", "AccessDenied"),
    AwsService("iam", "iam", None, True, "ValidationError", "AccessDenied"),
)

BY_TARGET = {service.target_prefix: service for service in SERVICES if service.target_prefix}
BY_SIGNING_NAME = {service.signing_name: service for service in SERVICES}
