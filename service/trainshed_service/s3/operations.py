"""Which S3 operation a request is, and which permissions it needs.

Invariant: every request that is passed on has a name here and a list of accesses that covers all that it reads or
writes. A request that matches no row gets none, and callers that are not allowed everything are refused.
The action names are IAM's (`s3:GetObject` …), as the S3 user guide lists them per operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainshed_service.s3.target import Target, parse_copy_source


@dataclass(frozen=True, slots=True)
class Access:
    """One permission: `action` on a bucket (`key` None) or object; `prefix` for listings: only keys that start so."""

    action: str
    bucket: str
    key: str | None = None
    prefix: str | None = None

    @property
    def resource(self) -> str:
        if not self.bucket:
            return "*"
        return f"arn:aws:s3:::{self.bucket}" + (f"/{self.key}" if self.key is not None else "")


@dataclass(frozen=True, slots=True)
class Operation:
    """`accesses` None: only a caller that may do everything. `creates`: the request makes an object (SSE applies)."""

    name: str
    accesses: tuple[Access, ...] | None = None
    creates: bool = False
    lists_keys_in_body: bool = False
    """The keys are in the body (DeleteObjects): authorize after it was read."""


# Sub-resources that select another operation; all others are parameters of the plain one.
_SUBRESOURCES = [
    "accelerate",
    "acl",
    "analytics",
    "attributes",
    "cors",
    "delete",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "legal-hold",
    "lifecycle",
    "location",
    "logging",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "replication",
    "requestPayment",
    "restore",
    "retention",
    "select",
    "session",
    "tagging",
    "torrent",
    "uploads",
    "versioning",
    "versions",
    "website",
]

_OBJECT = {
    ("GET", ""): ("GetObject", "s3:GetObject"),
    ("HEAD", ""): ("HeadObject", "s3:GetObject"),
    ("DELETE", ""): ("DeleteObject", "s3:DeleteObject"),
    ("GET", "tagging"): ("GetObjectTagging", "s3:GetObjectTagging"),
    ("PUT", "tagging"): ("PutObjectTagging", "s3:PutObjectTagging"),
    ("DELETE", "tagging"): ("DeleteObjectTagging", "s3:DeleteObjectTagging"),
    ("GET", "acl"): ("GetObjectAcl", "s3:GetObjectAcl"),
    ("PUT", "acl"): ("PutObjectAcl", "s3:PutObjectAcl"),
    ("GET", "attributes"): ("GetObjectAttributes", "s3:GetObject"),
    ("GET", "retention"): ("GetObjectRetention", "s3:GetObjectRetention"),
    ("PUT", "retention"): ("PutObjectRetention", "s3:PutObjectRetention"),
    ("GET", "legal-hold"): ("GetObjectLegalHold", "s3:GetObjectLegalHold"),
    ("PUT", "legal-hold"): ("PutObjectLegalHold", "s3:PutObjectLegalHold"),
}

_BUCKET = {
    ("HEAD", ""): ("HeadBucket", "s3:ListBucket"),
    ("PUT", ""): ("CreateBucket", "s3:CreateBucket"),
    ("DELETE", ""): ("DeleteBucket", "s3:DeleteBucket"),
    ("GET", "location"): ("GetBucketLocation", "s3:GetBucketLocation"),
    ("GET", "versioning"): ("GetBucketVersioning", "s3:GetBucketVersioning"),
    ("GET", "encryption"): ("GetBucketEncryption", "s3:GetEncryptionConfiguration"),
    ("GET", "tagging"): ("GetBucketTagging", "s3:GetBucketTagging"),
    ("GET", "policy"): ("GetBucketPolicy", "s3:GetBucketPolicy"),
    ("GET", "acl"): ("GetBucketAcl", "s3:GetBucketAcl"),
    ("GET", "cors"): ("GetBucketCors", "s3:GetBucketCORS"),
    ("GET", "lifecycle"): ("GetBucketLifecycleConfiguration", "s3:GetLifecycleConfiguration"),
}


def classify(method: str, target: Target, query: Mapping[str, str], headers: Mapping[str, str]) -> Operation:
    """`query` and `headers` (lower-case names) as they came. Raises ApiError for a malformed copy source."""
    chosen = [name for name in _SUBRESOURCES if name in query]
    if len(chosen) > 1:
        return Operation("Unknown")
    subresource = chosen[0] if chosen else ""
    if not target.bucket:
        if method == "GET" and not chosen:
            return Operation("ListBuckets", (Access("s3:ListAllMyBuckets", ""),))
        return Operation("Unknown")
    if target.key:
        return _object(method, target, subresource, query, headers)
    return _bucket(method, target, subresource, query)


def _bucket(method: str, target: Target, subresource: str, query: Mapping[str, str]) -> Operation:
    bucket = target.bucket
    if method == "GET" and subresource in ("", "versions", "uploads"):
        name, action = {
            "": ("ListObjectsV2" if query.get("list-type") == "2" else "ListObjects", "s3:ListBucket"),
            "versions": ("ListObjectVersions", "s3:ListBucketVersions"),
            "uploads": ("ListMultipartUploads", "s3:ListBucketMultipartUploads"),
        }[subresource]
        return Operation(name, (Access(action, bucket, prefix=query.get("prefix", "")),))
    if method == "POST" and subresource == "delete":
        return Operation("DeleteObjects", None, lists_keys_in_body=True)
    row = _BUCKET.get((method, subresource))
    if row is None:
        return Operation(f"{method.title()}Bucket{subresource.title().replace('-', '')}")
    return Operation(row[0], (Access(row[1], bucket),))


def _object(
    method: str, target: Target, subresource: str, query: Mapping[str, str], headers: Mapping[str, str]
) -> Operation:
    def on_target(action: str) -> Access:
        return Access(action, target.bucket, target.key)

    put = on_target("s3:PutObject")
    upload = "uploadId" in query
    if upload and not subresource:
        if method == "PUT" and "partNumber" in query:
            if "x-amz-copy-source" in headers:
                return Operation("UploadPartCopy", (put, *_sources(headers)))
            return Operation("UploadPart", (put,))
        if method == "POST":
            return Operation("CompleteMultipartUpload", (put,))
        if method == "DELETE":
            return Operation("AbortMultipartUpload", (on_target("s3:AbortMultipartUpload"),))
        if method == "GET":
            return Operation("ListParts", (on_target("s3:ListMultipartUploadParts"),))
        return Operation("Unknown")
    if method == "PUT" and not subresource:
        if "x-amz-copy-source" in headers:
            return Operation("CopyObject", (put, *_sources(headers), *_extras(target, headers)), creates=True)
        return Operation("PutObject", (put, *_extras(target, headers)), creates=True)
    if method == "POST" and subresource == "uploads":
        return Operation("CreateMultipartUpload", (put, *_extras(target, headers)), creates=True)
    row = _OBJECT.get((method, subresource))
    if row is None:
        return Operation(f"{method.title()}Object{subresource.title().replace('-', '')}")
    name, action = row
    if "versionId" in query:
        action = {"s3:GetObject": "s3:GetObjectVersion", "s3:DeleteObject": "s3:DeleteObjectVersion"}.get(
            action, action
        )
    return Operation(name, (on_target(action),))


def _sources(headers: Mapping[str, str]) -> tuple[Access, ...]:
    source = parse_copy_source(headers["x-amz-copy-source"])
    return (Access("s3:GetObject", source.bucket, source.key),)


def _extras(target: Target, headers: Mapping[str, str]) -> tuple[Access, ...]:
    """Headers of a PUT that do more than write the object need the permission for that too."""
    extra = []
    if "x-amz-tagging" in headers:
        extra.append("s3:PutObjectTagging")
    if "x-amz-acl" in headers or any(name.startswith("x-amz-grant-") for name in headers):
        extra.append("s3:PutObjectAcl")
    if "x-amz-object-lock-mode" in headers:
        extra.append("s3:PutObjectRetention")
    if "x-amz-object-lock-legal-hold" in headers:
        extra.append("s3:PutObjectLegalHold")
    return tuple(Access(action, target.bucket, target.key) for action in extra)
