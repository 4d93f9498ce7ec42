"""Taking the signature of a request apart: SigV4 in headers or query, SigV2 in the query (S3 only).

Nothing that stands in a `SignedRequest` may be trusted before `sigv4.verify` has passed it. Parsing refuses what is
ambiguous (a doubled parameter, two ways of authentication at once), so that the verifier and whoever acts on it
cannot read a request differently.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum

from trainshed_service.wire.canonical import HeaderPairs, decode_parameter, header_map, query_pairs, text
from trainshed_service.wire.signature_errors import AuthFailure, Framing, SignatureError

ALGORITHM = "AWS4-HMAC-SHA256"
MAX_PRESIGN_SECONDS = 7 * 24 * 3600

_TIMESTAMP = re.compile(r"\d{8}T\d{6}Z\Z")
_MAX_SIGNED_HEADERS = 128


class Scheme(StrEnum):
    HEADER_V4 = "header-v4"
    QUERY_V4 = "query-v4"
    QUERY_V2 = "query-v2"


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """A request taken apart, its signature not yet checked. Nothing in here may be trusted before `verify`."""

    scheme: Scheme
    framing: Framing
    method: str
    raw_path: str
    query: str
    access_key_id: str
    signature: str
    signed_at: float
    """Epoch seconds; for SigV2 the time at which the URL runs out."""
    timestamp: str = ""
    scope_date: str = ""
    region: str = ""
    service: str = ""
    """Service name of the credential scope; "s3" for SigV2."""
    signed_headers: tuple[str, ...] = ()
    expires_in: int | None = None
    """Seconds that a presigned URL lives; None: not presigned."""
    session_token: str | None = None
    content_sha256: str | None = None
    """The x-amz-content-sha256 that came with the request, as it came."""
    headers: dict[str, list[str]] = field(default_factory=dict, repr=False)

    @property
    def scope(self) -> str:
        return f"{self.scope_date}/{self.region}/{self.service}/aws4_request"


def credential_service(query: str, authorization: str | None) -> str | None:
    """The service name in a request's SigV4 credential scope, for routing only; None where there is none."""
    if authorization and authorization.startswith(ALGORITHM):
        _, _, rest = authorization.partition("Credential=")
        credential = rest.partition(",")[0].strip()
    elif "X-Amz-Credential=" in query:
        credential = next((decode_parameter(v) for n, v in query_pairs(query) if n == "X-Amz-Credential"), "")
    else:
        return None
    parts = credential.rsplit("/", 4)
    return parts[3] if len(parts) == 5 else None


def parse(
    method: str,
    raw_path: bytes | str,
    query_string: bytes | str,
    headers: HeaderPairs,
    *,
    framing: Framing = Framing.JSON,
) -> SignedRequest:
    """Take a request's signature apart. `raw_path` is the path as it stood in the request line, without the query.

    Raises SignatureError(MISSING) for an anonymous request, (MALFORMED) or (UNSUPPORTED) for a bad one.
    """
    path, query = text(raw_path), text(query_string)
    by_name = header_map(headers)
    pairs = query_pairs(query)
    names = [name for name, _ in pairs]
    in_query_v4 = "X-Amz-Signature" in names or "X-Amz-Algorithm" in names
    in_query_v2 = not in_query_v4 and "Signature" in names and "AWSAccessKeyId" in names
    authorization = by_name.get("authorization", [])
    if len(authorization) > 1 or (authorization and (in_query_v4 or in_query_v2)):
        raise SignatureError(AuthFailure.MALFORMED, "Only one way of authentication is allowed in a request.")
    common = (framing, method.upper(), path, query, by_name)
    if authorization:
        return _parse_header(authorization[0], common)
    if in_query_v4:
        return _parse_query(_single_parameters(pairs, "X-Amz-"), common)
    if in_query_v2:
        if framing is not Framing.S3:
            raise SignatureError(AuthFailure.UNSUPPORTED, "AWS2")
        return _parse_v2(_single_parameters(pairs, ""), common)
    raise SignatureError(AuthFailure.MISSING)


_Common = tuple[Framing, str, str, str, dict[str, list[str]]]


def _parse_header(authorization: str, common: _Common) -> SignedRequest:
    algorithm, _, _ = authorization.partition(" ")
    if algorithm != ALGORITHM:
        raise SignatureError(AuthFailure.UNSUPPORTED, algorithm[:64])
    parts = _authorization_parts(authorization)
    missing = [name for name in ("Credential", "Signature", "SignedHeaders") if not parts.get(name)]
    if missing:
        wanted = " ".join(f"Authorization header requires '{name}' parameter." for name in missing)
        raise SignatureError(AuthFailure.MALFORMED, wanted)
    headers = common[4]
    timestamp = single_header(headers, "x-amz-date")
    if timestamp is None:
        date = single_header(headers, "date")
        if date is None:
            raise SignatureError(
                AuthFailure.MALFORMED,
                "Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header.",
            )
        timestamp = _timestamp_of_date(date)
    return _assemble_v4(
        Scheme.HEADER_V4,
        parts["Credential"],
        parts["SignedHeaders"],
        parts["Signature"],
        timestamp,
        None,
        single_header(headers, "x-amz-security-token"),
        common,
    )


