"""Jobs: their life-cycle, what made them end, and the service over them.

`JobService` is loaded on first use: the tables import `jobs.states`, and the service imports the tables.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainshed_service.jobs.listing import JobPage, JobQuery
    from trainshed_service.jobs.service import JobService

__all__ = ["JobPage", "JobQuery", "JobService"]


def __getattr__(name: str) -> Any:
    if name == "JobService":
        from trainshed_service.jobs.service import JobService

        return JobService
    if name in ("JobPage", "JobQuery"):
        from trainshed_service.jobs import listing

        return getattr(listing, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
