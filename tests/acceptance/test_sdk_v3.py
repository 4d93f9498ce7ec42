"""SageMaker SDK v3, unmodified."""

import shutil
from pathlib import Path

import pytest

from tests.acceptance.conftest import CLIENTS, SCRIPTS, result_of
from tests.support.stack import Stack, run

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize(
    ("entry_point", "options", "lines"),
    [
        pytest.param("plain.py", [], [f"hello from algo-{number} of" for number in (1, 2)], id="plain"),
        pytest.param(
            "ddp.py",
            ["--torchrun"],
            [f"rank={rank} world=4 local={rank % 2} host=algo-{rank // 2 + 1} sum=6" for rank in range(4)],
            id="torchrun",
        ),
    ],
)
def test_train(stack: Stack, client_python, tmp_path: Path, entry_point: str, options: list[str], lines: list[str]):
    source = tmp_path / "src"
    shutil.copytree(SCRIPTS, source)
    completed = run(
        client_python("sdk-v3"),
        CLIENTS / "sdk_v3_train.py",
        *("--source-dir", source, "--entry-point", entry_point, *options),
        env=stack.env,
        timeout=500,
    )
    seen = result_of(completed.stdout)
    printed = completed.stdout + completed.stderr
    for line in lines:
        assert printed.count(line) == 1, f"{line!r} is {printed.count(line)} times in\n{printed[-6000:]}"
    assert seen["listed"] and seen["status"] == "Completed"
    assert seen["model"].endswith(f"/{seen['job']}/output/model.tar.gz")
    assert seen["deleted"] == "Requested resource not found."


def test_stop_and_the_refused_mpi_driver(stack: Stack, client_python, tmp_path: Path):
    (tmp_path / "wait.py").write_text("import threading\nprint('waiting', flush=True)\nthreading.Event().wait()\n")
    completed = run(
        client_python("sdk-v3"),
        CLIENTS / "sdk_v3_train.py",
        *("--source-dir", tmp_path, "--entry-point", "wait.py", "--count", "1", "--stop", "--mpi"),
        env=stack.env,
        timeout=500,
    )
    seen = result_of(completed.stdout)
    assert (seen["status"], seen["deleted"]) == ("Stopped", "Requested resource not found.")
    assert "The MPI() driver of SageMaker SDK v3 reaches the other hosts by SSH" in seen["refused"]
    assert "distributed=Torchrun(process_count_per_node=...)" in seen["refused"]
    assert "{'mpi': ...}" in seen["refused"]
