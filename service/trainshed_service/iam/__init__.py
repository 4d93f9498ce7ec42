"""The part of IAM that the SageMaker SDKs ask: GetRole, ListRoles, SimulatePrincipalPolicy."""

from trainshed_service.iam.operations import OPERATIONS

__all__ = ["OPERATIONS"]
