"""What an attempt does next, as a pure function of what its hosts reported.

Invariants:

* No process starts before every host is ready; one failure ends the gang; the earliest failure gives the reason.
* The lead assembles only when every other host's part and last log line are stored; the attempt is finished only when
  the lead has stored the artifacts (or is lost and all others have stored theirs).
* `next_step` gives at most one step, and taking it makes progress: applied again and again it comes to None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from trainshed_service.jobs.states import AttemptState
from trainshed_worker.protocol import FailureCause, InstanceFailure, Phase

_ORDER = {phase: index for index, phase in enumerate(Phase)}


@dataclass(frozen=True)
class HostView:
    """One host of the gang. `gone`: its slot is proven empty, or its node is lost."""

    rank: int
    host: str
    phase: Phase | None = None
    failure: InstanceFailure | None = None
    end_reason: str | None = None
    gone: bool = False
    parts: tuple[str, ...] = ()

    def reached(self, phase: Phase) -> bool:
        return self.phase is not None and _ORDER[self.phase] >= _ORDER[phase]

    @property
    def output_failed(self) -> bool:
        return self.failure is not None and self.failure.cause is FailureCause.OUTPUT

    @property
    def over(self) -> bool:
        """No process of the user runs on this host any more, or ever will (asked only of a gang that ends or ran)."""
        return (
            self.silent or self.reached(Phase.EXITED) or (self.failure is not None and not self.reached(Phase.RUNNING))
        )

    @property
    def silent(self) -> bool:
        """Nothing can come from this host: it is gone, or it never accepted its assignment."""
        return self.gone or self.phase is None

    @property
    def drained(self) -> bool:
        """This host's files and lines are stored, or will never be."""
        return self.silent or self.reached(Phase.PART_UPLOADED)

    @property
    def finished(self) -> bool:
        return self.gone or self.reached(Phase.FINISHED)


class StepKind(StrEnum):
    DOWNLOADING = "downloading"
    """The first host fetches data: the job shows it."""
    RUN = "run"
    TRAINING = "training"
    """Every host runs (or ran): the job shows it."""
    END = "end"
    """Stop all processes: a failure or the agent's own time-out."""
    BLAME = "blame"
    """An earlier failure came to light: it replaces the pending one."""
    UPLOADING = "uploading"
    """All processes have ended: the job shows it."""
    ASSEMBLE = "assemble"
    FINISH = "finish"
    CLEARED = "cleared"


@dataclass(frozen=True)
class Step:
    kind: StepKind
    failure: InstanceFailure | None = None
    host: str | None = None
    end_reason: str | None = None
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class GangView:
    """The attempt as stored. `failure` is the pending one; `shown` are the job-level steps already taken."""

    state: AttemptState
    hosts: Sequence[HostView]
    ran: bool = False
    end_reason: str | None = None
    failure: InstanceFailure | None = None
    failed_host: str | None = None
    shown: frozenset[StepKind] = field(default_factory=frozenset)


def next_step(gang: GangView) -> Step | None:
    """The next step, or None where only a report, a request or a deadline can bring one."""
    if gang.state is AttemptState.PREPARING:
        return _preparing(gang)
    if gang.state is AttemptState.RUNNING:
        return _running(gang)
    if gang.state is AttemptState.ENDING:
        return _blame(gang) or _drain(gang)
    if gang.state is AttemptState.ASSEMBLING:
        return _blame(gang) or _assembling(gang)
    if gang.state is AttemptState.ENDED and all(host.gone for host in gang.hosts):
        return Step(StepKind.CLEARED)
    return None


def earliest_failure(hosts: Sequence[HostView]) -> HostView | None:
    failed = [host for host in hosts if host.failure is not None]
    return min(failed, key=lambda host: (host.failure.at if host.failure else 0.0, host.rank), default=None)


def _preparing(gang: GangView) -> Step | None:
    failed = earliest_failure(gang.hosts)
    if failed is not None:
        return Step(StepKind.END, failed.failure, failed.host)
    if StepKind.DOWNLOADING not in gang.shown and any(host.reached(Phase.DOWNLOADING) for host in gang.hosts):
        return Step(StepKind.DOWNLOADING)
    if all(host.reached(Phase.READY) for host in gang.hosts):
        return Step(StepKind.RUN)
    return None


def _running(gang: GangView) -> Step | None:
    if StepKind.TRAINING not in gang.shown and all(host.reached(Phase.RUNNING) for host in gang.hosts):
        return Step(StepKind.TRAINING)
    failed = earliest_failure(gang.hosts)
    if failed is not None:
        return Step(StepKind.END, failed.failure, failed.host)
    timed_out = next((host for host in gang.hosts if host.end_reason), None)
    if timed_out is not None:
        return Step(StepKind.END, end_reason=timed_out.end_reason)
    return _drain(gang)


def _blame(gang: GangView) -> Step | None:
    """Whether a failure earlier than the pending one was reported. After a stop only lost output counts."""
    hosts = gang.hosts if gang.end_reason is None else [host for host in gang.hosts if host.output_failed]
    failed = earliest_failure(hosts)
    if failed is None or failed.failure is None:
        return None
    if gang.failure is None or failed.failure.at < gang.failure.at:
        return Step(StepKind.BLAME, failed.failure, failed.host)
    return None


def _drain(gang: GangView) -> Step | None:
    if not all(host.over for host in gang.hosts):
        return None
    if StepKind.UPLOADING not in gang.shown:
        return Step(StepKind.UPLOADING)
    lead, others = gang.hosts[0], gang.hosts[1:]
    if not all(host.drained for host in others):
        return None
    if lead.silent:
        return Step(StepKind.FINISH)
    return Step(StepKind.ASSEMBLE, parts=tuple(part for host in others if not host.gone for part in host.parts))


def _assembling(gang: GangView) -> Step | None:
    return Step(StepKind.FINISH) if gang.hosts[0].finished else None
