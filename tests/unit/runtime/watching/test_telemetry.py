"""The line of a step: what it says, that the job's patterns read it, and where its bytes come from."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.ranks import run_ranks
from trainshed_worker.logs.metrics import definitions, scan
from trainshed_worker.protocol import LogLine

if find_spec("torch") is None:
    pytest.skip("the runtime extra is not installed", allow_module_level=True)

_CASES = "tests.unit.runtime.watching.cases"


def test_an_engine_reports_its_steps() -> None:
    found, other = run_ranks(2, f"{_CASES}:reported", 8)
    assert other["lines"] == [], "rank 0 alone prints"
    lines = [dict(word.split("=") for word in line.split()[1:]) for line in found["lines"]]
    assert [line["step"] for line in lines] == ["2", "4", "6", "8"]
    for line in lines:
        seconds = float(line["seconds"])
        assert float(line["tokens_per_second"]) == pytest.approx(found["tokens"] / seconds, rel=1e-3)
        assert float(line["communication_seconds"]) > 0
        assert float(line["loss_scale"]) == 64
        assert int(line["local_bytes"]) > 1000, "two ranks of one machine talk over loopback"
        assert "loss" not in line, "what is not known is left out"
    assert [line["slowest_rank"] for line in lines].count("1") >= 3


def test_the_patterns_read_the_line() -> None:
    from trainshed_runtime.telemetry import METRICS, Report, metric_definitions

    report = Report(12, 0.5, 3851.25, 0.041, 0.21, 55_400_000, 0, 3, -1e-7, 65536.0, 2.5)
    line = LogLine(seq=1, timestamp_ms=1_700_000_000_000, stream="algo-1", text=f"[1,0]<stdout>:{report.line()}")
    request = {"AlgorithmSpecification": {"MetricDefinitions": metric_definitions()}}
    points = {point.name: point.value for point in scan(definitions(request), [line])}
    assert points == {f"trainshed:{name}": getattr(report, name) for name in METRICS}


def test_bytes_come_from_the_kernels_counters(tmp_path: Path) -> None:
    from trainshed_runtime.telemetry import LinkCounters

    def write(path: Path, value: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")

    network, fabric = tmp_path / "net", tmp_path / "infiniband"
    write(network / "eth0" / "statistics" / "tx_bytes", 1000)
    write(network / "lo" / "statistics" / "tx_bytes", 10)
    counters = LinkCounters(network, fabric)
    write(network / "eth0" / "statistics" / "tx_bytes", 1500)
    write(network / "lo" / "statistics" / "tx_bytes", 30)
    assert counters.take() == (500, 20)
    write(fabric / "rdmap0" / "ports" / "1" / "hw_counters" / "tx_bytes", 7000)
    assert counters.take() == (7000, 0)
    write(network / "eth0" / "statistics" / "tx_bytes", 3)
    assert counters.take() == (0, 0), "an interface that began anew has sent nothing that is known"
    assert LinkCounters(tmp_path / "absent", fabric).take() is None
