"""How far a transfer is: in every report with rate and time left, in the log now and then."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from trainshed_worker.agent import progress
from trainshed_worker.agent.progress import LOG_EVERY, DownloadProgress, UploadProgress

MB = 1_000_000


class State:
    def __init__(self) -> None:
        self.reported: list[str] = []
        self.logged: list[str] = []

    def progress(self, text: str) -> None:
        self.reported.append(text)

    def say(self, text: str) -> None:
        self.logged.append(text)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    at = [0.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: at[0]))
    return at


def test_reports_and_log_lines(now: list[float]) -> None:
    state = State()
    download = DownloadProgress(state, "channel train")
    download(120 * MB, 480 * MB)
    assert (state.reported, state.logged) == (["120 of 480 MB of channel train"], [])
    now[0] = LOG_EVERY
    download(240 * MB, 480 * MB)
    now[0] += LOG_EVERY / 2
    download(360 * MB, 480 * MB)
    assert state.logged == ["Downloading: 240 of 480 MB of channel train, 16.0 MB/s, 15 s left"]
    download.finished()
    assert state.logged[1:] == ["Downloaded 480 MB of channel train"]
    assert len(state.reported) == 3


def test_the_rate_is_that_of_the_last_seconds(now: list[float]) -> None:
    state = State()
    download = DownloadProgress(state, "channel train")
    for second in range(1, 31):
        now[0] = float(second)
        download(second * 100 * MB, 90_000 * MB)
    assert state.reported[-1] == "3000 of 90000 MB of channel train, 100.0 MB/s, 14 min 30 s left"
    for second in range(31, 46):
        now[0] = float(second)
        download(3_000 * MB + (second - 30) * MB, 90_000 * MB)
    assert state.reported[-1] == "3015 of 90000 MB of channel train, 1.0 MB/s, 24 h 9 min left"
    now[0] = 80.0
    download(3_015 * MB, 90_000 * MB)
    now[0] = 91.0
    download(3_015 * MB, 90_000 * MB)
    assert state.reported[-1] == "3015 of 90000 MB of channel train, nothing comes at the moment"


def test_an_upload_says_its_rate(now: list[float]) -> None:
    state = State()
    upload = UploadProgress(state)
    upload("model", 10 * MB)
    now[0] = 2.0
    upload("output", 1 * MB)
    upload("model", 50 * MB)
    assert state.reported == [
        "uploaded 10 MB of model",
        "uploaded 1 MB of output",
        "uploaded 50 MB of model, 25.0 MB/s",
    ]


def test_a_short_download_says_nothing_in_the_log() -> None:
    state = State()
    download = DownloadProgress(state, "channel train")
    download(1, 1)
    download.finished()
    assert (state.reported, state.logged) == (["0 of 0 MB of channel train"], [])
