"""Nodes: enrollment, leases, what agents report and what the service wants of them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainshed_service.nodes.service import NodeService

__all__ = ["NodeService", "agent_routes"]


def __getattr__(name: str) -> Any:
    """Loaded on first use, since the service imports jobs, and jobs are imported by much else."""
    if name == "NodeService":
        from trainshed_service.nodes.service import NodeService

        return NodeService
    if name == "agent_routes":
        from trainshed_service.nodes.routes import agent_routes

        return agent_routes
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
