"""SageMaker's training operations and the validation of their requests.

`validation.validate` is what other doors (REST, command line) call; `OPERATIONS` is the AWS door.
"""

from trainshed_service.sagemaker.validation import validate

__all__ = ["OPERATIONS", "validate"]


def __getattr__(name: str) -> object:
    if name == "OPERATIONS":
        from trainshed_service.sagemaker.operations import OPERATIONS

        return OPERATIONS
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
