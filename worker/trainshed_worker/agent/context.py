"""What the runners of all assignments share."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

from trainshed_worker.agent.gangs import Gangs
from trainshed_worker.agent.networks import Networks
from trainshed_worker.agent.options import AgentOptions
from trainshed_worker.agent.pool_caches import PoolCaches
from trainshed_worker.agent.spares import Spares
from trainshed_worker.contract import InstanceLayout
from trainshed_worker.data import ObjectCache
from trainshed_worker.environments import EnvironmentTable, LayerStore, Skeletons
from trainshed_worker.logs import Access
from trainshed_worker.preload.parents import Parents
from trainshed_worker.protocol import MachineFacts


@dataclass(frozen=True)
class AgentContext:
    options: AgentOptions
    facts: MachineFacts
    networks: Networks
    pool_caches: PoolCaches
    cache: ObjectCache | None
    """None on a machine without isolation, where jobs run as the agent's own user and could change it."""
    layers: LayerStore
    skeletons: Skeletons | None
    """None where no overlay can be mounted."""
    parents: Parents
    spares: Spares
    table: EnvironmentTable
    access: Access
    http: httpx.AsyncClient
    warm: asyncio.Event
    """Set once the default environment and the way to its package indexes are known."""
    report_soon: Callable[[], None]
    """Something to report has changed."""
    report_later: Callable[[], None]
    """The same for what can wait for a moment: the next step may come with it."""
    gangs: Gangs = field(default_factory=Gangs)

    @property
    def isolated(self) -> bool:
        return self.facts.isolation == "full"

    def layout(self, assignment_id: str) -> InstanceLayout:
        return InstanceLayout(self.options.assignments / assignment_id)
