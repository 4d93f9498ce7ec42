"""The cookies of the dashboard, by name. A browser keeps cookies per host and not per port, so each installation on a
machine has names of its own; over https they carry `__Host-`, which no other host or path can set."""

from __future__ import annotations

from trainshed_service.services import Services


def session_cookie(services: Services) -> str:
    """Holds the token of a session (`identity.sessions`)."""
    return _name(services, "session")


def login_cookie(services: Services) -> str:
    """Holds a random value that ties the login form to a browser."""
    return _name(services, "login")


def _name(services: Services, what: str) -> str:
    settings = services.settings
    prefix = "__Host-" if settings.resolved_public_url.startswith("https:") else ""
    return f"{prefix}trainshed-{what}-{settings.account_id}-{settings.port}"
