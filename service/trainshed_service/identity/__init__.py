"""Who may do what: users, access keys, roles, tokens, and the credentials of jobs."""

from trainshed_service.identity.passing import RolePassing
from trainshed_service.identity.policy import PolicyError, allows, job_policy
from trainshed_service.identity.principal import Credentials, KeyRecord, Principal
from trainshed_service.identity.service import DEFAULT_ROLE, Bootstrap, IdentityService
from trainshed_service.identity.sessions import LINK_SECONDS, SESSION_SECONDS, Sessions, key_origin, token_origin
from trainshed_service.identity.users import Users

__all__ = [
    "DEFAULT_ROLE",
    "LINK_SECONDS",
    "SESSION_SECONDS",
    "Bootstrap",
    "Credentials",
    "IdentityService",
    "KeyRecord",
    "PolicyError",
    "Principal",
    "RolePassing",
    "Sessions",
    "Users",
    "allows",
    "job_policy",
    "key_origin",
    "token_origin",
]
