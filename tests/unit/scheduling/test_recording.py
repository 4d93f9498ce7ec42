"""Recorded inputs run again give the same decisions, whatever became of the files; recording never gets in the way."""

from __future__ import annotations

import json
import random
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.scheduling.world import C5, M5, job, node
from trainshed_service.jobs.spec import Member
from trainshed_service.scheduling import (
    Decision,
    JobGone,
    NodeFree,
    NodeGone,
    NodeTaken,
    PlannerEvent,
    Policy,
    PoolAvailable,
    PoolEnded,
    QuotaRule,
    Quotas,
    Running,
    State,
    Tick,
    Usage,
    restore,
    step_all,
)
from trainshed_service.scheduling.codec import event_of, event_record
from trainshed_service.scheduling.events import Place
from trainshed_service.scheduling.recording import FOLDER, Recorder, snapshot
from trainshed_service.scheduling.replay import main, replay

POLICY = Policy(usage_half_life_seconds=1000.0, reclaim_warm_after_seconds=30.0)


class Recorded:
    """A planner whose inputs are recorded, in a world where jobs end after a while."""

    def __init__(self, home: Path, limit: int) -> None:
        self.recorder = Recorder(home, limit, POLICY)
        self.now = 1_800_000_000.0
        self.state = State(POLICY)
        self.running: list[Place] = []
        self.decisions = 0
        self.begin([node("a"), node("b"), node("c", C5), node("d", M5), Usage(1, 500.0, self.now)])

    def begin(self, events: list[PlannerEvent]) -> None:
        self.state, decisions = restore(events, self.now, POLICY)
        self.recorder.restored(self.now, events, decisions)
        self.note(decisions)

    def step(self, *events: PlannerEvent) -> None:
        self.state, decisions = step_all(self.state, events, self.now)
        self.recorder.stepped(self.now, events, decisions)
        self.note(decisions)

    def note(self, decisions: list[Decision]) -> None:
        self.decisions += len(decisions)
        self.running += [decision for decision in decisions if isinstance(decision, Place)]

    def run(self, steps: int, seed: int = 0) -> None:
        chance = random.Random(seed)
        self.step(Quotas((QuotaRule("user", "2", "*", 2, "bob"),)))
        for number in range(1, steps + 1):
            self.now += chance.random() * 20
            types = [chance.choice([C5, M5])] * chance.choice([1, 1, 2, 3])
            seconds = chance.choice([10.0, 600.0])
            key = f"{types[0]} {len(types)}"
            user, job_id = chance.choice([1, 2]), 1000 * seed + number
            self.step(job(job_id, *types, user=user, seconds=seconds, queued_at=self.now, pool_key=key))
            if self.running and chance.random() < 0.6:
                place = self.running.pop(0)
                if place.job.pool_key and chance.random() < 0.5:
                    name, until = f"pool-{number}", self.now + 100
                    kind = place.job.members[0].instance_type
                    since = self.now
                    self.step(PoolAvailable(name, place.job.pool_key, "", 1, kind, place.nodes, since, until))
                    self.now += 40
                    self.step(Tick())
                    if name in self.state.fleet.pools:
                        self.step(PoolEnded(name))
                self.step(*(NodeFree(name, self.state.fleet.nodes[name].cls.types) for name in place.nodes))
            if self.recorder.wants_snapshot:
                self.begin(snapshot(self.state))


def test_a_recorded_run_gives_the_same_decisions_again(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, 10_000_000)
    recorded.run(150)
    recorded.recorder.close()
    (file,) = (tmp_path / FOLDER).iterdir()
    found = replay(file)
    assert found.difference is None
    assert (found.decisions, found.steps > 200) == (recorded.decisions, True)
    assert main([str(file)]) == 0


