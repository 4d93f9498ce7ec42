"""One look at the queue, in its order: places what can be placed, and lets jobs overtake only where it delays nobody.

Jobs compete within a *component* (nodes that may serve the same types); a look is confined to the components in which
something changed. A job that is blocked has the nodes for its earliest start set aside; one behind it is placed only
where it fits beside all that is set aside, for its whole maximum runtime. So by the limits of what runs, no job that
comes before another is later because of it.

Invariants:

* What is set aside is exact for the first `MOST_BLOCKED` jobs of each class of nodes (fewer in large ones). Jobs that
  also need nodes outside of the look have theirs set aside from a lower bound of their start, for ever. Behind all
  these a job is placed only if it ends before anything more comes free: none of those in between can start by then.
* In large classes a whole look is made only where it is worth it; that a job could overtake may be seen a little later.
* A job that needs nodes of several components overtakes only in one of them. Where it is the first in any, all of them
  are looked at together, so that two such jobs never wait for each other.
* Jobs that no present nodes could ever hold, or that a quota makes wait, set nothing aside. One that waits for a pool
  that is coming has other nodes set aside all the same: it may start there if the pool does not come in time.
* The look ends after a few times as many jobs, however long the queue is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from trainshed_service.scheduling.events import Place
from trainshed_service.scheduling.matching import Allocation, fit
from trainshed_service.scheduling.ordering import Order
from trainshed_service.scheduling.pooling import promise
from trainshed_service.scheduling.profile import Future
from trainshed_service.scheduling.queue import LaneKey, Shape, Waiting
from trainshed_service.scheduling.state import Refusals, State

MOST_BLOCKED = 32
MOST_BLOCKED_OF_MANY = 4
"""In a class of more than `MANY_NODES`: what a blocked job leaves idle is a small part of it."""
MANY_NODES = 256
ENOUGH_MORE = 1.25
"""There, after a look that placed nothing, the next one waits until so many times as much is free."""


@dataclass(slots=True)
class _Blocked:
    waiting: Waiting
    classes: frozenset[int]
    certain: bool


@dataclass
class Look:
    """What came of it. `blocked`: jobs that wait for capacity, first in order first."""

    places: list[Place] = field(default_factory=list)
    blocked: list[Waiting] = field(default_factory=list)
    promised: dict[int, str] = field(default_factory=dict)
    """Of those, the jobs that wait for a pool that is coming, and for which."""


class Walk:
    def __init__(self, state: State, scope: set[int], *, only: int | None = None) -> None:
        """`only`: nothing is placed but this job is asked about (a preview)."""
        self._state = state
        self._fleet = state.fleet
        self._scope = scope
        self._only = only
        self.was_thorough = only is not None
        """It is known that somebody could overtake the first job that is blocked."""
        self._future = Future(state.fleet, state.now)
        self._blocked: list[_Blocked] = []
        self._set_aside = 0
        self._rivals: dict[int, list[int]] = {}
        """Class → which of the blocked jobs could use it."""
        self._usable: list[int] = []
        self._most_blocked = MOST_BLOCKED
        self._most_looked_at = 3 * MOST_BLOCKED
        self._measure()
        self._until: dict[int, float] = {}
        """Class → before when a job has to end that is to overtake all, where too many are blocked."""
        self.refusals = Refusals()
        self.allocation: Allocation | None = None
        """Of `only`, where it can be placed now."""
        self.look = Look()

    def run(self) -> bool:
        """False: the walk is to be made anew, since the scope has grown."""
        order = Order(self._state, self._scope)
        try:
            return self._run(order)
        finally:
            order.close()

    def _run(self, order: Order) -> bool:
        free, quotas = self._fleet.free, self._state.quotas
        usable = self._usable
        only_class = usable[0] if len(usable) == 1 else None
        coming = bool(self._state.coming)
        looked = 0
        while (waiting := order.next()) is not None:
            job, shape = waiting.job, waiting.shape
            if quotas.rules and quotas.broken(job.user_id, job.role_arn, shape.needs):
                continue  # nor can the rest of its lane
            looked += 1
            allocation = shape.fits(self._fleet)
            if allocation is not None:
                allocation = self._allowed(waiting, allocation)
                if allocation is not None and not shape.components(self._fleet) <= self._scope:
                    if not self._blocked or self._is_first_outside(waiting):
                        self._scope |= shape.components(self._fleet)
                        if looked > 1 or not order.widen(self._scope):
                            return False
                        self._measure()
                        usable, only_class, looked = self._usable, None, 0
                        if len(usable) == 1:
                            only_class = usable[0]
                        continue
                    allocation = None
            if coming and (pool := promise(self._state, waiting, self.look.promised.values())) is not None:
                self.look.promised[job.job_id] = pool.cluster_id
                allocation = None
            if self._only is not None:
                if self._only == job.job_id:
                    self.allocation = allocation
                    return True
                if allocation is None:
                    self._block(waiting)
                order.go_on(placed=False)
            elif allocation is not None:
                self._place(waiting, allocation)
                order.go_on(placed=True)
            else:
                self._block(waiting)
                order.go_on(placed=False)
                if only_class is None:
                    if not any([free[index] for index in usable]):
                        return True
                elif not free[only_class]:
                    return True
                elif not self.was_thorough and len(shape.needs) == 1:
                    if self._is_fruitless(waiting, only_class) or not self._any_could_overtake(
                        order, waiting, only_class
                    ):
                        return True
                    self.was_thorough = True
            if looked >= self._most_looked_at:
                self.refusals.last = job.job_id
                return True
        return True

    def _measure(self) -> None:
        """How far the look goes, by the nodes that it is confined to."""
        scope = self._scope
        classes = [cls for cls in self._fleet.classes if cls.component in scope]
        self._usable = [cls.index for cls in classes]
        if max([cls.present for cls in classes], default=0) > MANY_NODES:
            self._most_blocked, self._most_looked_at = MOST_BLOCKED_OF_MANY, 2 * MOST_BLOCKED_OF_MANY
        else:
            self._most_blocked, self._most_looked_at = MOST_BLOCKED, 3 * MOST_BLOCKED

    def _is_first_outside(self, waiting: Waiting) -> bool:
        """Whether nobody is blocked before this job on the nodes outside of the look that it needs too."""
        state = self._state
        outside = waiting.shape.components(self._fleet) - self._scope
        heads = [state.queue.jobs.get(state.heads.get(component, -1)) for component in outside]
        own = state.order_of(waiting.job)
        return all(head is None or state.order_of(head.job) >= own for head in heads)

    def _is_fruitless(self, head: Waiting, cls: int) -> bool:
        """In a large class: little came free since a whole look behind this very head placed nothing."""
        last = self._state.fruitless.get(self._fleet.classes[cls].component)
        if last is None or last[0] != head.job.job_id or self._most_blocked == MOST_BLOCKED:
            return False
        return self._fleet.free[cls] < last[1] * ENOUGH_MORE

    def _any_could_overtake(self, order: Order, head: Waiting, cls: int) -> bool:
        """Whether one of the next jobs could start beside the first one that is blocked, whatever the others say.

        Most looks end here: nodes come back one by one until the head has enough.
        """
        fleet = self._fleet
        found = self._future.before(cls, head.shape.needs, head.job.max_runtime_seconds)
        if not self._state.policy.backfill or found is None:
            return False
        free, time = fleet.free[cls], found[0] - self._state.now
        left = min(free, found[1])
        self.refusals.head = (head.job.job_id, found[0], left)

        def could(lane: LaneKey) -> bool:
            shape, seconds, _ = lane
            most = free if seconds <= time else left
            if len(shape.needs) > 1:
                here = sum([count for name, count in shape.needs if cls in fleet.accepting(name)])
                return here <= most and shape.fits(fleet) is not None
            return shape.total <= most

        return order.any_soon(self._most_blocked, could)

    # -- may it start ----------------------------------------------------------------------------------------------

    def _allowed(self, waiting: Waiting, allocation: Allocation) -> Allocation | None:
        """Where a job can start that fits what is free; None: nowhere without delaying others."""
        job, shape = waiting.job, waiting.shape
        if self.refusals.covers(shape, job.max_runtime_seconds):
            return None
        found = (self._avoiding(waiting) if job.avoid else None) or self._proven(waiting, allocation)
        if found is None and not job.avoid:
            self.refusals.add(shape, job.max_runtime_seconds, job.job_id)
        return found

    def _avoiding(self, waiting: Waiting) -> Allocation | None:
        """Where it can start without a node that it is to avoid."""
        avoid = [node for name in waiting.job.avoid if (node := self._fleet.nodes.get(name)) and node.holding is None]
        others = list(self._fleet.free)
        for node in avoid:
            others[node.cls.index] -= 1
        allocation = fit(waiting.shape.needs, others, self._fleet.accepting)
        return self._proven(waiting, allocation, others) if allocation is not None else None

    def _proven(self, waiting: Waiting, allocation: Allocation, most: list[int] | None = None) -> Allocation | None:
        """Where the job can start now without making any job before it later; None: nowhere that can be proven.

        `allocation` is where it could start if nobody waited before it; `most`: of each class at most so many nodes.
        """
        if not self._rivals and not self._until:
            return allocation
        shape, now = waiting.shape, self._state.now
        classes = shape.classes(self._fleet)
        last, until = -1, math.inf
        for cls in classes:
            rivals = self._rivals.get(cls)
            if rivals is not None:
                last = max(last, rivals[-1])
            if cls in self._until:
                last = max(last, 0)
                until = min(until, self._until[cls])
        if last < 0:
            return allocation
        end = now + waiting.job.max_runtime_seconds
        if end > until or not self._state.policy.backfill:
            return None
        # What is set aside only grows: where the job fails beside the first ones, the rest need not be looked at.
        found = self._beside(shape, classes, end, most)
        while found is not None and self._set_aside <= last:
            rival = self._blocked[self._set_aside]
            self._put_aside(rival)
            self._set_aside += 1
            if not rival.classes.isdisjoint(classes):
                found = self._beside(shape, classes, end, most)
        if found is not None and self._until and end > min([self._until.get(cls, math.inf) for cls in classes]):
            return None  # one of those that were set aside has a lower bound only
        return found

    def _beside(self, shape: Shape, classes: frozenset[int], end: float, most: list[int] | None) -> Allocation | None:
        """Where it fits from now until `end` beside all that is set aside so far."""
        if shape.sole >= 0:
            free = self._fleet.free[shape.sole] if most is None else most[shape.sole]
            return shape.alone(min(free, self._future.count(shape.sole, self._state.now, end)))
        counts = self._future.counts(classes, self._state.now, end)
        # What should have ended by now counts as back in the future, but is not.
        most = most if most is not None else self._fleet.free
        for cls in classes:
            if counts[cls] > most[cls]:
                counts[cls] = most[cls]
        return fit(shape.needs, counts, self._fleet.accepting)

    def _put_aside(self, blocked: _Blocked) -> None:
        job, shape = blocked.waiting.job, blocked.waiting.shape
        start = self._future.earliest(shape.needs, blocked.classes, job.max_runtime_seconds)
        if start is None:
            return  # cannot be: it fits all present nodes
        time, allocation = start
        if allocation is None:
            self._close(blocked.classes, time)
            return
        end = time + job.max_runtime_seconds if blocked.certain else math.inf
        self._future.put(allocation, time, end, certain=blocked.certain)

    def _place(self, waiting: Waiting, allocation: Allocation) -> None:
        now = self._state.now
        drawn = [part for part in allocation if self._future.keep(part[1])]
        self.look.places.append(self._state.place(waiting, allocation))
        if drawn:
            self._future.put(drawn, now, now + waiting.job.max_runtime_seconds)

    def _block(self, waiting: Waiting) -> None:
        shape = waiting.shape
        classes = shape.classes(self._fleet)
        self.look.blocked.append(waiting)
        if shape.sole >= 0:
            rivals = self._rivals.get(shape.sole)
            if rivals is None:
                self._rivals[shape.sole] = [len(self._blocked)]
            elif len(rivals) < self._most_blocked:
                rivals.append(len(self._blocked))
            else:
                if shape.sole not in self._until:
                    self._close(classes, self._future.next_more(self._around(classes), self._state.now))
                return
            certain = rivals is None or self._blocked[rivals[-2]].certain
            self._blocked.append(_Blocked(waiting, classes, certain))
            return
        for cls in classes:
            if len(self._rivals.get(cls, ())) >= self._most_blocked:
                if not all([other in self._until for other in classes]):
                    self._close(classes, self._future.next_more(self._around(classes), self._state.now))
                return
        inside = shape.components(self._fleet) <= self._scope
        certain = inside and all(
            self._blocked[index].certain for cls in classes for index in self._rivals.get(cls, ())[-1:]
        )
        for cls in classes:
            self._rivals.setdefault(cls, []).append(len(self._blocked))
        self._blocked.append(_Blocked(waiting, classes, certain))

    def _close(self, classes: frozenset[int], soonest: float) -> None:
        """A job that can't start before `soonest` has nothing set aside."""
        for cls in classes:
            self._until[cls] = min(self._until.get(cls, math.inf), soonest)

    def _around(self, classes: frozenset[int]) -> frozenset[int]:
        components = {self._fleet.classes[cls].component for cls in classes}
        return frozenset(cls.index for cls in self._fleet.classes if cls.component in components)
