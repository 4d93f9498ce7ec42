"""A scripted service for agent tests: it speaks the agent protocol, steers gangs and keeps what the agents sent.

It is a real HTTP server in a thread of its own. Tests set assignments and read reports, log lines and metrics; a gang
is steered as the service does it (all READY → RUN, first failure → STOP for the others, parts → ASSEMBLE).
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.wait import patient
from trainshed_worker.protocol import (
    Action,
    Assignment,
    AssignmentReport,
    DesiredState,
    EnrollRequest,
    EnrollResponse,
    LogBatch,
    LogBatchAck,
    LogLine,
    MetricBatch,
    MetricPoint,
    Phase,
    ReportRequest,
    ReportResponse,
    SlotReport,
)

TOKEN = "enrollment-token"
_ORDER = list(Phase)


@dataclass
class ScriptedService:
    """All state is guarded by `changed`; helper methods take it themselves."""

    lease_seconds: float = 4.0
    reachable: bool = True
    key: str = "key-1"
    changed: threading.Condition = field(default_factory=threading.Condition)
    version: int = 0
    enrollments: list[EnrollRequest] = field(default_factory=list)
    assignments: dict[str, Assignment] = field(default_factory=dict)
    """By assignment id."""
    kept: list[str] = field(default_factory=list)
    """Clusters that are warm pools."""
    slots: dict[str, SlotReport] = field(default_factory=dict)
    reports: dict[str, AssignmentReport] = field(default_factory=dict)
    lines: dict[tuple[str, str], list[LogLine]] = field(default_factory=dict)
    """By (attempt, source)."""
    received_at: dict[tuple[str, str, int], float] = field(default_factory=dict)
    points: dict[tuple[str, str, int | None, int], MetricPoint] = field(default_factory=dict)
    steer: bool = True

    def start(self) -> None:
        service = self

        class Handler(_Handler):
            scripted = service

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        with self.changed:
            self.version += 1
            self.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def put(self, *assignments: Assignment) -> None:
        """Add or replace desired assignments."""
        with self.changed:
            for assignment in assignments:
                self.assignments[assignment.id] = assignment
            self._bump()

    def order(self, assignment_id: str, action: Action, **changes: Any) -> None:
        with self.changed:
            self._order(assignment_id, action, **changes)

    def remove(self, assignment_id: str) -> None:
        """The slot is to be empty."""
        with self.changed:
            self.assignments.pop(assignment_id, None)
            self._bump()

    def keep(self, *cluster_ids: str) -> None:
        """These clusters, and no others, are warm pools from now on."""
        with self.changed:
            self.kept = list(cluster_ids)
            self._bump()

    def _order(self, assignment_id: str, action: Action, **changes: Any) -> None:
        current = self.assignments[assignment_id]
        self.assignments[assignment_id] = current.model_copy(update={"action": action, **changes})
        self._bump()

    def _bump(self) -> None:
        self.version += 1
        self.changed.notify_all()

    def text(self, attempt_id: str, source: str) -> list[str]:
        with self.changed:
            return [line.text for line in self.lines.get((attempt_id, source), [])]

    def wait_report(self, assignment_id: str, phase: Phase, timeout: float = 60.0) -> AssignmentReport:
        """The report once it has reached `phase`."""

        def there() -> bool:
            report = self.reports.get(assignment_id)
            return report is not None and _ORDER.index(report.phase) >= _ORDER.index(phase)

        with self.changed:
            if not self.changed.wait_for(there, patient(timeout)):
                raise AssertionError(f"{assignment_id} not {phase} in {timeout} s: {self.reports.get(assignment_id)}")
            return self.reports[assignment_id]

    def wait_for(self, condition: Any, timeout: float = 60.0, what: str = "") -> None:
        with self.changed:
            if not self.changed.wait_for(lambda: condition(self), patient(timeout)):
                raise AssertionError(f"not within {timeout} s: {what}; reports {self.reports}; slots {self.slots}")

    def on_report(self, request: ReportRequest) -> None:
        for slot in request.slots:
            self.slots[slot.node_id] = slot
            report = slot.assignment
            if report is None:
                continue
            known = self.reports.get(report.id)
            if known is None or report.revision >= known.revision:
                self.reports[report.id] = report
        if self.steer:
            self._steer()
        self.changed.notify_all()

    def _steer(self) -> None:
        attempts: dict[str, list[Assignment]] = {}
        for assignment in self.assignments.values():
            attempts.setdefault(assignment.attempt_id, []).append(assignment)
        for members in attempts.values():
            reports = [self.reports.get(member.id) for member in members]
            known = [report for report in reports if report is not None]
            if len(known) < len(members[0].hosts):
                continue
            if any(report.failure for report in known):
                for member in members:
                    if member.action in (Action.PREPARE, Action.RUN):
                        self._order(member.id, Action.STOP, grace_seconds=5.0)
            elif all(report.phase is Phase.READY for report in known):
                for member in members:
                    if member.action is Action.PREPARE:
                        self._order(member.id, Action.RUN)
            if all(_ORDER.index(report.phase) >= _ORDER.index(Phase.PART_UPLOADED) for report in known):
                lead = next(member for member in members if member.is_lead)
                if lead.action is not Action.ASSEMBLE and lead.action is not Action.CLEAR:
                    parts = [uri for report in known for uri in report.part_uris]
                    output = lead.output.model_copy(update={"parts": parts})
                    self._order(lead.id, Action.ASSEMBLE, output=output)

    def on_lines(self, batch: LogBatch) -> int:
        stored = self.lines.setdefault((batch.attempt_id, batch.source), [])
        for line in batch.lines:
            if line.seq == len(stored):
                stored.append(line)
                self.received_at[(batch.attempt_id, batch.source, line.seq)] = time.time()
        self.changed.notify_all()
        return len(stored)

    def on_points(self, batch: MetricBatch) -> None:
        for point in batch.points:
            key = (batch.source, point.name, point.seq, point.timestamp_ms if point.seq is None else 0)
            self.points[key] = point
        self.changed.notify_all()


class _Handler(BaseHTTPRequestHandler):
    scripted: ScriptedService
    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        with contextlib.suppress(ConnectionResetError):  # the agent was killed
            super().handle()

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, status: int, body: str = "") -> None:
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the agent was killed meanwhile
            self.wfile.write(data)

    def _refused(self) -> bool:
        service = self.scripted
        if not service.reachable:
            self._answer(503, json.dumps({"code": "Unavailable", "message": "scripted outage"}))
            return True
        wanted = TOKEN if self.path.startswith("/agent/v1/enroll") else service.key
        if self.headers.get("Authorization") != f"Bearer {wanted}":
            self._answer(401, json.dumps({"code": "Unauthorized", "message": "unknown key"}))
            return True
        return False

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        service = self.scripted
        if self._refused():
            return
        with service.changed:
            if self.path == "/agent/v1/enroll":
                request = EnrollRequest.model_validate_json(body)
                service.enrollments.append(request)
                service.changed.notify_all()
                answer = EnrollResponse(
                    agent_id="agent-1",
                    agent_key=service.key,
                    node_ids=[f"node-{slot.index}" for slot in request.slots],
                    lease_seconds=service.lease_seconds,
                    ingest_url=service.url,
                )
                return self._answer(200, answer.model_dump_json())
            if self.path == "/agent/v1/reports":
                service.on_report(ReportRequest.model_validate_json(body))
                response = ReportResponse(lease_seconds=service.lease_seconds, desired_version=service.version)
                return self._answer(200, response.model_dump_json())
            if self.path == "/ingest/v1/logs":
                return self._answer(
                    200, LogBatchAck(next_seq=service.on_lines(LogBatch.model_validate_json(body))).model_dump_json()
                )
            if self.path == "/ingest/v1/metrics":
                service.on_points(MetricBatch.model_validate_json(body))
                return self._answer(204)
        return self._answer(404)

    def do_GET(self) -> None:
        service = self.scripted
        if self._refused():
            return None
        query = parse_qs(urlsplit(self.path).query)
        version, wait = int(query["version"][0]), float(query["wait"][0])
        with service.changed:
            service.changed.wait_for(lambda: service.version != version or not service.reachable, wait)
            state = DesiredState(
                version=service.version,
                assignments=list(service.assignments.values()),
                kept_clusters=list(service.kept),
            )
        return self._answer(200, state.model_dump_json())
