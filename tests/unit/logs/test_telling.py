"""Lines that tell why something went wrong, among those that only sound like it."""

from __future__ import annotations

import pytest

from trainshed_service.logs.telling import is_error, telling


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: CUDA out of memory",
        "torch.distributed.DistBackendError: NCCL error",
        "2026-01-01 ERROR could not open the file",
        "Killed",
        "bash: train.sh: No such file or directory",
        "Traceback (most recent call last):",
        "OSError: [Errno 28] No space left on device",
        "[rank1]: ValueError: x",
    ],
)
def test_what_tells(text: str) -> None:
    assert is_error(text)


@pytest.mark.parametrize(
    "text", ["epoch 3 loss=0.25 error=0.031", "finished with 0 errors", "no failures", "error_rate: 0.2", "a fine day"]
)
def test_what_does_not(text: str) -> None:
    assert not is_error(text)


def test_of_a_traceback_its_head_its_last_frames_and_the_exception_are_shown() -> None:
    frames = [f'  File "a.py", line {n}, in f' for n in range(30)]
    lines = ["start", "ERROR: before", "Traceback (most recent call last):", *frames, "KeyError: 'x'", "bye"]
    found = [lines[index] for index in telling(lines, 6)]
    assert found == [lines[2], *frames[-4:], "KeyError: 'x'"]
    assert telling(["all", "well"]) == []
    assert [["ERROR a", "b", "ERROR c"][index] for index in telling(["ERROR a", "b", "ERROR c"], 1)] == ["ERROR c"]
