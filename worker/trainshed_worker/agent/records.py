"""What the agent remembers of one assignment, on disk from its first step to its last.

Invariant: a change of phase, a failure and an exit are stored before a report carries them (with a sync from the exit
on; a report carries nothing of a record that has not been on disk once, and RUNNING only when its start has), and
`revision` grows with every change, so an older report never wins. Progress is not stored, so revisions are reserved in
blocks: a restarted agent goes on above every number that it can have reported.
"""

import logging
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from trainshed_worker.agent.files import read_json, sync_file, write_atomic
from trainshed_worker.protocol import (
    Action,
    Assignment,
    AssignmentReport,
    FailureCause,
    InstanceFailure,
    Phase,
    PhaseSpan,
)

ACTION_ORDER = [Action.PREPARE, Action.RUN, Action.STOP, Action.ASSEMBLE, Action.CLEAR]
PHASE_ORDER = list(Phase)
MAX_MESSAGE = 4096
MAX_NOTICES = 50
RESERVED_AT_ONCE = 1000
_log = logging.getLogger(__name__)


class AssignmentRecord(BaseModel):
    """The stored form. `slot` is the number of the slot on this machine."""

    slot: int
    assignment: Assignment
    report: AssignmentReport
    credential_token: str
    """The instance's password for its credential endpoint."""
    started: bool = False
    """User processes may exist: set before the sandbox is started."""
    reserved: int = 0
    """No revision from this on has been reported."""
    ranked: bool = False
    """The processes' tags are local ranks."""


class Record:
    """An AssignmentRecord with its file. Not thread-safe: used on the agent's event loop."""

    def __init__(self, path: Path, data: AssignmentRecord) -> None:
        self.path = path
        self.data = data
        self.accepted = False
        """A report may tell of it: it was on disk once."""

    @classmethod
    def create(cls, path: Path, slot: int, assignment: Assignment, token: str) -> "Record":
        """A new record, in place when this returns; `sync` makes it last over a power cut."""
        report = AssignmentReport(
            id=assignment.id,
            attempt_id=assignment.attempt_id,
            epoch=assignment.epoch,
            revision=1,
            phase=Phase.ACCEPTED,
            spans=[PhaseSpan(name=Phase.ACCEPTED.value, start=time.time())],
        )
        data = AssignmentRecord(slot=slot, assignment=assignment, report=report, credential_token=token)
        data.reserved = report.revision + RESERVED_AT_ONCE
        record = cls(path, data)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        record.save(sync=False)
        return record

    @classmethod
    def load(cls, path: Path) -> "Record | None":
        """The stored record, None where there is none, or none whole: a crash of the machine before anything of the
        user ran may leave that on some file systems, and then nothing of it runs either."""
        try:
            raw: Any = read_json(path)
            if raw is None:
                return None
            record = cls(path, AssignmentRecord.model_validate(raw))
        except ValueError:
            _log.exception("%s is not whole: the machine went down while it was written", path)
            return None
        record.report.revision = max(record.report.revision, record.data.reserved)
        record._bump()
        record.save()
        record.accepted = True
        return record

    def save(self, *, sync: bool = True) -> None:
        write_atomic(self.path, self.data.model_dump_json(), sync=sync)

    def sync(self) -> None:
        """Return when what was saved before the call is on disk. From any thread: this waits, `save` goes on."""
        sync_file(self.path)

    @property
    def report(self) -> AssignmentReport:
        return self.data.report

    @property
    def phase(self) -> Phase:
        return self.data.report.phase

    def at_least(self, phase: Phase) -> bool:
        return PHASE_ORDER.index(self.phase) >= PHASE_ORDER.index(phase)

    def touch(self) -> None:
        """Mark a change that a report shall carry but that need not survive a crash (progress)."""
        self._bump()

    def _bump(self) -> None:
        self.report.revision += 1
        if self.report.revision >= self.data.reserved:
            self.data.reserved = self.report.revision + RESERVED_AT_ONCE
            self.save()

    def move(self, phase: Phase, *, lasting: bool = True, **changes: Any) -> None:
        """Go on to `phase` with `changes` of the report, stored when this returns. Never goes back.

        Not `lasting`: a crash of the machine may lose it, and what led to it is done again.

        Until the processes run the disk is not waited for here: a job that starts is waited for by somebody. After a
        crash of the machine what comes before the processes is done again; that they may exist is synced beside their
        start, and RUNNING says nothing beyond that.
        """
        now = time.time()
        report = self.report
        if PHASE_ORDER.index(phase) > PHASE_ORDER.index(report.phase):
            self._end_span(now)
            report.spans.append(PhaseSpan(name=phase.value, start=now))
            report.phase = phase
            report.message = None
        for name, value in changes.items():
            setattr(report, name, value)
        self._bump()
        self.save(sync=lasting and not self._starting())

    def _starting(self) -> bool:
        return PHASE_ORDER.index(self.phase) <= PHASE_ORDER.index(Phase.RUNNING) and self.report.failure is None

    def span(self, name: str, start: float, end: float) -> None:
        """Add one row to the phase ledger."""
        self.report.spans.append(PhaseSpan(name=name, start=start, end=end))

    def _end_span(self, now: float) -> None:
        names = {phase.value for phase in Phase}
        for span in self.report.spans:
            if span.end is None and span.name in names:
                span.end = now

    def fail(self, cause: FailureCause, message: str, at: float | None = None, **details: Any) -> None:
        """Keep the first failure; later ones follow from it."""
        if self.report.failure is None:
            self.report.failure = InstanceFailure(
                cause=cause, message=message[:MAX_MESSAGE], at=time.time() if at is None else at, **details
            )
            self._bump()
            self.save()

    def notice(self, text: str) -> bool:
        """Add a sentence for the user once; False where it is there already or there are too many."""
        if text in self.report.notices or len(self.report.notices) >= MAX_NOTICES:
            return False
        self.report.notices.append(text)
        self._bump()
        return True
