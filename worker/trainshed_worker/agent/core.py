"""The agent's loops: enroll, ask what is wanted, reconcile the slots, report what is.

Invariants: what is wanted of an assignment is in its record before it is acted on, and on disk before the service hears
that it was accepted and before a process of it runs; one that is not on disk is begun only by an answer of the service,
never by an old file; a slot gets a new assignment only after the old
one's has been emptied. What belongs to a cluster is removed only when the last known desired state, on disk as well,
neither names nor keeps it.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import httpx

from trainshed_worker.agent.context import AgentContext
from trainshed_worker.agent.files import read_json, write_atomic
from trainshed_worker.agent.networks import Networks
from trainshed_worker.agent.options import AgentOptions
from trainshed_worker.agent.pool_caches import PoolCaches
from trainshed_worker.agent.records import Record
from trainshed_worker.agent.runner import AssignmentRunner
from trainshed_worker.agent.service import (
    LONGEST_WAIT,
    REPORT_EVERY,
    REPORT_LONGEST_WAIT,
    KeyUnknown,
    Refused,
    Replaced,
    ServiceClient,
    Unreachable,
    backoff,
    load_identity,
)
from trainshed_worker.agent.slots import Slot
from trainshed_worker.agent.spares import Spares
from trainshed_worker.agent.state import AssignmentState
from trainshed_worker.contract import OVERLAY
from trainshed_worker.data import ObjectCache, default_limit, make_spare_client
from trainshed_worker.environments import BaseError, EnvironmentTable, LayerStore, Skeletons, base_for
from trainshed_worker.environments.pip_settings import pip_settings
from trainshed_worker.environments.requirements import remove_stale_builds
from trainshed_worker.preload.parents import Parents
from trainshed_worker.protocol import Action, Assignment, DesiredState, MachineFacts
from trainshed_worker.sandbox import SandboxError, prove_empty, remove_tree

POLL_SECONDS = 20.0
REPORT_PAUSE = 0.15
"""Seconds after which a step is told that nobody waits for; a start is over by then, and what is told at once, with
its transactions, would compete with it for the cores."""
_log = logging.getLogger(__name__)


class Agent:
    """One agent process. `run()` returns when it is stopped or replaced; jobs go on either way."""

    def __init__(self, options: AgentOptions, facts: MachineFacts) -> None:
        self._options = options
        self._facts = facts
        self._service = ServiceClient(options, load_identity(options))
        self._ingest_http = httpx.AsyncClient(trust_env=False)
        self._dirty = asyncio.Event()
        self._enroll_wanted = asyncio.Event()
        self._enrolled = asyncio.Event()
        self._slots = [Slot(index) for index in range(options.slots)]
        self._desired = self._load_desired()
        self._reconciling = asyncio.Lock()
        self._sweeping = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()
        self._poll: asyncio.Task[DesiredState] | None = None
        self._live = False
        """The desired state came from the service in this process's life."""
        isolated = facts.isolation == "full"
        networks = Networks(options.clusters, options.server, options.egress_allow, isolated)
        self._context = AgentContext(
            options=options,
            facts=facts,
            networks=networks,
            pool_caches=PoolCaches(options.pool_caches, isolated),
            cache=_open_cache(options, facts),
            layers=LayerStore(
                options.environments,
                options.assignments,
                default_limit(options.node) if options.cache_limit is None else options.cache_limit,
            ),
            skeletons=Skeletons(options.skeletons) if isolated and OVERLAY in facts.features else None,
            parents=Parents(options.parents, enabled=options.preload and isolated),
            spares=Spares(options.spares, enabled=isolated),
            table=EnvironmentTable.load(options.environments_file),
            access=self,
            http=self._ingest_http,
            warm=asyncio.Event(),
            report_soon=self._dirty.set,
            report_later=self._report_later,
        )

    def _report_later(self) -> None:
        if not self._dirty.is_set():
            asyncio.get_running_loop().call_later(REPORT_PAUSE, self._dirty.set)

    # Access of the log shippers.
    def ingest(self) -> tuple[str, str]:
        identity = self._service.identity
        return identity.ingest_url, identity.agent_key

    def key_refused(self) -> None:
        self._enroll_wanted.set()

    def _clusters(self) -> set[str]:
        """Clusters whose networks and cache directories stay: those that a slot holds, is to hold, or is kept for."""
        held = {slot.runner.assignment.cluster_id for slot in self._slots if slot.runner is not None}
        wanted = {item.cluster_id for item in self._desired.assignments if item.action is not Action.CLEAR}
        return held | wanted | set(self._desired.kept_clusters)

    def _load_desired(self) -> DesiredState:
        raw = read_json(self._options.desired_file)
        return DesiredState(version=-1, assignments=[]) if raw is None else DesiredState.model_validate(raw)

    async def run(self, stopped: asyncio.Event) -> None:
        """Resume what is on disk, then serve until `stopped` is set. Raises Replaced where a newer process enrolled."""
        await self._resume()
        self._spawn(self._warm_up())
        tasks = [
            asyncio.create_task(self._enroll_loop()),
            asyncio.create_task(self._desired_loop()),
            asyncio.create_task(self._report_loop()),
            asyncio.create_task(stopped.wait()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for slot in self._slots:
                if slot.runner is not None:
                    await slot.runner.stop_watching()
            await self._service.close()
            await self._ingest_http.aclose()
            if self._context.cache is not None:
                self._context.cache.close()
            await asyncio.to_thread(self._context.spares.close)
            await asyncio.to_thread(self._context.parents.close)

    async def _warm_up(self) -> None:
        """Look at the default environment before the first job does, and let its package indexes through."""
        await asyncio.to_thread(self._warm_client)
        try:
            _, base = await asyncio.to_thread(base_for, self._context.table, None)
            settings = await asyncio.to_thread(pip_settings, base, {})
            self._context.networks.allow(settings.index_hosts)
        except BaseError:
            _log.exception("the default Python environment is not usable")
            return
        finally:
            self._context.warm.set()
        await self._enrolled.wait()  # nobody waits for it
        self._context.parents.prepare(base)

    def _warm_client(self) -> None:
        """The first client of a process takes a quarter of a second: everything it loads is loaded now."""
        stores = [assignment.object_store for assignment in self._desired.assignments]
        place = (stores[0].endpoint_url, stores[0].region) if stores else (self._options.server, "us-east-1")
        make_spare_client(*place)

    async def _resume(self) -> None:
        """Take up every assignment that has a record; forget directories without one (never accepted)."""
        self._options.assignments.mkdir(parents=True, exist_ok=True, mode=0o700)
        await asyncio.to_thread(remove_stale_builds, self._options.environments)
        quarantined = read_json(self._options.quarantine_file) or {}
        for slot in self._slots:
            slot.quarantine = quarantined.get(str(slot.index))
        for directory in sorted(self._options.assignments.iterdir()):
            record = await asyncio.to_thread(Record.load, directory / "agent.json")
            if record is None:
                await asyncio.to_thread(remove_unaccepted, directory)
                continue
            index = record.data.slot
            if index >= len(self._slots):
                _log.warning("assignment %s belongs to slot %d, which is no more", record.data.assignment.id, index)
                self._slots.extend(Slot(number) for number in range(len(self._slots), index + 1))
            self._begin(self._slots[index], AssignmentState(self._context, record))
        await asyncio.to_thread(self._context.spares.clear)
        if self._context.skeletons is not None and not any(slot.runner for slot in self._slots):
            await asyncio.to_thread(self._context.skeletons.clear)
        await self._sweep()
        self._dirty.set()

    def _begin(self, slot: Slot, state: AssignmentState) -> None:
        def ended(reason: str | None) -> None:
            slot.runner = None
            if slot.quarantine != reason:
                slot.quarantine = reason
                self._save_quarantine()
            self._dirty.set()
            self._spawn(self._after_end(slot, state))

        slot.runner = AssignmentRunner(state, ended)

    async def _after_end(self, slot: Slot, state: AssignmentState) -> None:
        await self._reconcile()
        await self._sweep()
        # for the next job, now that no process of this one competes for the cores
        store, cluster = state.assignment.object_store, state.assignment.cluster_id

        def wanted() -> bool:
            return slot.runner is None and not slot.quarantine and cluster in self._desired.kept_clusters

        if state.started_like is not None:
            await asyncio.to_thread(self._context.spares.make, cluster, *state.started_like, wanted)
        await asyncio.to_thread(make_spare_client, store.endpoint_url, store.region)

    async def _sweep(self) -> None:
        """Remove what belongs to clusters that are over."""
        async with self._sweeping:
            try:
                await asyncio.to_thread(self._context.spares.sweep, self._clusters())
                await self._context.networks.sweep(self._clusters)
                await self._context.pool_caches.sweep(self._clusters)
            except (SandboxError, OSError):
                _log.exception("what is left of a cluster could not be removed; the end of the next one tries again")

    def _save_quarantine(self) -> None:
        reasons = {str(slot.index): slot.quarantine for slot in self._slots if slot.quarantine}
        write_atomic(self._options.quarantine_file, json.dumps(reasons))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _reconcile(self) -> None:
        """Bring every slot nearer to the desired state."""
        async with self._reconciling:
            node_ids = self._service.identity.node_ids
            wanted = {assignment.node_id: assignment for assignment in self._desired.assignments}
            for slot, node_id in zip(self._slots, node_ids, strict=False):
                await self._reconcile_slot(slot, wanted.get(node_id))

    async def _reconcile_slot(self, slot: Slot, wanted: Assignment | None) -> None:
        runner = slot.runner
        if runner is not None:
            held = runner.assignment
            if wanted is not None and wanted.id == held.id and wanted.epoch == held.epoch:
                await runner.state.update(wanted)
            elif wanted is None or wanted.id != held.id or wanted.epoch > held.epoch:
                await runner.state.clear()
            return
        if wanted is None or wanted.action is Action.CLEAR or slot.quarantine or not self._live:
            return
        path = self._context.layout(wanted.id).agent_file
        record = Record.create(path, slot.index, wanted, secrets.token_urlsafe(32))
        state = AssignmentState(self._context, record)
        self._begin(slot, state)
        self._spawn(state.accept())

    async def _enroll_loop(self) -> None:
        self._enroll_wanted.set()
        while True:
            await self._enroll_wanted.wait()
            attempt = 0
            while True:
                try:
                    await self._service.enroll(self._facts)
                    break
                except (Unreachable, KeyUnknown, Refused, OSError) as error:
                    if attempt in (0, 10) or attempt % 60 == 0:
                        _log.warning("cannot enroll: %s", error)
                    await asyncio.sleep(backoff(attempt))
                    attempt += 1
            self._enroll_wanted.clear()
            self._enrolled.set()
            self._dirty.set()
            _log.info("enrolled as %s", self._service.identity.agent_id)

    def _enroll_again(self) -> None:
        self._enrolled.clear()
        self._enroll_wanted.set()

    async def _desired_loop(self) -> None:
        attempt = 0
        version = -1
        while True:
            await self._enrolled.wait()
            try:
                self._poll = asyncio.create_task(self._service.desired(version, POLL_SECONDS))
                desired = await self._poll
                attempt = 0
            except asyncio.CancelledError:
                me = asyncio.current_task()
                if me is not None and me.cancelling():
                    raise
                continue  # only the poll was: ask anew
            except KeyUnknown:
                self._enroll_again()
                await asyncio.sleep(backoff(attempt))
                attempt += 1
                continue
            except (Unreachable, Refused) as error:
                if attempt in (0, 10) or attempt % 60 == 0:
                    _log.warning("cannot ask for the desired state: %s", error)
                await asyncio.sleep(backoff(attempt))
                attempt += 1
                continue
            if desired.version != version or not self._live:
                version = desired.version
                first, self._live = not self._live, True
                self._desired, last = desired, self._desired
                stored = asyncio.to_thread(write_atomic, self._options.desired_file, desired.model_dump_json())
                await asyncio.gather(stored, self._reconcile())
                if first or not set(last.kept_clusters) <= set(desired.kept_clusters):
                    self._spawn(self._sweep())

    async def _report_loop(self) -> None:
        attempt = 0
        while True:
            await self._enrolled.wait()
            lease = self._service.identity.lease_seconds
            every = max(0.5, lease * REPORT_EVERY)
            try:
                async with asyncio.timeout(every):
                    await self._dirty.wait()
            except TimeoutError:
                pass
            self._dirty.clear()
            slots = [
                slot.report(node_id)
                for slot, node_id in zip(self._slots, self._service.identity.node_ids, strict=False)
            ]
            try:
                answer = await self._service.report(slots)
                self._service.identity.lease_seconds = answer.lease_seconds
                if attempt and self._poll is not None:
                    self._poll.cancel()  # it may wait for an answer that was lost
                attempt = 0
            except KeyUnknown:
                self._enroll_again()
                self._dirty.set()
                await asyncio.sleep(backoff(attempt))
                attempt += 1
            except (Unreachable, Refused) as error:
                if attempt in (0, 10) or attempt % 60 == 0:
                    _log.warning("cannot report: %s", error)
                self._dirty.set()
                await asyncio.sleep(backoff(attempt, min(LONGEST_WAIT, lease * REPORT_LONGEST_WAIT)))
                attempt += 1


def _open_cache(options: AgentOptions, facts: MachineFacts) -> ObjectCache | None:
    limit = default_limit(options.node) if options.cache_limit is None else options.cache_limit
    if facts.isolation != "full" or limit == 0:
        return None
    return ObjectCache(options.cache, limit, shared=OVERLAY in facts.features)


def remove_unaccepted(directory: Path) -> None:
    """Delete a directory without a record: its assignment was never accepted, or its files were being deleted, or the
    machine went down. SandboxError where something of it runs nevertheless."""
    if not (emptiness := prove_empty(directory / "instance")):
        raise SandboxError(f"{directory} has no record, but something of it runs: {emptiness.reason}")
    remove_tree(directory)


__all__ = ["Agent", "Replaced"]
