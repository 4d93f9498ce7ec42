"""Requests map to the permissions of all that they touch; what maps to nothing is refused to jobs."""

from __future__ import annotations

import pytest

from trainshed_service.identity import Principal, job_policy
from trainshed_service.s3.authorization import Caller, authorize, authorize_deletion, keys_to_delete
from trainshed_service.s3.operations import Operation, classify
from trainshed_service.s3.target import Target
from trainshed_service.wire.errors import ApiError

POLICY = job_policy(read=[("data", "in/")], write=[("out", "job-1/")])
JOB = Caller(Principal("job", "a1", "1" * 12, "arn", attempt_id="a1", policy=POLICY))
USER = Caller(Principal("user", "admin", "1" * 12, "arn", is_admin=True))


def operation(
    method: str, bucket: str, key: str = "", query: dict[str, str] | None = None, **headers: str
) -> Operation:
    lower = {name.replace("_", "-"): value for name, value in headers.items()}
    return classify(method, Target(bucket, key), query or {}, lower)


def allowed(caller: Caller, found: Operation) -> bool:
    try:
        authorize(caller, found)
    except ApiError as error:
        assert (error.code, error.status) == ("AccessDenied", 403)
        return False
    return True


UPLOAD = {"uploadId": "u", "partNumber": "1"}

NAMES = [
    ("GET", "", "", {}, "ListBuckets"),
    ("GET", "b", "", {}, "ListObjects"),
    ("GET", "b", "", {"list-type": "2"}, "ListObjectsV2"),
    ("HEAD", "b", "", {}, "HeadBucket"),
    ("PUT", "b", "", {}, "CreateBucket"),
    ("DELETE", "b", "", {}, "DeleteBucket"),
    ("POST", "b", "", {"delete": ""}, "DeleteObjects"),
    ("GET", "b", "", {"location": ""}, "GetBucketLocation"),
    ("GET", "b", "", {"uploads": ""}, "ListMultipartUploads"),
    ("GET", "b", "k", {}, "GetObject"),
    ("HEAD", "b", "k", {}, "HeadObject"),
    ("PUT", "b", "k", {}, "PutObject"),
    ("PUT", "b", "k", UPLOAD, "UploadPart"),
    ("POST", "b", "k", {"uploads": ""}, "CreateMultipartUpload"),
    ("POST", "b", "k", {"uploadId": "u"}, "CompleteMultipartUpload"),
    ("DELETE", "b", "k", {"uploadId": "u"}, "AbortMultipartUpload"),
    ("GET", "b", "k", {"uploadId": "u"}, "ListParts"),
    ("DELETE", "b", "k", {}, "DeleteObject"),
    ("PUT", "b", "k", {"tagging": ""}, "PutObjectTagging"),
]


@pytest.mark.parametrize(("method", "bucket", "key", "query", "name"), NAMES)
def test_names(method: str, bucket: str, key: str, query: dict[str, str], name: str) -> None:
    assert operation(method, bucket, key, query).name == name


def test_what_a_job_may() -> None:
    for found in (
        operation("GET", "data", "in/x"),
        operation("HEAD", "data", "in/a/b"),
        operation("GET", "data", query={"list-type": "2", "prefix": "in/"}),
        operation("PUT", "out", "job-1/model.tar.gz"),
        operation("POST", "out", "job-1/model.tar.gz", {"uploads": ""}),
        operation("PUT", "out", "job-1/x", UPLOAD),
        operation("POST", "out", "job-1/x", {"uploadId": "u"}),
        operation("DELETE", "out", "job-1/x", {"uploadId": "u"}),
        operation("DELETE", "out", "job-1/x"),
        operation("PUT", "out", "job-1/x", x_amz_copy_source="data/in/x"),
        operation("PUT", "out", "job-1/x", UPLOAD, x_amz_copy_source="/data/in/x"),
        operation("HEAD", "data"),
        operation("GET", "out", query={"location": ""}),
    ):
        assert allowed(JOB, found), found


def test_what_a_job_may_not() -> None:
    for found in (
        operation("GET", "data", "other/x"),
        operation("GET", "data", "inside"),
        operation("PUT", "data", "in/x"),
        operation("DELETE", "data", "in/x"),
        operation("GET", "data"),
        operation("GET", "data", query={"prefix": "i"}),
        operation("GET", "data", query={"list-type": "2", "prefix": ""}),
        operation("GET", "secret", query={"prefix": "in/"}),
        operation("PUT", "out", "job-2/x"),
        operation("PUT", "out", "job-1/x", x_amz_copy_source="data/other/x"),
        operation("PUT", "out", "job-1/x", UPLOAD, x_amz_copy_source="secret/in/x"),
        operation("PUT", "out", "job-1/x", x_amz_acl="public-read"),
        operation("PUT", "out", "job-1/x", x_amz_tagging="a=b"),
        operation("GET", "data", "in/x", {"versionId": "1"}),
        operation("GET", "data", "in/x", {"torrent": ""}),
        operation("GET", "data", "in/x", {"acl": "", "tagging": ""}),
        operation("PUT", "new"),
        operation("GET", ""),
        operation("HEAD", "secret"),
        operation("PUT", "out", query={"policy": ""}),
        operation("POST", "out"),
        operation("OPTIONS", "out", "job-1/x"),
        operation("POST", "out", "job-1/x", {"select": "", "select-type": "2"}),
        operation("PATCH", "out", "job-1/x", {"uploadId": "u"}),
    ):
        assert not allowed(JOB, found), found
        assert allowed(USER, found)


def test_a_key_must_be_allowed_under_the_name_that_is_stored_too() -> None:
    anywhere = job_policy(read=[], write=[("out", "/x/")])
    caller = Caller(Principal("job", "a1", "1" * 12, "arn", attempt_id="a1", policy=anywhere))
    assert not allowed(caller, operation("PUT", "out", "/x/y"))  # the store would keep it as x/y
    assert allowed(JOB, operation("PUT", "out", "job-1//x"))


def body(*keys: str) -> bytes:
    objects = "".join(f"<Object><Key>{key}</Key></Object>" for key in keys)
    return f'<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{objects}<Quiet>true</Quiet></Delete>'.encode()


def test_deletion_needs_every_key() -> None:
    authorize_deletion(JOB, "out", body("job-1/a", "job-1/b &amp; c"))
    with pytest.raises(ApiError, match="AccessDenied"):
        authorize_deletion(JOB, "out", body("job-1/a", "job-2/b"))
    with pytest.raises(ApiError, match="AccessDenied"):
        authorize_deletion(JOB, "data", body("in/a"))


def test_deletion_documents() -> None:
    assert keys_to_delete(body("a", "b &amp; c")) == ["a", "b & c"]
    assert keys_to_delete(b"<s:Delete xmlns:s='u'><s:Object><s:Key>a</s:Key></s:Object></s:Delete>") == ["a"]
    entity = b'<!DOCTYPE d [<!ENTITY e "job-2/x">]><Delete><Object><Key>&e;</Key></Object></Delete>'
    for bad in (b"", b"<Delete>", b"<Delete/>", entity, body(*(str(n) for n in range(1001)))):
        with pytest.raises(ApiError, match="MalformedXML"):
            keys_to_delete(bad)
    with pytest.raises(ApiError):
        keys_to_delete(body("job-1/../job-2/x"))
