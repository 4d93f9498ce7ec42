"""How an instance's processes are started: the hyperparameters that the SDKs send choose the launcher.

`plan` is called by the agent once code, data and requirements are in place. It starts nothing.
"""

from dataclasses import replace

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
from trainshed_worker.launchers.variables import users_own
from trainshed_worker.preload.eligibility import fresh_reason
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
    found = select(assignment, layout, environment)
    own = users_own(assignment)
    commands = [replace(item, fresh=fresh_reason(item.argv, item.env, own)) for item in found.commands]
    return replace(found, commands=commands)
