"""The pages for people, at `/` of the main port. `claims(scope)` says which requests are theirs."""

from trainshed_service.dashboard.app import create_dashboard
from trainshed_service.dashboard.routing import claims

__all__ = ["claims", "create_dashboard"]
