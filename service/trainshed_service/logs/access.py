"""Who may ship lines and metrics: an agent known by its key, for the attempts that it holds or held an instance of.

Invariant: what the control database says is believed for at most `CACHE_SECONDS`; a refusal is never remembered, so an
agent that has just enrolled, or an attempt that has just been placed, is let in at once.
"""

import hashlib
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainshed_service.clock import Clock
from trainshed_service.store import Database
from trainshed_service.store.models import Agent, Attempt, Instance, Job, Node

CACHE_SECONDS = 15.0
_CACHE_ENTRIES = 10_000
K = TypeVar("K")
V = TypeVar("V")


class Refused(Exception):
    """`status` is HTTP's; the agent may drop what it holds for the attempt on 410 and must try again on 5xx."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


@dataclass(frozen=True)
class _Share:
    """What one agent holds of one attempt."""

    job_name: str
    hosts: frozenset[str]


class AgentAccess:
    def __init__(self, control: Database, clock: Clock) -> None:
        self._control = control
        self._clock = clock
        self._agents: dict[str, tuple[float, str]] = {}
        self._shares: dict[tuple[str, str], tuple[float, _Share]] = {}

    async def authenticate(self, authorization: str | None) -> str:
        """The agent's id. Refused (401) where the header holds no key of an enrolled agent."""
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key:
            raise Refused(401, "Unauthorized", "send `Authorization: Bearer <agent key>`")
        key_hash = hashlib.sha256(key.strip().encode()).hexdigest()
        now = self._clock.now()
        known = self._agents.get(key_hash)
        if known and known[0] > now:
            return known[1]
        agent_id = await self._control.read(
            lambda session: session.execute(select(Agent.id).where(Agent.key_hash == key_hash)).scalar_one_or_none()
        )
        if agent_id is None:
            self._agents.pop(key_hash, None)
            raise Refused(401, "Unauthorized", "this agent key is not known: enroll again with the enrollment token")
        _trim(self._agents)
        self._agents[key_hash] = (now + CACHE_SECONDS, agent_id)
        return agent_id

    async def check(self, agent_id: str, job_name: str, attempt_id: str, source: str) -> None:
        """Refused: 410 where the attempt is gone, 403 where the agent may not speak for this job and host."""
        share = await self._share(agent_id, attempt_id)
        if share.job_name != job_name:
            raise Refused(403, "Forbidden", f"attempt {attempt_id} is not of training job {job_name}")
        if source not in share.hosts:
            raise Refused(403, "Forbidden", f"this agent holds no host {source} of attempt {attempt_id}")

    async def _share(self, agent_id: str, attempt_id: str) -> _Share:
        now = self._clock.now()
        known = self._shares.get((agent_id, attempt_id))
        if known and known[0] > now:
            return known[1]
        share = await self._control.read(lambda session: _read_share(session, agent_id, attempt_id))
        if share is None:
            self._shares.pop((agent_id, attempt_id), None)
            raise Refused(410, "AttemptGone", f"attempt {attempt_id} is not known; its job may have been deleted")
        _trim(self._shares)
        self._shares[agent_id, attempt_id] = (now + CACHE_SECONDS, share)
        return share


def _read_share(session: Session, agent_id: str, attempt_id: str) -> _Share | None:
    job_name = session.execute(
        select(Job.name).join(Attempt, Attempt.job_id == Job.id).where(Attempt.id == attempt_id)
    ).scalar_one_or_none()
    if job_name is None:
        return None
    hosts = session.scalars(
        select(Instance.host)
        .join(Node, Node.id == Instance.node_id)
        .where(Instance.attempt_id == attempt_id, Node.agent_id == agent_id)
    )
    return _Share(job_name, frozenset(hosts))


def _trim(cache: dict[K, V]) -> None:
    while len(cache) >= _CACHE_ENTRIES:
        del cache[next(iter(cache))]
