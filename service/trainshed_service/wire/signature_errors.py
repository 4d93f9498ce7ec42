"""Why a signature was refused, and how each family of AWS services says so.

One table: kind of failure × framing → (code, HTTP status, sentence). Clients act on these codes (botocore corrects its
clock on skew codes, the CLI explains wrong keys), so each framing uses its own words.
"""

from __future__ import annotations

from enum import StrEnum

from trainshed_service.wire.errors import ApiError


class Framing(StrEnum):
    """The family of error codes: JSON services, query (XML) services, S3."""

    JSON = "json"
    QUERY = "query"
    S3 = "s3"


class AuthFailure(StrEnum):
    MISSING = "missing"
    """No signature at all."""
    MALFORMED = "malformed"
    """A signature is there but its parts are not; `detail` says which."""
    UNSUPPORTED = "unsupported"
    """Another signature algorithm."""
    UNKNOWN_KEY = "unknown-key"
    INACTIVE_KEY = "inactive-key"
    BAD_TOKEN = "bad-token"
    """The session token does not belong to the key."""
    EXPIRED_TOKEN = "expired-token"
    """The key itself has run out."""
    MISMATCH = "mismatch"
    SKEWED = "skewed"
    """The request's time is too far from ours; `detail` says how far."""
    EXPIRED = "expired"
    """A presigned URL that has run out."""
    NOT_YET_VALID = "not-yet-valid"
    WRONG_SCOPE = "wrong-scope"
    """Signed for another service or day; `detail` says which."""
    UNSIGNED_HEADERS = "unsigned-headers"
    BAD_BODY = "bad-body"
    """The body's hash is not the signed one."""


_MISMATCH = (
    "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key"
    " and signing method. Consult the service documentation for details."
)
_MISMATCH_S3 = (
    "The request signature we calculated does not match the signature you provided. Check your key and signing method."
)
_INVALID_TOKEN = "The security token included in the request is invalid."
_NO_SUCH_KEY_S3 = "The AWS Access Key Id you provided does not exist in our records."

_J, _Q, _S = Framing.JSON, Framing.QUERY, Framing.S3
_F = AuthFailure

TABLE: dict[tuple[AuthFailure, Framing], tuple[str, int, str]] = {
    (_F.MISSING, _J): ("MissingAuthenticationTokenException", 403, "Missing Authentication Token"),
    (_F.MISSING, _Q): ("MissingAuthenticationToken", 403, "Request is missing Authentication Token"),
    (_F.MISSING, _S): ("AccessDenied", 403, "Access Denied"),
    (_F.MALFORMED, _J): ("IncompleteSignatureException", 400, "{detail}"),
    (_F.MALFORMED, _Q): ("IncompleteSignature", 400, "{detail}"),
    (_F.MALFORMED, _S): ("AuthorizationHeaderMalformed", 400, "{detail}"),
    (_F.UNSUPPORTED, _J): ("IncompleteSignatureException", 400, "Unsupported AWS 'algorithm': '{detail}'."),
    (_F.UNSUPPORTED, _Q): ("IncompleteSignature", 400, "Unsupported AWS 'algorithm': '{detail}'."),
    (_F.UNSUPPORTED, _S): (
        "InvalidRequest",
        400,
        "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.",
    ),
    (_F.UNKNOWN_KEY, _J): ("UnrecognizedClientException", 403, _INVALID_TOKEN),
    (_F.UNKNOWN_KEY, _Q): ("InvalidClientTokenId", 403, _INVALID_TOKEN),
    (_F.UNKNOWN_KEY, _S): ("InvalidAccessKeyId", 403, _NO_SUCH_KEY_S3),
    (_F.INACTIVE_KEY, _J): ("UnrecognizedClientException", 403, _INVALID_TOKEN),
    (_F.INACTIVE_KEY, _Q): ("InvalidClientTokenId", 403, _INVALID_TOKEN),
    (_F.INACTIVE_KEY, _S): ("InvalidAccessKeyId", 403, _NO_SUCH_KEY_S3),
    (_F.BAD_TOKEN, _J): ("UnrecognizedClientException", 403, _INVALID_TOKEN),
    (_F.BAD_TOKEN, _Q): ("InvalidClientTokenId", 403, _INVALID_TOKEN),
    (_F.BAD_TOKEN, _S): ("InvalidToken", 400, "The provided token is malformed or otherwise invalid."),
    (_F.EXPIRED_TOKEN, _J): ("ExpiredTokenException", 403, "The security token included in the request is expired"),
    (_F.EXPIRED_TOKEN, _Q): ("ExpiredToken", 403, "The security token included in the request is expired"),
    (_F.EXPIRED_TOKEN, _S): ("ExpiredToken", 400, "The provided token has expired."),
    (_F.MISMATCH, _J): ("InvalidSignatureException", 403, _MISMATCH),
    (_F.MISMATCH, _Q): ("SignatureDoesNotMatch", 403, _MISMATCH),
    (_F.MISMATCH, _S): ("SignatureDoesNotMatch", 403, _MISMATCH_S3),
    (_F.SKEWED, _J): ("InvalidSignatureException", 403, "{detail}"),
    (_F.SKEWED, _Q): ("SignatureDoesNotMatch", 403, "{detail}"),
    (_F.SKEWED, _S): (
        "RequestTimeTooSkewed",
        403,
        "The difference between the request time and the current time is too large.",
    ),
    (_F.EXPIRED, _J): ("InvalidSignatureException", 403, "{detail}"),
    (_F.EXPIRED, _Q): ("RequestExpired", 400, "{detail}"),
    (_F.EXPIRED, _S): ("AccessDenied", 403, "Request has expired"),
    (_F.NOT_YET_VALID, _J): ("InvalidSignatureException", 403, "{detail}"),
    (_F.NOT_YET_VALID, _Q): ("SignatureDoesNotMatch", 403, "{detail}"),
    (_F.NOT_YET_VALID, _S): ("AccessDenied", 403, "Request is not valid yet"),
    (_F.WRONG_SCOPE, _J): ("InvalidSignatureException", 403, "{detail}"),
    (_F.WRONG_SCOPE, _Q): ("SignatureDoesNotMatch", 403, "{detail}"),
    (_F.WRONG_SCOPE, _S): ("AuthorizationHeaderMalformed", 400, "{detail}"),
    (_F.UNSIGNED_HEADERS, _J): ("InvalidSignatureException", 403, "{detail}"),
    (_F.UNSIGNED_HEADERS, _Q): ("SignatureDoesNotMatch", 403, "{detail}"),
    (_F.UNSIGNED_HEADERS, _S): (
        "AccessDenied",
        403,
        "There were headers present in the request which were not signed",
    ),
    (_F.BAD_BODY, _J): ("InvalidSignatureException", 403, _MISMATCH),
    (_F.BAD_BODY, _Q): ("SignatureDoesNotMatch", 403, _MISMATCH),
    (_F.BAD_BODY, _S): (
        "XAmzContentSHA256Mismatch",
        400,
        "The provided 'x-amz-content-sha256' header does not match what was computed.",
    ),
}


class SignatureError(Exception):
    """A request that is not authenticated. `framed` turns it into the words of the service that was called."""

    def __init__(self, failure: AuthFailure, detail: str = "") -> None:
        super().__init__(f"{failure.value}: {detail}" if detail else failure.value)
        self.failure = failure
        self.detail = detail

    def framed(self, framing: Framing) -> ApiError:
        code, status, sentence = TABLE[self.failure, framing]
        return ApiError(code, sentence.replace("{detail}", self.detail), status)
