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
        pytest.param("plain.py", [], ["hello from algo-1", "hello from algo-2", "epoch=1 loss=0.5000;"], id="plain"),
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
        assert line in printed, f"{line!r} is not in\n{printed[-6000:]}"
    assert seen["listed"] and seen["status"] == "Completed"
    assert seen["model"].endswith(f"/{seen['job']}/output/model.tar.gz")
