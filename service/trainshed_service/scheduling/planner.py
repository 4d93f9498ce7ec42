"""First-come gang placement as a pure function: `step(state, event, now) -> (state, decisions)`.

Invariants:

* A job gets all of its instances in one decision or none; no node is given twice.
* Jobs are served in the order of their creation. A job that must wait for nodes that are busy holds back those behind
  it; one that all present nodes together could not hold holds back nobody, and is told what is missing.
* No I/O and no clock; the same events give the same decisions. A decision is already part of the returned state: the
  applier either commits it or rebuilds the state from the database.
* A new job costs the same however many wait: only a change of the nodes, or the end of the waiting of the job at the
  head, makes the queue be walked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from trainshed_service.scheduling.events import (
    Decision,
    JobGone,
    JobQueued,
    Needs,
    NodeFree,
    NodeGone,
    NodeTaken,
    Place,
    PlannerEvent,
    PoolAvailable,
    PoolEnded,
    Wait,
)
from trainshed_service.scheduling.matching import match, shortfall
from trainshed_service.scheduling.queue import JobQueue


@dataclass(frozen=True)
class NodeView:
    node_id: str
    instance_types: frozenset[str]
    free: bool


@dataclass(frozen=True)
class Outlook:
    """What the nodes mean for all jobs that need the same instances."""

    now: bool
    """The free nodes can hold it."""
    ever: bool
    """All present nodes together can hold it."""
    reason: str
    """E.g. 'Waiting for capacity: needs 4 × ml.c5.xlarge; 1 free, 3 busy'."""


@dataclass(frozen=True)
class State:
    """Never changed in place. `queue` is ordered by job id. `waits` are the reasons last given (not repeated)."""

    nodes: dict[str, NodeView] = field(default_factory=dict)
    queue: JobQueue[JobQueued] = field(default_factory=JobQueue)
    waits: dict[int, str] = field(default_factory=dict)
    head: int | None = None
    """The job that waits for busy nodes and holds back those behind it."""
    outlooks: dict[Needs, Outlook] = field(default_factory=dict, compare=False, repr=False)
    """What was computed of `nodes` already; a state with other nodes begins with none."""

    def outlook(self, job: JobQueued) -> Outlook:
        found = self.outlooks.get(job.needs)
        if found is None:
            found = self.outlooks[job.needs] = _look(self.nodes, job)
        return found

    def with_nodes(self, nodes: dict[str, NodeView]) -> State:
        return replace(self, nodes=nodes, outlooks={})


def step(state: State, event: PlannerEvent, now: float) -> tuple[State, list[Decision]]:
    """Take in one event and decide. `now` is unused by first-come order and part of the contract for other orders."""
    del now
    match event:
        case JobQueued():
            if event.job_id in state.queue:
                return state, []
            held_back = state.head is not None and event.job_id > state.head
            state = replace(state, queue=state.queue.with_job(event.job_id, event))
            return (state, []) if held_back else _decide(state, [event])
        case JobGone():
            if event.job_id not in state.queue:
                return state, []
            held_back_others = event.job_id == state.head
            state = _without(state, event.job_id)
            return _decide(state, state.queue.behind(event.job_id)) if held_back_others else (state, [])
        case NodeFree() | NodeTaken():
            view = NodeView(event.node_id, event.instance_types, isinstance(event, NodeFree))
            if state.nodes.get(event.node_id) == view:
                return state, []
            state = state.with_nodes({**state.nodes, event.node_id: view})
        case NodeGone():
            if event.node_id not in state.nodes:
                return state, []
            state = state.with_nodes({k: v for k, v in state.nodes.items() if k != event.node_id})
        case _:
            return state, []
    return _decide(replace(state, head=None), state.queue.values())


def restore(events: Iterable[PlannerEvent], now: float) -> tuple[State, list[Decision]]:
    """What the steps of nodes that came and jobs that were queued lead to, in one walk of the queue."""
    del now
    nodes: dict[str, NodeView] = {}
    jobs: list[tuple[int, JobQueued]] = []
    for event in events:
        match event:
            case NodeFree() | NodeTaken():
                nodes[event.node_id] = NodeView(event.node_id, event.instance_types, isinstance(event, NodeFree))
            case JobQueued():
                jobs.append((event.job_id, event))
            case _:
                pass
    state = State(nodes=nodes, queue=JobQueue(jobs))
    return _decide(state, state.queue.values())


def explain(state: State, job_id: int) -> str | None:
    """Why a job waits, computed when somebody asks. None: it is not in the queue."""
    job = state.queue.get(job_id)
    if job is None:
        return None
    reason = state.outlook(job).reason
    ahead = state.queue.position(job_id)
    if ahead == 0:
        return reason
    return f"{reason}; {ahead} job{'s' if ahead > 1 else ''} ahead in the queue"


def _decide(state: State, jobs: Iterable[JobQueued]) -> tuple[State, list[Decision]]:
    """Look at `jobs`, of the queue and in its order, until one must wait for nodes that are busy: the new head."""
    decisions: list[Decision] = []
    for job in jobs:
        outlook = state.outlook(job)
        if outlook.now:
            chosen = match(job.members, _free(state.nodes), job.avoid)
            assert chosen is not None  # nodes to avoid are taken last, not refused
            decisions.append(Place(job, chosen))
            state = _take(_without(state, job.job_id), chosen)
        elif outlook.ever:
            if state.waits.get(job.job_id) != outlook.reason:
                decisions.append(Wait(job.job_id, outlook.reason))
                state = replace(state, waits={**state.waits, job.job_id: outlook.reason})
            return replace(state, head=job.job_id), decisions
    return state, decisions


def _look(nodes: dict[str, NodeView], job: JobQueued) -> Outlook:
    fleet = {node.node_id: node.instance_types for node in nodes.values()}
    ever = match(job.members, fleet, frozenset()) is not None
    now = ever and match(job.members, _free(nodes), frozenset()) is not None
    needs = " and ".join(f"{count} × {name}" for name, count in job.needs)
    wanted = frozenset(name for name, _ in job.needs)
    usable = [node for node in nodes.values() if not node.instance_types or node.instance_types & wanted]
    free = sum(1 for node in usable if node.free)
    words = f"Waiting for capacity: needs {needs}; {free} free, {len(usable) - free} busy"
    if not ever:
        lacking = shortfall(job.members, fleet)
        words = f"{words}. More than all present nodes together: the job waits until {lacking} join"
    return Outlook(now, ever, words)


def _free(nodes: dict[str, NodeView]) -> dict[str, frozenset[str]]:
    return {node.node_id: node.instance_types for node in nodes.values() if node.free}


def _without(state: State, job_id: int) -> State:
    waits = state.waits
    if job_id in waits:
        waits = {key: reason for key, reason in waits.items() if key != job_id}
    head = None if state.head == job_id else state.head
    return replace(state, queue=state.queue.without(job_id), waits=waits, head=head)


def _take(state: State, chosen: tuple[str, ...]) -> State:
    taken = {node_id: replace(state.nodes[node_id], free=False) for node_id in chosen}
    return state.with_nodes({**state.nodes, **taken})
