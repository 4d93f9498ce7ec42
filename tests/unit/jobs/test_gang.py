"""What an attempt does next: a simulated gang under any order of reports always comes to its end."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.depth import examples
from trainshed_service.jobs.gang import GangView, HostView, StepKind, next_step
from trainshed_service.jobs.states import ATTEMPT_TRANSITIONS, AttemptState
from trainshed_worker.protocol import FailureCause, InstanceFailure, Phase

S, K = AttemptState, StepKind


def failure(at: float, cause: FailureCause = FailureCause.ALGORITHM) -> InstanceFailure:
    return InstanceFailure(cause=cause, message="boom", exit_code=1, at=at)


def gang(state: AttemptState, *phases: Phase | None, **values: object) -> GangView:
    hosts = tuple(HostView(rank, f"algo-{rank + 1}", phase) for rank, phase in enumerate(phases))
    return GangView(state=state, hosts=hosts, **values)  # type: ignore[arg-type]


def test_runs_only_when_all_are_ready() -> None:
    shown = frozenset({K.DOWNLOADING})
    assert next_step(gang(S.PREPARING, Phase.READY, Phase.INSTALLING, shown=shown)) is None
    step = next_step(gang(S.PREPARING, Phase.READY, Phase.READY, shown=shown))
    assert step is not None and step.kind is K.RUN


def test_the_lead_assembles_after_every_other_part() -> None:
    shown = frozenset({K.DOWNLOADING, K.TRAINING, K.UPLOADING})
    waiting = gang(S.RUNNING, Phase.PART_UPLOADED, Phase.UPLOADING, ran=True, shown=shown)
    assert next_step(waiting) is None
    other = replace(waiting.hosts[1], phase=Phase.PART_UPLOADED, parts=("s3://b/part",))
    step = next_step(replace(waiting, hosts=(waiting.hosts[0], other)))
    assert step is not None and (step.kind, step.parts) == (K.ASSEMBLE, ("s3://b/part",))


def test_an_earlier_failure_replaces_the_pending_one_but_not_after_a_stop() -> None:
    base = gang(S.ENDING, Phase.EXITED, Phase.EXITED, ran=True, failure=failure(5.0), failed_host="algo-1")
    earlier = replace(base.hosts[1], failure=failure(4.0))
    step = next_step(replace(base, hosts=(base.hosts[0], earlier)))
    assert step is not None and (step.kind, step.host) == (K.BLAME, "algo-2")
    stopped = replace(base, hosts=(base.hosts[0], earlier), end_reason="stop-requested", failure=None)
    step = next_step(stopped)
    assert step is not None and step.kind is K.UPLOADING


def test_a_host_that_never_accepted_holds_up_nothing() -> None:
    shown = frozenset({K.UPLOADING})
    step = next_step(gang(S.ENDING, None, Phase.PART_UPLOADED, failure=failure(1.0), shown=shown))
    assert step is not None and step.kind is K.FINISH


HOST_ACTIONS = st.tuples(st.integers(0, 2), st.sampled_from(["go", "fail", "lose"]))


@settings(max_examples=examples(60))
@given(st.integers(1, 3), st.lists(HOST_ACTIONS, max_size=30))
def test_any_history_keeps_the_table_and_comes_to_an_end(size: int, script: list[tuple[int, str]]) -> None:
    view = gang(S.PREPARING, *([None] * size))
    finished = False
    clock = 0.0
    # After the script every host goes on by itself: a gang may wait for reports, never for nothing.
    tail = [(rank, "go") for _ in range(20) for rank in range(size)]
    for rank, action in [*script, *tail]:
        clock += 1.0
        if rank >= size or view.state is S.CLEARED:
            continue
        hosts = list(view.hosts)
        hosts[rank] = _act(view, hosts[rank], action, clock)
        view = replace(view, hosts=tuple(hosts))
        for _ in range(20):
            step = next_step(view)
            if step is None:
                break
            if step.kind is K.RUN:
                assert all(host.reached(Phase.READY) for host in view.hosts)
            if step.kind is K.FINISH:
                assert not finished
                finished = True
                assert not view.ran or all(host.drained for host in view.hosts[1:])
            view = _take(view, step)
        else:
            raise AssertionError(f"steps without an end: {view}")
    assert finished and view.state is S.CLEARED


def _act(view: GangView, host: HostView, action: str, clock: float) -> HostView:
    if host.gone:
        return host
    if view.state is S.ENDED or action == "lose":
        lost = host.failure or (None if view.state is S.ENDED else failure(clock, FailureCause.NODE))
        return replace(host, gone=True, failure=lost)
    order = list(Phase)
    if host.phase is None:
        return replace(host, phase=Phase.ACCEPTED)
    ends = view.state in (S.ENDING, S.ASSEMBLING)
    if action == "fail" and not host.reached(Phase.EXITED):
        return replace(host, failure=failure(clock), phase=Phase.EXITED if host.reached(Phase.RUNNING) else host.phase)
    if not host.reached(Phase.EXITED):
        if ends:
            return replace(host, phase=Phase.EXITED)
        if host.phase is Phase.READY and view.state is not S.RUNNING:
            return host
        return replace(host, phase=order[order.index(host.phase) + 1])
    last = Phase.FINISHED if host.rank == 0 and view.state is S.ASSEMBLING else Phase.PART_UPLOADED
    following = order[min(order.index(host.phase) + 1, order.index(last))]
    return replace(host, phase=max(host.phase, following, key=order.index))


def _take(view: GangView, step: object) -> GangView:
    kind = step.kind  # type: ignore[attr-defined]
    target = {
        K.RUN: S.RUNNING,
        K.END: S.ENDING,
        K.ASSEMBLE: S.ASSEMBLING,
        K.FINISH: S.ENDED,
        K.CLEARED: S.CLEARED,
    }.get(kind, view.state)
    assert target is view.state or target in ATTEMPT_TRANSITIONS[view.state]
    view = replace(view, state=target, ran=view.ran or kind is K.RUN, shown=view.shown | {kind})
    if kind in (K.END, K.BLAME):
        found = step.failure  # type: ignore[attr-defined]
        assert view.failure is None or found is None or found.at < view.failure.at
        view = replace(view, failure=found)
    return view