def test_a_decision_that_is_another_now_is_found(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, 10_000_000)
    recorded.run(30)
    recorded.recorder.close()
    (file,) = (tmp_path / FOLDER).iterdir()
    lines = file.read_text().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if '"place":' in line)
    record = json.loads(lines[at])
    record["decisions"][0]["nodes"] = ["z"]
    lines[at] = json.dumps(record) + "\n"
    file.write_text("".join(lines))
    assert f"line {at + 1}, decision 1: recorded " in str(replay(file).difference)
    assert main([str(file)]) == 1


def test_files_stay_within_the_limit_and_each_can_be_replayed(tmp_path: Path) -> None:
    limit = 60_000
    recorded = Recorded(tmp_path, limit)
    for seed in range(6):
        recorded.run(60, seed)
        for job_id in list(recorded.state.queue.jobs):
            recorded.step(JobGone(job_id))
    recorded.recorder.close()
    files = sorted((tmp_path / FOLDER).iterdir())
    assert int(files[-1].stem) > 2, "the files were never changed"
    assert sum(file.stat().st_size for file in files) <= limit
    for file in files:
        found = replay(file)
        assert found.difference is None and found.steps > 0


def test_the_limit_holds_where_the_snapshot_comes_late(tmp_path: Path) -> None:
    limit = 20_000
    recorded = Recorded(tmp_path, limit)
    for number in range(1_000):
        recorded.step(NodeFree(f"late-{number}", frozenset()))
    recorded.recorder.close()
    (file,) = (tmp_path / FOLDER).iterdir()
    assert limit // 4 < file.stat().st_size <= limit // 2
    assert replay(file).difference is None
    assert recorded.recorder.wants_snapshot


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, 10_000_000)
    recorded.run(20)
    recorded.recorder.close()
    (file,) = (tmp_path / FOLDER).iterdir()
    whole = replay(file).steps
    file.write_bytes(file.read_bytes()[:-5])
    assert replay(file).steps == whole - 1
    file.write_bytes(b"{}\n")
    assert main([str(file)]) == 2


def test_a_disk_that_refuses_ends_the_recording_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("in the way")
    recorded = Recorded(tmp_path, 10_000_000)
    recorded.run(20)
    recorded.recorder.close()
    assert recorded.decisions > 0
    assert not recorded.recorder.wants_snapshot
    assert (tmp_path / FOLDER).read_text() == "in the way"


def test_a_limit_of_nothing_records_nothing(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, 0)
    recorded.run(3)
    recorded.recorder.close()
    assert list(tmp_path.iterdir()) == []


IDS = st.integers(1, 100)
TEXT = st.text(max_size=8)
TIMES = st.floats(0, 2e9)
MEMBERS = st.lists(st.builds(Member, TEXT, TEXT), min_size=1, max_size=4).map(tuple)
NAMES = st.lists(TEXT, max_size=3)
EVENTS = st.one_of(
    st.builds(
        job,
        IDS,
        TEXT,
        user=st.none() | IDS,
        priority=st.integers(-100, 100),
        pool_key=st.none() | TEXT,
        avoid=NAMES.map(frozenset),
        give_up_at=st.none() | TIMES,
    ),
    st.builds(JobGone, IDS),
    st.builds(NodeFree, TEXT, NAMES.map(frozenset)),
    st.builds(NodeTaken, TEXT, NAMES.map(frozenset)),
    st.builds(NodeGone, TEXT),
    st.builds(Running, IDS, IDS, TEXT, NAMES.map(tuple), MEMBERS, TIMES, TIMES, st.none() | TIMES),
    st.builds(PoolAvailable, TEXT, TEXT, TEXT, st.none() | IDS, TEXT, NAMES.map(tuple), TIMES, TIMES),
    st.builds(PoolEnded, TEXT),
    st.builds(Usage, IDS, TIMES, TIMES),
    st.builds(Tick),
    st.builds(Quotas, st.lists(st.builds(QuotaRule, st.just("user"), TEXT, TEXT, IDS, TEXT), max_size=2).map(tuple)),
)


@given(EVENTS)
def test_an_event_comes_back_from_its_record(event: PlannerEvent) -> None:
    assert event_of(json.loads(json.dumps(event_record(event)))) == event
