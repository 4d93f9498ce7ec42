"""The verifier against botocore's own signers, over odd paths, queries and headers, and against forgeries."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace
from urllib.parse import quote, urlsplit

import pytest
from botocore.auth import (
    HmacV1QueryAuth,
    S3SigV4Auth,
    S3SigV4QueryAuth,
    SigV4Auth,
    SigV4QueryAuth,
)
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from tests.support.signing_times import other_time_of_that_day
from trainshed_service.wire.sigv4 import (
    AuthFailure,
    Framing,
    Payload,
    Proof,
    SignatureError,
    check_body,
    credential_service,
    parse,
    verify,
)

ACCESS, SECRET, TOKEN = "AKIAEXAMPLE000000001", "an-example/secret+key", "session token/with+odd=bytes"


@dataclass(frozen=True)
class Key:
    secret: str = SECRET
    session_token_hash: str | None = None
    active: bool = True
    expires_at: float | None = None


TOKEN_KEY = Key(session_token_hash=hashlib.sha256(TOKEN.encode()).hexdigest())


@dataclass(frozen=True)
class Sent:
    """What a server sees of a request."""

    method: str
    path: str
    query: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""

    def header(self, name: str, value: str | None) -> Sent:
        kept = tuple(pair for pair in self.headers if pair[0].lower() != name.lower())
        return replace(self, headers=kept if value is None else (*kept, (name, value)))


def sign(
    signer: str,
    method: str = "POST",
    path: str = "/",
    query: str = "",
    body: bytes = b"",
    headers: dict[str, str] | None = None,
    token: str | None = None,
    service: str = "sagemaker",
    params: dict[str, str] | None = None,
    expires: int = 600,
) -> Sent:
    credentials = Credentials(ACCESS, SECRET, token)
    url = "http://127.0.0.1:8123" + path + (f"?{query}" if query else "")
    request = AWSRequest(method=method, url=url, data=body, headers=headers or {}, params=params or {})
    made = {
        "v4": lambda: SigV4Auth(credentials, service, "eu-west-1"),
        "s3v4": lambda: S3SigV4Auth(credentials, "s3", "eu-west-1"),
        "v4-query": lambda: SigV4QueryAuth(credentials, service, "eu-west-1", expires=expires),
        "s3v4-query": lambda: S3SigV4QueryAuth(credentials, "s3", "eu-west-1", expires=expires),
        "v2-query": lambda: HmacV1QueryAuth(credentials, expires=expires),
    }[signer]()
    made.add_auth(request)
    prepared = request.prepare()
    parts = urlsplit(prepared.url)
    sent = tuple(
        (name, value if isinstance(value, str) else value.decode()) for name, value in prepared.headers.items()
    )
    if not any(name.lower() == "host" for name, _ in sent):
        sent = (("Host", parts.netloc), *sent)
    return Sent(method, parts.path, parts.query, sent, body)


def check(
    sent: Sent,
    framing: Framing,
    key: Key | None = Key(),
    *,
    now: float | None = None,
    services: set[str] | None = None,
    stream: bool = False,
) -> Proof:
    signed = parse(sent.method, sent.path, sent.query, sent.headers, framing=framing)
    body = None if stream else hashlib.sha256(sent.body).hexdigest()
    return verify(signed, key, body_sha256=body, now=time.time() if now is None else now, services=services)


def failure(sent: Sent, framing: Framing, key: Key | None = Key(), **more: object) -> SignatureError:
    with pytest.raises(SignatureError) as caught:
        check(sent, framing, key, **more)  # type: ignore[arg-type]
    assert SECRET not in str(caught.value)
    return caught.value


# -- what botocore signs is accepted ---------------------------------------------------------------------------------

segments = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"), min_size=1, max_size=12)
keys = st.lists(segments, min_size=1, max_size=4).map("/".join)
queries = st.lists(
    st.tuples(
        st.sampled_from(["prefix", "delimiter", "uploadId", "versionId", "marker", "tagging", "a b", "é"]),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    ),
    max_size=4,
    unique_by=lambda pair: pair[0],
)


def encoded(pairs: list[tuple[str, str]]) -> str:
    return "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in pairs)


@given(key=keys, pairs=queries, body=st.binary(max_size=64), token=st.sampled_from([None, TOKEN]))
def test_s3_header_form(key: str, pairs: list[tuple[str, str]], body: bytes, token: str | None) -> None:
    path = "/bucket/" + quote(key, safe="/~")
    sent = sign("s3v4", "PUT", path, encoded(pairs), body, {"x-amz-meta-a": "two  words "}, token)
    proof = check(sent, Framing.S3, TOKEN_KEY if token else Key(), services={"s3"}, stream=True)
    assert proof.payload is Payload.HASHED
    check_body(proof, hashlib.sha256(body).hexdigest())
    with pytest.raises(SignatureError):
        check_body(proof, hashlib.sha256(body + b"x").hexdigest())


@given(key=keys, pairs=queries)
def test_s3_parameters_that_botocore_encodes_itself(key: str, pairs: list[tuple[str, str]]) -> None:
    """botocore signs `%20` and sends `+` for a space in its own parameters."""
    sent = sign("s3v4", "GET", "/bucket/" + quote(key, safe="/~"), params=dict(pairs))
    assert check(sent, Framing.S3).access_key_id == ACCESS


@given(key=keys, pairs=queries, token=st.sampled_from([None, TOKEN]))
def test_s3_presigned_v4(key: str, pairs: list[tuple[str, str]], token: str | None) -> None:
    sent = sign("s3v4-query", "GET", "/bucket/" + quote(key, safe="/~"), encoded(pairs), token=token)
    proof = check(sent, Framing.S3, TOKEN_KEY if token else Key(), stream=True)
    assert proof.payload is Payload.UNSIGNED


@given(key=keys, pairs=queries, token=st.sampled_from([None, TOKEN]), method=st.sampled_from(["GET", "PUT", "DELETE"]))
def test_s3_presigned_v2(key: str, pairs: list[tuple[str, str]], token: str | None, method: str) -> None:
    query = "&".join(
        f"{name}={quote(value, safe='-_.~')}" for name, value in pairs if name.isascii() and " " not in name
    )
    sent = sign("v2-query", method, "/bucket/" + quote(key, safe="/~"), query, token=token)
    proof = check(sent, Framing.S3, TOKEN_KEY if token else Key(), stream=True)
    assert proof.payload is Payload.UNSIGNED


@given(path=keys, pairs=queries, body=st.binary(max_size=64), token=st.sampled_from([None, TOKEN]))
def test_json_services(path: str, pairs: list[tuple[str, str]], body: bytes, token: str | None) -> None:
    headers = {"X-Amz-Target": "SageMaker.ListTags", "Content-Type": "application/x-amz-json-1.1"}
    sent = sign("v4", "POST", "/" + quote(path, safe="/~"), encoded(pairs), body, headers, token)
    check(sent, Framing.JSON, TOKEN_KEY if token else Key(), services={"sagemaker"})
    error = failure(replace(sent, body=body + b"!"), Framing.JSON, TOKEN_KEY if token else Key())
    assert error.failure is AuthFailure.MISMATCH


def test_presigned_query_service() -> None:
    sent = sign("v4-query", "GET", "/", "Action=GetCallerIdentity&Version=2011-06-15", service="sts")
    assert check(sent, Framing.QUERY, services={"sts"}).access_key_id == ACCESS


def test_v2_with_content_type_in_header_and_url() -> None:
    sent = sign("v2-query", "PUT", "/b/k", headers={"content-type": "text/plain", "x-amz-meta-a": "b"})
    check(sent, Framing.S3, stream=True)
    without = sent.header("content-type", None).header("x-amz-meta-a", None)
    check(without, Framing.S3, stream=True)
    assert failure(sent.header("x-amz-acl", "public-read"), Framing.S3, stream=True).failure is AuthFailure.MISMATCH


@pytest.mark.parametrize(
    ("marker", "payload"),
    [
        ("UNSIGNED-PAYLOAD", Payload.UNSIGNED),
        ("STREAMING-UNSIGNED-PAYLOAD-TRAILER", Payload.STREAMING_UNSIGNED_TRAILER),
        ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", Payload.STREAMING_SIGNED),
        ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", Payload.STREAMING_SIGNED_TRAILER),
    ],
)
def test_payload_markers(marker: str, payload: Payload) -> None:
    sent = sign("v4", "PUT", "/b/k", body=b"ignored", headers={"X-Amz-Content-SHA256": marker}, service="s3")
    proof = check(sent, Framing.S3)
    assert proof.payload is payload
    assert proof.payload.aws_chunked == (payload is not Payload.UNSIGNED)
    assert proof.seed_signature and len(proof.signing_key) == 32
    check_body(proof, "0" * 64)


def test_other_services_never_skip_the_body() -> None:
    headers = {"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD", "X-Amz-Target": "SageMaker.ListTags"}
    sent = sign("v4", body=b"{}", headers=headers)
    assert failure(sent, Framing.JSON).failure is AuthFailure.MISMATCH
    with pytest.raises(ValueError, match="only S3"):
        check(sent, Framing.JSON, stream=True)


def test_streaming_ecdsa_is_refused() -> None:
    headers = {"X-Amz-Content-SHA256": "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD"}
    assert (
        failure(sign("v4", "PUT", "/b/k", headers=headers, service="s3"), Framing.S3).failure is AuthFailure.MALFORMED
    )


# -- what is not signed so is refused, in each service's words -------------------------------------------------------


def test_any_change_of_a_signed_part_is_a_mismatch() -> None:
    sent = sign("s3v4", "PUT", "/b/key", "partNumber=1&uploadId=x", b"body", {"x-amz-meta-a": "b"})
    for forged in (
        replace(sent, method="DELETE"),
        replace(sent, path="/b/key2"),
        replace(sent, path="/b/key/"),
        replace(sent, query="partNumber=2&uploadId=x"),
        replace(sent, query=sent.query + "&acl"),
        sent.header("x-amz-meta-a", "c"),
        sent.header("x-amz-meta-a", None),
        sent.header("Host", "elsewhere:80"),
        sent.header("X-Amz-Date", other_time_of_that_day(dict(sent.headers)["X-Amz-Date"], 60)),
    ):
        assert failure(forged, Framing.S3).failure is AuthFailure.MISMATCH, forged
    assert failure(sent, Framing.S3, Key(secret="another")).failure is AuthFailure.MISMATCH
    assert failure(replace(sent, body=b"other"), Framing.S3).failure is AuthFailure.BAD_BODY


def test_headers_added_on_the_way_are_refused() -> None:
    sent = sign("s3v4", "PUT", "/b/key", body=b"body")
    added = failure(sent.header("x-amz-acl", "public-read"), Framing.S3)
    assert added.failure is AuthFailure.UNSIGNED_HEADERS
    assert added.framed(Framing.S3).code == "AccessDenied"
    target = failure(sign("v4", body=b"{}").header("X-Amz-Target", "SageMaker.DeleteTrainingJob"), Framing.JSON)
    assert target.failure is AuthFailure.UNSIGNED_HEADERS


SENTENCE = "The request signature we calculated does not match the signature you provided."


@pytest.mark.parametrize(
    ("framing", "code", "status"),
    [
        (Framing.JSON, "InvalidSignatureException", 403),
        (Framing.QUERY, "SignatureDoesNotMatch", 403),
        (Framing.S3, "SignatureDoesNotMatch", 403),
    ],
)
def test_mismatch_texts(framing: Framing, code: str, status: int) -> None:
    sent = sign("s3v4" if framing is Framing.S3 else "v4", body=b"{}")
    error = failure(sent, framing, Key(secret="wrong")).framed(framing)
    assert (error.code, error.status) == (code, status)
    assert error.message.startswith(SENTENCE)


@pytest.mark.parametrize(
    ("framing", "code", "message"),
    [
        (Framing.JSON, "UnrecognizedClientException", "The security token included in the request is invalid."),
        (Framing.QUERY, "InvalidClientTokenId", "The security token included in the request is invalid."),
        (Framing.S3, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records."),
    ],
)
def test_unknown_and_inactive_keys(framing: Framing, code: str, message: str) -> None:
    sent = sign("s3v4" if framing is Framing.S3 else "v4", body=b"{}")
    for key in (None, Key(active=False)):
        error = failure(sent, framing, key).framed(framing)
        assert (error.code, error.message) == (code, message)


def test_clock_skew() -> None:
    now = time.time()
    json_call, s3_call = sign("v4", body=b"{}"), sign("s3v4", body=b"{}")
    for offset in (-890, 890):
        check(json_call, Framing.JSON, now=now + offset)
    late = failure(json_call, Framing.JSON, now=now + 905)
    assert late.framed(Framing.JSON).code == "InvalidSignatureException"
    assert late.framed(Framing.JSON).message.startswith("Signature expired: ")
    assert "- 15 min.)" in late.framed(Framing.JSON).message
    early = failure(json_call, Framing.JSON, now=now - 905).framed(Framing.QUERY)
    assert early.code == "SignatureDoesNotMatch"
    assert early.message.startswith("Signature not yet current: ")
    assert failure(s3_call, Framing.S3, now=now + 905).framed(Framing.S3).code == "RequestTimeTooSkewed"


@pytest.mark.parametrize("signer", ["s3v4-query", "v2-query"])
def test_presigned_urls_run_out(signer: str) -> None:
    sent = sign(signer, "GET", "/b/k", expires=60)
    check(sent, Framing.S3, now=time.time() + 55, stream=True)
    error = failure(sent, Framing.S3, now=time.time() + 62, stream=True).framed(Framing.S3)
    assert (error.code, error.message) == ("AccessDenied", "Request has expired")


def test_presigned_url_of_the_future_and_of_more_than_a_week() -> None:
    sent = sign("s3v4-query", "GET", "/b/k")
    early = failure(sent, Framing.S3, now=time.time() - 3600, stream=True)
    assert early.framed(Framing.S3).message == "Request is not valid yet"
    assert failure(sign("s3v4-query", "GET", "/b/k", expires=700_000), Framing.S3).failure is AuthFailure.MALFORMED


def test_session_tokens() -> None:
    with_token, without = sign("s3v4", token=TOKEN), sign("s3v4")
    check(with_token, Framing.S3, TOKEN_KEY)
    for sent, key in ((without, TOKEN_KEY), (with_token, Key()), (sign("s3v4", token="other"), TOKEN_KEY)):
        error = failure(sent, Framing.S3, key)
        assert error.failure is AuthFailure.BAD_TOKEN
        assert error.framed(Framing.S3).code == "InvalidToken"
    expired = failure(with_token, Framing.S3, replace(TOKEN_KEY, expires_at=time.time() - 1))
    assert expired.framed(Framing.S3).code == "ExpiredToken"
    assert expired.framed(Framing.JSON).code == "ExpiredTokenException"


def test_expired_key_with_a_wrong_signature_tells_nothing_of_the_key() -> None:
    key = replace(TOKEN_KEY, secret="another", expires_at=time.time() - 1)
    assert failure(sign("s3v4", token=TOKEN), Framing.S3, key).failure is AuthFailure.MISMATCH


def test_credential_scope() -> None:
    sent = sign("v4", body=b"{}", service="logs")
    error = failure(sent, Framing.JSON, services={"sagemaker"}).framed(Framing.JSON)
    assert error.message == "Credential should be scoped to correct service: 'sagemaker'."
    authorization = dict(sent.headers)["Authorization"]
    signed_on = dict(sent.headers)["X-Amz-Date"][:8]
    moved = sent.header("Authorization", authorization.replace(f"/{signed_on}/", "/20200101/"))
    assert failure(moved, Framing.JSON).failure is AuthFailure.WRONG_SCOPE


def test_anonymous_requests() -> None:
    sent = Sent("GET", "/", "", (("Host", "x"),))
    assert failure(sent, Framing.JSON).framed(Framing.JSON).code == "MissingAuthenticationTokenException"
    assert failure(sent, Framing.QUERY).framed(Framing.QUERY).code == "MissingAuthenticationToken"
    assert failure(sent, Framing.S3).framed(Framing.S3).code == "AccessDenied"


@pytest.mark.parametrize(
    "authorization",
    [
        "AWS4-HMAC-SHA256",
        "AWS4-HMAC-SHA256 Credential=A/20300101/r/s3/aws4_request",
        "AWS4-HMAC-SHA256 Credential=A/r/s3/aws4_request, SignedHeaders=host, Signature=00",
        "AWS4-HMAC-SHA256 Credential=A/20300101/r/s3/aws5, SignedHeaders=host, Signature=00",
        "AWS4-HMAC-SHA256 Credential=A/20300101/r/s3/aws4_request, SignedHeaders=Host, Signature=00",
        "AWS4-HMAC-SHA256 Credential=A/20300101/r/s3/aws4_request, SignedHeaders=host, Signature=00, Signature=01",
        "AWS AKIA:abc=",
        "Bearer abc",
    ],
)
def test_malformed_authorization(authorization: str) -> None:
    sent = Sent("GET", "/", "", (("Host", "x"), ("X-Amz-Date", "20300101T000000Z"), ("Authorization", authorization)))
    assert failure(sent, Framing.S3).failure in (AuthFailure.MALFORMED, AuthFailure.UNSUPPORTED)


def test_two_ways_at_once_and_doubled_parameters() -> None:
    presigned = sign("s3v4-query", "GET", "/b/k")
    both = presigned.header("Authorization", dict(sign("s3v4", "GET", "/b/k").headers)["Authorization"])
    assert failure(both, Framing.S3).failure is AuthFailure.MALFORMED
    doubled = replace(presigned, query=presigned.query + "&X-Amz-Signature=00")
    assert failure(doubled, Framing.S3).failure is AuthFailure.MALFORMED
    twice = replace(
        presigned, headers=(*presigned.headers, ("x-amz-security-token", "a"), ("x-amz-security-token", "b"))
    )
    assert failure(twice, Framing.S3).failure is AuthFailure.MALFORMED


def test_date_header_instead_of_x_amz_date() -> None:
    sent = sign("v4", body=b"{}", headers={"Date": "set by the signer"}, service="sts")
    names = {name.lower() for name, _ in sent.headers}
    assert "date" in names and "x-amz-date" not in names
    check(sent, Framing.QUERY)


@given(
    st.text(max_size=80),
    st.text(max_size=80),
    st.lists(
        st.tuples(st.sampled_from(["authorization", "host", "x-amz-date", "date"]), st.text(max_size=80)), max_size=4
    ),
    st.sampled_from(list(Framing)),
)
def test_garbage_is_refused_and_never_crashes(
    path: str, query: str, headers: list[tuple[str, str]], framing: Framing
) -> None:
    failure(Sent("GET", path, query, tuple(headers)), framing)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_raw_bytes_are_taken_as_they_come(path: bytes, value: bytes) -> None:
    headers = [(b"host", b"x"), (b"x-amz-date", b"20300101T000000Z"), (b"authorization", b"AWS4-HMAC-SHA256 " + value)]
    with pytest.raises(SignatureError):
        verify(parse("GET", path, value, headers, framing=Framing.S3), Key(), body_sha256=None, now=1_893_456_000.0)


def test_routing_by_scope() -> None:
    header = sign("v4", service="monitoring")
    assert credential_service(header.query, dict(header.headers)["Authorization"]) == "monitoring"
    assert credential_service(sign("s3v4-query", "GET", "/b/k").query, None) == "s3"
    assert credential_service("", None) is None
    assert credential_service("", "AWS4-HMAC-SHA256 Credential=x") is None
