"""How far a download is: in every report, in the log now and then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from trainshed_worker.agent import preparation
from trainshed_worker.agent.preparation import LOG_EVERY, _Progress


class State:
    def __init__(self) -> None:
        self.reported: list[str] = []
        self.logged: list[str] = []
        self.progress, self.say = self.reported.append, self.logged.append


def test_reports_and_log_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(preparation, "time", SimpleNamespace(monotonic=lambda: now[0]))
    state: Any = State()
    progress = _Progress(state, "channel train")
    progress(120_000_000, 480_000_000)
    assert (state.reported, state.logged) == (["120 of 480 MB of channel train"], [])
    now[0] = LOG_EVERY
    progress(240_000_000, 480_000_000)
    now[0] += LOG_EVERY / 2
    progress(360_000_000, 480_000_000)
    assert state.logged == ["Downloading: 240 of 480 MB of channel train"]
    progress.finished()
    assert state.logged[1:] == ["Downloaded 480 MB of channel train"]
    assert len(state.reported) == 3


def test_a_short_download_says_nothing_in_the_log() -> None:
    state: Any = State()
    progress = _Progress(state, "channel train")
    progress(1, 1)
    progress.finished()
    assert (state.reported, state.logged) == (["0 of 0 MB of channel train"], [])
