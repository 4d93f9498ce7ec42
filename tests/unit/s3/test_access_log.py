"""Access lines come out whole, soon, and all of them at the end; a head cannot be forged by a parameter."""

from __future__ import annotations

import io
import json

import pytest

from tests.support.wait import wait_until_async
from trainshed_service.s3 import answers
from trainshed_service.s3.access_log import AccessLog
from trainshed_service.wire.errors import ApiError


async def test_lines_come_out_by_themselves_and_at_the_end() -> None:
    stream = io.StringIO()
    log = AccessLog(stream)
    log.add({"key": "a\nb", "status": 200})
    assert stream.getvalue() == ""
    await wait_until_async(stream.getvalue, what="the line is out")
    log.add({"key": "second", "status": None})
    log.flush()
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["key"], first["status"], first["event"], first["timestamp"][-1]) == ("a\nb", 200, "s3", "Z")
    assert second["key"] == "second"


async def test_many_lines_are_not_kept() -> None:
    stream = io.StringIO()
    log = AccessLog(stream)
    for number in range(1500):
        log.add({"n": number})
    assert [json.loads(line)["n"] for line in stream.getvalue().splitlines()] == list(range(1000))


async def test_a_full_disk_does_not_end_the_gateway() -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(28, "No space left on device")

    log = AccessLog(Full())
    log.add({"n": 1})
    log.flush()
    log.add({"n": 2})
    log.flush()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-amz-meta-a", "b\r\nx-amz-acl: public-read"),
        ("x-amz-meta-a", "b\nc"),
        ("x-amz-meta-a", "b\0c"),
        ("x-amz-meta-a\r\nx", "b"),
        ("x-amz-meta a", "b"),
        ("x-amz-meta-a:b", "c"),
        ("x-amz-meta-a", "\udcff"),
    ],
)
def test_what_could_end_a_head_is_refused(name: str, value: str) -> None:
    with pytest.raises(ApiError) as caught:
        answers.check_header(name, value)
    assert caught.value.code == "InvalidArgument"
