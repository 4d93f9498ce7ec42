"""botocore's service models, loaded from the installed botocore at first use and kept."""

from __future__ import annotations

from functools import cache
from typing import Any

import botocore.loaders
from botocore.model import OperationModel, ServiceModel


@cache
def service_model(name: str) -> ServiceModel:
    """The newest model of a service, by botocore's name of it."""
    description: dict[str, Any] = _loader().load_service_model(name, "service-2")
    return ServiceModel(description, name)


@cache
def operation_model(service: str, operation: str) -> OperationModel | None:
    """None where the service has no operation of that name."""
    model = service_model(service)
    return model.operation_model(operation) if operation in model.operation_names else None


@cache
def _loader() -> botocore.loaders.Loader:
    return botocore.loaders.Loader()