def _parse_query(parameters: dict[str, str], common: _Common) -> SignedRequest:
    if parameters.get("X-Amz-Algorithm") != ALGORITHM:
        raise SignatureError(AuthFailure.UNSUPPORTED, parameters.get("X-Amz-Algorithm", "")[:64])
    required = ("X-Amz-Credential", "X-Amz-Signature", "X-Amz-SignedHeaders", "X-Amz-Date", "X-Amz-Expires")
    missing = [name for name in required if not parameters.get(name)]
    if missing:
        raise SignatureError(AuthFailure.MALFORMED, f"Query-string authentication requires {', '.join(missing)}.")
    expires = parameters["X-Amz-Expires"]
    if not re.fullmatch(r"\d{1,7}", expires) or not 1 <= int(expires) <= MAX_PRESIGN_SECONDS:
        raise SignatureError(
            AuthFailure.MALFORMED, f"X-Amz-Expires must be between 1 and {MAX_PRESIGN_SECONDS} (one week in seconds)."
        )
    token = parameters.get("X-Amz-Security-Token") or single_header(common[4], "x-amz-security-token")
    return _assemble_v4(
        Scheme.QUERY_V4,
        parameters["X-Amz-Credential"],
        parameters["X-Amz-SignedHeaders"],
        parameters["X-Amz-Signature"],
        parameters["X-Amz-Date"],
        int(expires),
        token,
        common,
    )


def _assemble_v4(
    scheme: Scheme,
    credential: str,
    signed_headers: str,
    signature: str,
    timestamp: str,
    expires_in: int | None,
    token: str | None,
    common: _Common,
) -> SignedRequest:
    framing, method, path, query, headers = common
    parts = credential.rsplit("/", 4)
    if len(parts) != 5 or not all(parts) or parts[4] != "aws4_request":
        raise SignatureError(
            AuthFailure.MALFORMED,
            "Credential must have the form '<access key>/<yyyymmdd>/<region>/<service>/aws4_request'.",
        )
    if not _TIMESTAMP.match(timestamp):
        raise SignatureError(AuthFailure.MALFORMED, "Date must be in ISO-8601 'basic format' (yyyymmddThhmmssZ).")
    names = tuple(signed_headers.split(";"))
    if len(names) > _MAX_SIGNED_HEADERS or any(name != name.lower() or not name for name in names):
        raise SignatureError(AuthFailure.MALFORMED, "SignedHeaders must be lower-case names with ';' between them.")
    if "host" not in names:
        raise SignatureError(AuthFailure.UNSIGNED_HEADERS, "'Host' must be a 'SignedHeader' in the AWS Authorization.")
    return SignedRequest(
        scheme=scheme,
        framing=framing,
        method=method,
        raw_path=path,
        query=query,
        access_key_id=parts[0],
        signature=signature,
        signed_at=_epoch(timestamp),
        timestamp=timestamp,
        scope_date=parts[1],
        region=parts[2],
        service=parts[3],
        signed_headers=names,
        expires_in=expires_in,
        session_token=token,
        content_sha256=single_header(headers, "x-amz-content-sha256"),
        headers=headers,
    )


def _parse_v2(parameters: dict[str, str], common: _Common) -> SignedRequest:
    framing, method, path, query, headers = common
    expires = parameters.get("Expires", "")
    if not re.fullmatch(r"\d{1,12}", expires):
        raise SignatureError(AuthFailure.MALFORMED, "Query-string authentication requires 'Expires' in epoch seconds.")
    return SignedRequest(
        scheme=Scheme.QUERY_V2,
        framing=framing,
        method=method,
        raw_path=path,
        query=query,
        access_key_id=parameters["AWSAccessKeyId"],
        signature=parameters["Signature"],
        signed_at=float(expires),
        timestamp=expires,
        service="s3",
        expires_in=0,
        session_token=parameters.get("x-amz-security-token") or single_header(headers, "x-amz-security-token"),
        headers=headers,
    )


def _authorization_parts(authorization: str) -> dict[str, str]:
    _, _, rest = authorization.partition(" ")
    parts: dict[str, str] = {}
    for part in rest.split(","):
        name, separator, value = part.strip().partition("=")
        if separator:
            if name in parts:
                raise SignatureError(AuthFailure.MALFORMED, f"Authorization header repeats '{name[:32]}'.")
            parts[name] = value
    return parts


def _single_parameters(pairs: Sequence[tuple[str, str]], prefix: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in pairs:
        if name.startswith(prefix):
            if name in found and (prefix or name in ("AWSAccessKeyId", "Signature", "Expires", "x-amz-security-token")):
                raise SignatureError(AuthFailure.MALFORMED, f"The query repeats '{name[:64]}'.")
            found[name] = decode_parameter(value)
    return found


def single_header(headers: dict[str, list[str]], name: str) -> str | None:
    values = headers.get(name)
    if values is None:
        return None
    if len(values) > 1:
        raise SignatureError(AuthFailure.MALFORMED, f"The header '{name}' came more than once.")
    return values[0].strip()


def stamp(epoch: float) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(epoch))


def _epoch(timestamp: str) -> float:
    digits = timestamp[:8] + timestamp[9:15]  # its form was checked; strptime would take most of the parsing's time
    parts = (digits[0:4], digits[4:6], digits[6:8], digits[8:10], digits[10:12], digits[12:14])
    try:
        year, month, day, hour, minute, second = map(int, parts)
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError:
        raise SignatureError(AuthFailure.MALFORMED, f"'{timestamp}' is no time of day.") from None


def _timestamp_of_date(date: str) -> str:
    if _TIMESTAMP.match(date):
        return date
    try:
        return stamp(parsedate_to_datetime(date).timestamp())
    except (ValueError, TypeError, OverflowError):
        raise SignatureError(AuthFailure.MALFORMED, "The 'Date' header is no date.") from None
