"""The API's benchmark ends with 1 where a rate is below its share of moto's."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import api

ENV = {
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    "AWS_ACCESS_KEY_ID": "k",
    "AWS_SECRET_ACCESS_KEY": "s",
    "AWS_REGION": "us-east-1",
}
STACK = SimpleNamespace(
    env=ENV,
    role="arn:aws:iam::123456789012:role/r",
    client=lambda service: SimpleNamespace(create_bucket=lambda Bucket: None),
    down=lambda: None,
)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`bench(rates)`: the exit code where our server does so many calls of a kind in the time of one of moto's."""

    def run(**rates: int) -> int:
        def hammer(server: api.Server, requests: list[Any], clients: int, seconds: float) -> list[float]:
            operation = requests[0][1]["X-Amz-Target"].partition(".")[2]
            return [0.001] * (rates.get(operation, 100) if server.name == "trainshed" else 10)

        moto = SimpleNamespace(poll=lambda: None, terminate=lambda: None, wait=lambda: None)
        monkeypatch.setattr(subprocess, "Popen", lambda *words, **options: moto)
        monkeypatch.setattr(api.Stack, "up", lambda *words: STACK)
        monkeypatch.setattr(api, "answers", lambda server: True)
        monkeypatch.setattr(api, "fill", lambda server, jobs: server.jobs.append("job"))
        monkeypatch.setattr(api, "hammer", hammer)
        ticks = iter(range(1 << 20))
        monkeypatch.setattr(api, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
        monkeypatch.setattr(
            api.Server, "signed", lambda self, operation, body: (b"", {"X-Amz-Target": f"S.{operation}"})
        )
        monkeypatch.setattr("sys.argv", ["api", "--rounds", "3", "--seconds", "0.001"])
        return api.main()

    return run


def test_all_reached(bench: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(CreateTrainingJob=10, DescribeTrainingJob=10, ListTrainingJobs=50) == 0
    assert "not reached" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("operation", "rate", "words"),
    [
        ("CreateTrainingJob", 9, "CreateTrainingJob, 8 client(s): 0.90 of moto's rate, must be 1"),
        ("DescribeTrainingJob", 9, "DescribeTrainingJob @10000, 1 client(s): 0.90 of moto's rate, must be 1"),
        ("ListTrainingJobs", 49, "ListTrainingJobs @10000, 8 client(s): 4.90 of moto's rate, must be 5"),
    ],
)
def test_a_rate_below_its_must(
    bench: Callable[..., int], capsys: pytest.CaptureFixture[str], operation: str, rate: int, words: str
) -> None:
    assert bench(**{operation: rate}) == 1
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("not reached: ")]
    assert len(told) == len(api.CLIENTS)
    assert f"not reached: {words}" in told
