"""How an instance's processes are started: the hyperparameters that the SDKs send choose the launcher.

`plan` is called by the agent once code, data and requirements are in place. It starts nothing.
"""

from trainshed_worker.launchers.selection import select
from trainshed_worker.launchers.support import support_paths
from trainshed_worker.launchers.types import (
    Command,
    Environment,
    LaunchEnvironment,
    LaunchPlan,
    LaunchRefused,
    Layout,
)
from trainshed_worker.protocol import Assignment

__all__ = [
    "Command",
    "Environment",
    "LaunchEnvironment",
    "LaunchPlan",
    "LaunchRefused",
    "Layout",
    "plan",
    "support_paths",
]


def plan(assignment: Assignment, layout: Layout, environment: Environment) -> LaunchPlan:
    """Returns what this host starts; raises LaunchRefused where the job cannot be started as asked."""
    return select(assignment, layout, environment)
