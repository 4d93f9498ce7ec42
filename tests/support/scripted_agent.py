"""A peer of the agent protocol that a test drives step by step over real HTTP: it runs nothing, it only says so."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import httpx

from trainshed_worker.protocol import (
    Action,
    Assignment,
    AssignmentReport,
    DesiredState,
    EnrollRequest,
    EnrollResponse,
    FailureCause,
    InstanceFailure,
    MachineFacts,
    Phase,
    ReportRequest,
    SlotFacts,
    SlotReport,
    SlotState,
)


@dataclass
class Held:
    """What the agent holds of one assignment."""

    assignment: Assignment
    phase: Phase = Phase.ACCEPTED
    revision: int = 0
    failure: InstanceFailure | None = None
    exit_code: int | None = None
    parts: list[str] = field(default_factory=list)
    end_reason: str | None = None

    def to(self, phase: Phase) -> None:
        self.phase = phase
        self.revision += 1


class ScriptedAgent:
    """One phase per `step`. `exits` makes hosts end as soon as they run; else they run until `exit` is called."""

    def __init__(
        self, url: str, token: str, slots: int = 2, name: str = "agent-1", types: list[str] | None = None
    ) -> None:
        self.name = name
        self.boot_id = uuid.uuid4().hex
        self.token = token
        self.slots = [SlotFacts(index=index, instance_types=types or []) for index in range(slots)]
        self.http = httpx.Client(base_url=url, trust_env=False, timeout=30, verify=False)
        self.held: dict[str, Held] = {}
        self.quarantined: dict[str, str] = {}
        self.version = 0
        self.exits: int | None = None
        self.frozen_at: dict[str, Phase] = {}
        self.agent_id = ""
        self.node_ids: list[str] = []
        self.seen_actions: list[tuple[str, Action]] = []
        self.last_request: ReportRequest | None = None

    def enroll(self) -> EnrollResponse:
        body = EnrollRequest(
            agent_name=self.name,
            boot_id=self.boot_id,
            facts=MachineFacts(hostname="h", cpus=4, memory_bytes=8 << 30, isolation="full", version="0.1.0"),
            slots=self.slots,
        )
        answer = self.http.post(
            "/agent/v1/enroll", content=body.model_dump_json(), headers={"authorization": f"Bearer {self.token}"}
        )
        answer.raise_for_status()
        enrolled = EnrollResponse.model_validate_json(answer.content)
        self.agent_id, self.node_ids = enrolled.agent_id, enrolled.node_ids
        self.http.headers["authorization"] = f"Bearer {enrolled.agent_key}"
        return enrolled

    def restart(self) -> None:
        """A new start of the same agent, with what it holds."""
        self.boot_id = uuid.uuid4().hex
        self.version = 0
        self.enroll()

    def desired(self, wait: float = 0.0) -> DesiredState:
        answer = self.http.get("/agent/v1/desired", params={"version": self.version, "wait": wait})
        answer.raise_for_status()
        state = DesiredState.model_validate_json(answer.content)
        self.version = state.version
        return state

    def report(self) -> httpx.Response:
        self.last_request = self._request()
        return self.send(self.last_request)

    def send(self, request: ReportRequest) -> httpx.Response:
        return self.http.post("/agent/v1/reports", content=request.model_dump_json())

    def step(self) -> bool:
        """Take the desired state in, go one phase further with each assignment, report. True (for wait loops)."""
        wanted = {item.node_id: item for item in self.desired().assignments}
        for node_id, held in list(self.held.items()):
            item = wanted.get(node_id)
            if item is None or item.id != held.assignment.id or held.phase is Phase.CLEARED:
                del self.held[node_id]
        for node_id, item in wanted.items():
            if not self.seen_actions or (item.id, item.action) not in self.seen_actions:
                self.seen_actions.append((item.id, item.action))
            known = self.held.get(node_id)
            if known is None:
                if item.action is not Action.CLEAR:
                    self.held[node_id] = Held(item)
                continue
            known.assignment = item
            self._go_on(known)
        self.report().raise_for_status()
        return True

    def exit(self, host: str, code: int = 0, message: str = "", **failure: Any) -> None:
        """The process of `host` (algo-N) ends."""
        held = self.host(host)
        held.exit_code = code
        if code != 0 or failure:
            cause = failure.pop("cause", FailureCause.ALGORITHM)
            at = failure.pop("at", time.time())
            held.failure = InstanceFailure(cause=cause, message=message, exit_code=code, at=at, **failure)
        held.to(Phase.EXITED)

    def host(self, name: str) -> Held:
        return next(held for held in self.held.values() if held.assignment.host.name == name)

    def phases(self) -> dict[str, Phase]:
        return {held.assignment.host.name: held.phase for held in self.held.values()}

    def close(self) -> None:
        self.http.close()

    def _go_on(self, held: Held) -> None:
        action, phase = held.assignment.action, held.phase
        if self.frozen_at.get(held.assignment.host.name) is phase:
            return
        if action is Action.CLEAR:
            held.to(Phase.CLEARED)
        elif phase is Phase.EXITED and not held.assignment.is_lead:
            held.parts = [f"{held.assignment.output.parts_uri}/{held.assignment.host.name}.tar"]
            held.to(Phase.PART_UPLOADED)
        elif action is Action.ASSEMBLE and phase in (Phase.EXITED, Phase.PART_UPLOADED):
            held.to(Phase.FINISHED)
        elif action is Action.STOP and phase in (Phase.RUNNING, Phase.READY, Phase.DOWNLOADING, Phase.ACCEPTED):
            held.exit_code = 143 if phase is Phase.RUNNING else None
            held.to(Phase.EXITED)
        elif action is Action.PREPARE:
            following = {Phase.ACCEPTED: Phase.DOWNLOADING, Phase.DOWNLOADING: Phase.READY}.get(phase)
            if following is not None:
                held.to(following)
        elif action is Action.RUN and phase is Phase.READY:
            held.to(Phase.RUNNING)
        elif action is Action.RUN and phase is Phase.RUNNING and self.exits is not None:
            held.exit_code = self.exits
            held.to(Phase.EXITED)

    def _request(self) -> ReportRequest:
        return ReportRequest(
            agent_id=self.agent_id,
            boot_id=self.boot_id,
            slots=[self._slot(node_id, index) for index, node_id in enumerate(self.node_ids)],
        )

    def _slot(self, node_id: str, index: int) -> SlotReport:
        if node_id in self.quarantined:
            return SlotReport(node_id=node_id, state=SlotState.QUARANTINED, reason=self.quarantined[node_id])
        held = self.held.get(node_id)
        if held is None:
            return SlotReport(node_id=node_id, state=SlotState.EMPTY)
        cleared = held.phase is Phase.CLEARED
        return SlotReport(
            node_id=node_id,
            state=SlotState.EMPTY if cleared else SlotState.HELD,
            assignment=AssignmentReport(
                id=held.assignment.id,
                attempt_id=held.assignment.attempt_id,
                epoch=held.assignment.epoch,
                revision=held.revision,
                phase=held.phase,
                address=f"10.0.0.{index + 1}",
                exit_code=held.exit_code,
                failure=held.failure,
                part_uris=held.parts,
                end_reason=held.end_reason,
            ),
        )
