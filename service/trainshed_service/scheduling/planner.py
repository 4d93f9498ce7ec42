"""First-come gang placement as a pure function: `step(state, event, now) -> (state, decisions)`.

Invariants:

* A job gets all of its instances in one decision or none; no node is given twice.
* Jobs are served in the order of their creation. A job that must wait for nodes that are busy holds back those behind
  it; one that all present nodes together could not hold holds back nobody, and is told what is missing.
* No I/O and no clock; the same events give the same decisions. A decision is already part of the returned state: the
  applier either commits it or rebuilds the state from the database.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from trainshed_service.jobs.spec import Member, gang
from trainshed_service.scheduling.matching import match, shortfall


@dataclass(frozen=True)
class JobQueued:
    job_id: int
    name: str
    members: tuple[Member, ...]
    avoid: frozenset[str] = frozenset()
    """Nodes that rejected or lost this job before: taken only where no others fit."""

    @classmethod
    def of(cls, job_id: int, name: str, request: dict[str, Any], avoid: frozenset[str] = frozenset()) -> JobQueued:
        return cls(job_id, name, gang(request), avoid)


@dataclass(frozen=True)
class JobGone:
    job_id: int


@dataclass(frozen=True)
class NodeFree:
    """A node may be used. `instance_types` empty: it becomes any known type."""

    node_id: str
    instance_types: frozenset[str]


@dataclass(frozen=True)
class NodeTaken:
    """A node is there but held (after a restart, by an attempt that goes on)."""

    node_id: str
    instance_types: frozenset[str]


@dataclass(frozen=True)
class NodeGone:
    """A node is lost, quarantined or withdrawn."""

    node_id: str


PlannerEvent = JobQueued | JobGone | NodeFree | NodeTaken | NodeGone


@dataclass(frozen=True)
class Place:
    """`nodes[rank]` is the node of `algo-<rank + 1>`."""

    job: JobQueued
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Wait:
    """Why the job at the head waits, to be stored. For all others the reason is computed when somebody asks."""

    job_id: int
    reason: str


Decision = Place | Wait


@dataclass(frozen=True)
class NodeView:
    node_id: str
    instance_types: frozenset[str]
    free: bool


@dataclass(frozen=True)
class State:
    """Never changed in place. `queue` is ordered by job id. `waits` are the reasons last given (not repeated)."""

    nodes: dict[str, NodeView] = field(default_factory=dict)
    queue: dict[int, JobQueued] = field(default_factory=dict)
    waits: dict[int, str] = field(default_factory=dict)
    head: int | None = None
    """The job that waits for busy nodes and holds back those behind it."""


def step(state: State, event: PlannerEvent, now: float) -> tuple[State, list[Decision]]:
    """Take in one event and decide. `now` is unused by first-come order and part of the contract for other orders."""
    del now
    match event:
        case JobQueued():
            if event.job_id in state.queue:
                return state, []
            in_order = not state.queue or event.job_id > next(reversed(state.queue))
            queue = {**state.queue, event.job_id: event}
            state = replace(state, queue=queue if in_order else dict(sorted(queue.items())))
            if in_order:
                return _decide(state, [event], state.head)
        case JobGone():
            if event.job_id not in state.queue:
                return state, []
            state = _without(state, event.job_id)
        case NodeFree() | NodeTaken():
            view = NodeView(event.node_id, event.instance_types, isinstance(event, NodeFree))
            if state.nodes.get(event.node_id) == view:
                return state, []
            state = replace(state, nodes={**state.nodes, event.node_id: view})
        case NodeGone():
            if event.node_id not in state.nodes:
                return state, []
            state = replace(state, nodes={k: v for k, v in state.nodes.items() if k != event.node_id})
    return _decide(state, list(state.queue.values()), None)


def explain(state: State, job_id: int) -> str | None:
    """Why a job waits, for one that is not at the head: computed when somebody asks. None: it is not in the queue."""
    job = state.queue.get(job_id)
    if job is None:
        return None
    ahead = sum(1 for other in state.queue if other < job_id)
    reason = state.waits.get(job_id) or _reason(state, job)
    if ahead == 0:
        return reason
    return f"{reason}; {ahead} job{'s' if ahead > 1 else ''} ahead in the queue"


def _decide(state: State, jobs: list[JobQueued], head: int | None) -> tuple[State, list[Decision]]:
    """Look at `jobs` in order. With a `head` waiting before them none may be placed, only told why it can't."""
    decisions: list[Decision] = []
    hopeless: set[tuple[Member, ...]] = set()
    for job in jobs:
        if job.members in hopeless:
            continue
        chosen = match(job.members, _free(state), job.avoid) if head is None else None
        if chosen is not None:
            decisions.append(Place(job, chosen))
            state = _take(_without(state, job.job_id), chosen)
            continue
        fits = _fits_fleet(state, job)
        if fits and head is not None:
            continue
        reason = _reason(state, job)
        if state.waits.get(job.job_id) != reason:
            if fits:
                decisions.append(Wait(job.job_id, reason))
            state = replace(state, waits={**state.waits, job.job_id: reason})
        if fits:
            head = job.job_id
            break
        hopeless.add(job.members)
    return replace(state, head=head), decisions


def _free(state: State) -> dict[str, frozenset[str]]:
    return {node.node_id: node.instance_types for node in state.nodes.values() if node.free}


def _fits_fleet(state: State, job: JobQueued) -> bool:
    fleet = {node.node_id: node.instance_types for node in state.nodes.values()}
    return match(job.members, fleet, frozenset()) is not None


def _reason(state: State, job: JobQueued) -> str:
    """E.g. 'Waiting for capacity: needs 4 × ml.c5.xlarge; 1 free, 3 busy'."""
    needs = " and ".join(
        f"{count} × {name}" for name, count in Counter(member.instance_type for member in job.members).items()
    )
    wanted = frozenset(member.instance_type for member in job.members)
    usable = [node for node in state.nodes.values() if not node.instance_types or node.instance_types & wanted]
    free = sum(1 for node in usable if node.free)
    words = f"Waiting for capacity: needs {needs}; {free} free, {len(usable) - free} busy"
    if _fits_fleet(state, job):
        return words
    fleet = {node.node_id: node.instance_types for node in state.nodes.values()}
    lacking = shortfall(job.members, fleet)
    return f"{words}. More than all present nodes together: the job waits until {lacking} join"


def _without(state: State, job_id: int) -> State:
    return replace(
        state,
        queue={key: job for key, job in state.queue.items() if key != job_id},
        waits={key: reason for key, reason in state.waits.items() if key != job_id},
        head=None if state.head == job_id else state.head,
    )


def _take(state: State, chosen: tuple[str, ...]) -> State:
    taken = {node_id: replace(state.nodes[node_id], free=False) for node_id in chosen}
    return replace(state, nodes={**state.nodes, **taken})
