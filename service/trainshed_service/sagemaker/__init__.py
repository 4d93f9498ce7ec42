"""SageMaker's training operations and the validation of their requests.

`validation.validate` is what other doors (REST, command line) call; `OPERATIONS` is the AWS door.
"""

from typing import TYPE_CHECKING, Any

from trainshed_service.sagemaker.validation import load_instance_types, validate

if TYPE_CHECKING:
    from trainshed_service.sagemaker.operations import OPERATIONS

__all__ = ["OPERATIONS", "load_instance_types", "validate"]


def __getattr__(name: str) -> Any:
    if name == "OPERATIONS":
        from trainshed_service.sagemaker.operations import OPERATIONS

        return OPERATIONS
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
