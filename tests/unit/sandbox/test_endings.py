"""Which signal is due when, and what the record says."""

import signal
import time

from trainshed_worker.sandbox.endings import Endings
from trainshed_worker.sandbox.spec import Command, ExitRecord, SandboxSpec

EXIT_7 = 7 << 8


def endings(commands: int = 2, grace: float = 10.0, deadline: float | None = None) -> Endings:
    items = [Command(["x"], {}, tag=str(n)) for n in range(commands)]
    return Endings(SandboxSpec("/d", "algo-1", items, grace=grace, deadline=deadline))


def record(ends: Endings, failure: str = "") -> ExitRecord:
    return ends.record(started_at=1.0, failure=failure, oom=False, reaped=True)


def test_success_needs_no_signal() -> None:
    ends = endings()
    ends.command_ended(0, 0)
    ends.command_ended(1, 0)
    assert ends.due() == [] and ends.seconds_left() is None
    assert (record(ends).exit_code, record(ends).reason) == (0, "exited")


def test_the_first_failure_is_the_reason_though_others_follow() -> None:
    ends = endings(3)
    ends.command_ended(1, EXIT_7)
    assert ends.due() == [signal.SIGTERM] and ends.due() == []
    ends.command_ended(0, signal.SIGTERM)
    result = record(ends)
    assert (result.exit_code, result.signal) == (7, None)
    assert [(c.exit_code, c.signal, c.first_failure, c.by_us) for c in result.commands] == [
        (None, 15, False, True),
        (7, None, True, False),
        (None, 9, False, True),
    ]


def test_no_grace_skips_sigterm_and_a_longer_one_never_prolongs() -> None:
    ends = endings()
    ends.stop(0)
    assert ends.due() == [signal.SIGKILL]
    ends.stop(100)
    assert ends.due() == [] and ends.killed
    assert record(ends).reason == "stopped"


def test_a_signal_gives_128_plus_its_number() -> None:
    ends = endings(1)
    ends.command_ended(0, signal.SIGSEGV | 0x80)  # with core
    assert (record(ends).exit_code, record(ends).signal) == (139, 11)
    assert not ends.has_unasked_kill()


def test_the_deadline_begins_with_sigterm() -> None:
    ends = endings(deadline=time.time() - 1)
    assert ends.seconds_left() == 0
    assert ends.due() == [signal.SIGTERM]
    left = ends.seconds_left()
    assert left is not None and 9 < left <= 10
    ends.command_ended(0, 0)
    ends.command_ended(1, 0)
    assert (record(ends).exit_code, record(ends).reason) == (0, "deadline")


def test_a_sandbox_that_failed_says_why() -> None:
    result = record(endings(), failure="no mount")
    assert (result.exit_code, result.reason, result.message) == (1, "sandbox-failed", "no mount")
    assert result.commands == []


def test_init_killed_from_outside_is_a_failure() -> None:
    result = record(endings(1))
    assert (result.exit_code, result.signal, result.commands[0].first_failure) == (137, 9, True)
