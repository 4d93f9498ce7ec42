"""Signs the gateway's own requests to the store (SigV4, header form) with the store's key."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote

_ALGORITHM = "AWS4-HMAC-SHA256"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"


@lru_cache(maxsize=4)
def _key(secret: str, date: str, region: str) -> bytes:
    derived = ("AWS4" + secret).encode()
    for part in (date, region, "s3", "aws4_request"):
        derived = hmac.digest(derived, part.encode(), "sha256")
    return derived


def canonical_query(pairs: Iterable[tuple[str, str]]) -> str:
    """Decoded parameters → the strict form, which is both sent and signed."""
    encoded = sorted(
        (quote(n, safe="-_.~", errors="surrogateescape"), quote(v, safe="-_.~", errors="surrogateescape"))
        for n, v in pairs
    )
    return "&".join(f"{name}={value}" for name, value in encoded)


class StoreSigner:
    """Adds the signature to requests. `host` is the store's, as the Host header will say it."""

    def __init__(self, access_key: str, secret_key: str, region: str, host: str) -> None:
        self._access_key = access_key
        self._secret_key = secret_key
        self._region = region
        self._host = host

    def sign(self, method: str, path: str, query: str, headers: dict[str, str], payload: str, now: float) -> None:
        """Sign in place. `path` and `query` strictly encoded; `headers` lower-case; `payload` the content hash."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        headers["host"] = self._host
        headers["x-amz-date"] = stamp
        headers["x-amz-content-sha256"] = payload
        signed = sorted(name for name in headers if name == "host" or name == "content-md5" or name[:6] == "x-amz-")
        lines = "".join(f"{name}:{' '.join(headers[name].split())}\n" for name in signed)
        names = ";".join(signed)
        request = f"{method}\n{path}\n{query}\n{lines}\n{names}\n{payload}"
        scope = f"{stamp[:8]}/{self._region}/s3/aws4_request"
        digest = hashlib.sha256(request.encode("utf-8", "surrogateescape")).hexdigest()
        to_sign = f"{_ALGORITHM}\n{stamp}\n{scope}\n{digest}"
        key = _key(self._secret_key, stamp[:8], self._region)
        signature = hmac.new(key, to_sign.encode(), "sha256").hexdigest()
        headers["authorization"] = (
            f"{_ALGORITHM} Credential={self._access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
        )
