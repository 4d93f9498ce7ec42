"""Who may do what: users, access keys, roles, tokens, and the credentials of jobs."""

from trainshed_service.identity.policy import PolicyError, allows, job_policy
from trainshed_service.identity.principal import Credentials, KeyRecord, Principal
from trainshed_service.identity.service import DEFAULT_ROLE, Bootstrap, IdentityService

__all__ = [
    "DEFAULT_ROLE",
    "Bootstrap",
    "Credentials",
    "IdentityService",
    "KeyRecord",
    "PolicyError",
    "Principal",
    "allows",
    "job_policy",
]
