"""The planner: memory, bytes and time of a sharded training job before it runs, and the degree to take.

Pure arithmetic over published figures; imports neither torch nor numpy, so the service and the command line use it.
"""

from trainshed_runtime.planner.plan import Choice, Cluster, Plan, make_plan, rule_of_thumb
from trainshed_runtime.planner.request import InstanceFacts, PlanError, Request, answer, from_text, parse_request

__all__ = [
    "Choice",
    "Cluster",
    "InstanceFacts",
    "Plan",
    "PlanError",
    "Request",
    "answer",
    "from_text",
    "make_plan",
    "parse_request",
    "rule_of_thumb",
]
