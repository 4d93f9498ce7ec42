"""Server-side encryption: what the client asked for, what the store is told, what the answers say.

The store has no KMS, and refuses or garbles what needs one. So:

* mode `aes`: every new object is encrypted by the store with its own key (AES256), whatever the client asked.
* mode `strip`: the store is told nothing.

Both echo what was asked. What was asked is also noted in a metadata entry of the object, so that HEAD and GET say the
same later; the entry is never shown to a client, and a client cannot set it. Customer keys (SSE-C) pass untouched.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum

from trainshed_service.wire.errors import ApiError

ALGORITHM = "x-amz-server-side-encryption"
KEY_ID = "x-amz-server-side-encryption-aws-kms-key-id"
CONTEXT = "x-amz-server-side-encryption-context"
BUCKET_KEY = "x-amz-server-side-encryption-bucket-key-enabled"
CUSTOMER_ALGORITHM = "x-amz-server-side-encryption-customer-algorithm"
NOTE = "x-amz-meta-trainshed-sse"

_KMS = ("aws:kms", "aws:kms:dsse")
_KEY_ID = re.compile(r"[\x21-\x7e]{1,2048}\Z")


class SseMode(StrEnum):
    AES = "aes"
    STRIP = "strip"


@dataclass(frozen=True, slots=True)
class Asked:
    """The encryption that a client asked for."""

    algorithm: str
    key_id: str | None = None

    def note(self) -> str:
        return self.algorithm if self.key_id is None else f"{self.algorithm} {self.key_id}"

    @staticmethod
    def from_note(note: str) -> Asked:
        algorithm, _, key_id = note.partition(" ")
        return Asked(algorithm, key_id or None)


class SseEditor:
    """Edits headers in place; all names are lower-case. Remembers uploads under way, at most 10,000."""

    def __init__(self, mode: SseMode, default_key_arn: str) -> None:
        self._mode = mode
        self._default_key_arn = default_key_arn
        self._uploads: OrderedDict[str, Asked] = OrderedDict()

    def edit_request(self, headers: dict[str, str], *, creates: bool) -> Asked | None:
        """Take out what the store must not see; put in what it needs. Returns what the client asked for.

        Raises ApiError(InvalidArgument) for an algorithm that S3 does not know.
        """
        headers.pop(NOTE, None)
        algorithm = headers.pop(ALGORITHM, None)
        key_id = headers.pop(KEY_ID, None)
        headers.pop(CONTEXT, None)
        headers.pop(BUCKET_KEY, None)
        if algorithm is not None and algorithm not in ("AES256", *_KMS):
            raise ApiError("InvalidArgument", "The encryption method specified is not supported", 400)
        if key_id is not None and (algorithm not in _KMS or not _KEY_ID.match(key_id)):
            raise ApiError(
                "InvalidArgument", "Server Side Encryption with AWS KMS managed key requires aws:kms algorithm", 400
            )
        asked = Asked(algorithm, key_id) if algorithm else None
        if creates and CUSTOMER_ALGORITHM not in headers:
            if self._mode is SseMode.AES:
                headers[ALGORITHM] = "AES256"
            if asked is not None and (self._mode is SseMode.STRIP or asked.algorithm in _KMS):
                headers[NOTE] = asked.note()
        return asked

    def edit_answer(self, headers: dict[str, str], asked: Asked | None) -> None:
        """Let the answer say what was asked: now (`asked`), or when the object was made (its note)."""
        note = headers.pop(NOTE, None)
        said = asked or (Asked.from_note(note) if note else None)
        if said is None:
            return
        headers[ALGORITHM] = said.algorithm
        if said.algorithm in _KMS:
            headers[KEY_ID] = self._key_arn(said.key_id)

    def remember_upload(self, upload_id: str, asked: Asked) -> None:
        self._uploads[upload_id] = asked
        if len(self._uploads) > 10_000:
            self._uploads.popitem(last=False)

    def of_upload(self, upload_id: str | None) -> Asked | None:
        return self._uploads.get(upload_id) if upload_id else None

    def forget_upload(self, upload_id: str) -> None:
        self._uploads.pop(upload_id, None)

    def _key_arn(self, key_id: str | None) -> str:
        return key_id or self._default_key_arn
