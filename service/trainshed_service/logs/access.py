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
from trainshed_service.scheduling.placement import log_stream_epoch
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
class Share:
    """What one agent holds of one attempt. `stream_epoch` ends the names of the attempt's log streams."""

    job_name: str
    hosts: frozenset[str]
    stream_epoch: int


class AgentAccess:
    def __init__(self, control: Database, clock: Clock) -> None:
        self._control = control
        self._clock = clock
        self._agents: dict[str, tuple[float, str]] = {}
        self._shares: dict[tuple[str, str], tuple[float, Share]] = {}

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

    async def check(self, agent_id: str, job_name: str, attempt_id: str, source: str) -> Share:
        """What the agent holds. Refused: 410 where the attempt is gone, 403 where it may not speak for job and host."""
        share = await self._share(agent_id, attempt_id)
        if share.job_name != job_name:
            raise Refused(403, "Forbidden", f"attempt {attempt_id} is not of training job {job_name}")
        if source not in share.hosts:
            raise Refused(403, "Forbidden", f"this agent holds no host {source} of attempt {attempt_id}")
        return share

    async def _share(self, agent_id: str, attempt_id: str) -> Share:
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


def _read_share(session: Session, agent_id: str, attempt_id: str) -> Share | None:
    attempt = session.execute(
        select(Job.name, Attempt.created_at).join(Attempt, Attempt.job_id == Job.id).where(Attempt.id == attempt_id)
    ).first()
    if attempt is None:
        return None
    hosts = session.scalars(
        select(Instance.host)
        .join(Node, Node.id == Instance.node_id)
        .where(Instance.attempt_id == attempt_id, Node.agent_id == agent_id)
    )
    return Share(attempt.name, frozenset(hosts), log_stream_epoch(attempt.created_at))


def _trim(cache: dict[K, V]) -> None:
    while len(cache) >= _CACHE_ENTRIES:
        del cache[next(iter(cache))]
