"""Short ways to write jobs and nodes, and to run a planner on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainshed_service.jobs.spec import Member
from trainshed_service.scheduling import (
    Decision,
    JobQueued,
    NodeFree,
    Place,
    PlannerEvent,
    Policy,
    State,
    Wait,
    step,
)

C5, M5, ODD = "ml.c5.xlarge", "ml.m5.large", "ml.own.huge"


def job(
    number: int,
    *types: str,
    user: int | None = None,
    role: str = "",
    seconds: float = 86_400.0,
    expected: float | None = None,
    **more: Any,
) -> JobQueued:
    return JobQueued(
        number,
        f"job-{number}",
        tuple(Member(name) for name in types),
        user_id=user,
        role_arn=role,
        max_runtime_seconds=seconds,
        expected_seconds=expected,
        **more,
    )


def node(name: str, *types: str) -> NodeFree:
    return NodeFree(name, frozenset(types))


def run(*events: PlannerEvent, policy: Policy | None = None, now: float = 0.0) -> tuple[State, list[Decision]]:
    """Each event a step, all at one time."""
    state, decisions = State(policy or Policy()), []
    for event in events:
        state, more = step(state, event, now)
        decisions += more
    return state, decisions


def placed(decisions: Iterable[Decision]) -> dict[int, tuple[str, ...]]:
    """Job → its nodes, in the order of the decisions."""
    return {decision.job.job_id: decision.nodes for decision in decisions if isinstance(decision, Place)}


def reasons(decisions: Iterable[Decision]) -> dict[int, str]:
    return {decision.job_id: decision.reason for decision in decisions if isinstance(decision, Wait)}
