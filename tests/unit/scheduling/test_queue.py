"""The queue as a value: it behaves as a dictionary in the order of its keys, and old values never change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainshed_service.scheduling.queue import JobQueue

CHANGES = st.lists(st.tuples(st.sampled_from(["add", "last", "drop", "back"]), st.integers(1, 30)), max_size=60)


@given(CHANGES)
def test_it_is_an_ordered_dictionary_that_is_never_changed(changes: list[tuple[str, int]]) -> None:
    history: list[tuple[JobQueue[str], dict[int, str]]] = [(JobQueue(), {})]
    for number, (kind, value) in enumerate(changes):
        queue, known = history[-1]
        if kind == "back":  # go on from an older value: both branches must stay as they are
            history.append(history[value % len(history)])
            continue
        job_id = queue.last_id + 1 if kind == "last" else value
        if kind == "drop":
            history.append((queue.without(job_id), {k: v for k, v in known.items() if k != job_id}))
        else:
            job = known.get(job_id, f"job {number}")
            history.append((queue.with_job(job_id, f"job {number}"), {**known, job_id: job}))
    for queue, known in history:
        expected = dict(sorted(known.items()))
        assert list(queue.items()) == list(expected.items())
        assert len(queue) == len(expected)
        assert queue.last_id == max(expected, default=0)
        for job_id in range(32):
            assert (job_id in queue, queue.get(job_id)) == (job_id in expected, expected.get(job_id))
            assert queue.position(job_id) == sum(1 for other in expected if other < job_id)
            assert list(queue.behind(job_id)) == [job for other, job in expected.items() if other > job_id]
