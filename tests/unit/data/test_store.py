"""URIs, and what a job's transfers take from the node's environment (nothing)."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest
from botocore.exceptions import ClientError

from tests.support.agent_gang import nowhere
from trainshed_worker.data import Cancellation, Cancelled, DataError, ObjectStore, parse_uri
from trainshed_worker.protocol import FailureCause


@pytest.mark.parametrize(
    ("uri", "bucket", "key"),
    [("s3://b", "b", ""), ("s3://b/", "b", ""), ("s3://b/a?x#y", "b", "a?x#y"), ("s3://b//a", "b", "/a")],
)
def test_uris(uri: str, bucket: str, key: str) -> None:
    place = parse_uri(uri)
    assert (place.bucket, place.key) == (bucket, key)


@pytest.mark.parametrize("uri", ["", "b/k", "s3://", "s3:///k", "https://b/k"])
def test_bad_uris(uri: str) -> None:
    with pytest.raises(ValueError, match=r"s3://|names no bucket"):
        parse_uri(uri)


def test_the_node_s_own_aws_settings_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-node")
    store = ObjectStore(nowhere())
    assert store.client.meta.endpoint_url == "http://127.0.0.1:9"


def test_renewed_credentials_sign_the_next_request() -> None:
    store = ObjectStore(nowhere())
    shared = store.with_cancellation(Cancellation())

    def key_of(url: str) -> str:
        return url.split("X-Amz-Credential=")[1].split("%2F")[0]

    def sign() -> str:
        return key_of(shared.client.generate_presigned_url("get_object", Params={"Bucket": "b", "Key": "k"}))

    assert sign() == "key"
    store.renew(nowhere().model_copy(update={"access_key_id": "fresh"}))
    assert sign() == "fresh"


def refusal(status: int, code: str) -> ClientError:
    return ClientError(
        {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": status}},  # type: ignore[typeddict-item]
        "GetObject",
    )


def test_a_refusal_is_final_and_an_outage_is_waited_for() -> None:
    store = ObjectStore(nowhere(), stall_seconds=30)
    answers: list[BaseException | int] = [refusal(500, "InternalError"), ConnectionError("down"), 7]
    waits: list[str] = []

    def act() -> int:
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    assert store.call(act, "reading s3://b/k", FailureCause.USER_INPUT, waits.append) == 7
    assert len(waits) == 2
    answers.append(refusal(403, "AccessDenied"))
    with pytest.raises(DataError, match="reading s3://b/k: access denied"):
        store.call(act, "reading s3://b/k", FailureCause.USER_INPUT)


def test_waiting_ends_with_the_budget_and_with_a_stop() -> None:
    def fail() -> int:
        raise ConnectionError("down")

    store = ObjectStore(nowhere(), stall_seconds=0.3)
    with pytest.raises(DataError, match="gave up"):
        store.call(fail, "writing s3://b/k", FailureCause.OUTPUT)
    flag = Cancellation()
    store = ObjectStore(nowhere(), flag)
    with pytest.raises(Cancelled):
        store.call(fail, "writing s3://b/k", FailureCause.OUTPUT, lambda _: flag.cancel())


@pytest.mark.parametrize("fault", ["refused", "closed without an answer"])
def test_what_boto3_says_of_a_store_that_is_away_is_waited_for(fault: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if fault == "refused":
            server.close()
        else:
            threading.Thread(target=hang_up, args=(server,), daemon=True).start()
        access = nowhere().model_copy(update={"endpoint_url": f"http://127.0.0.1:{port}"})
        flag = Cancellation()
        store = ObjectStore(access, flag)
        waits: list[str] = []

        def note(text: str) -> None:
            waits.append(text)
            flag.cancel()

        with pytest.raises(Cancelled):
            store.call(lambda: store.client.head_object(Bucket="b", Key="k"), "reading", FailureCause.OUTPUT, note)
    assert len(waits) == 1 and f"the object store at http://127.0.0.1:{port} does not answer" in waits[0]


def hang_up(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            server.accept()[0].close()
