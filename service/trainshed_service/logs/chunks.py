r"""How lines are packed: one zstd frame per chunk, holding one `[ms,ingested_ms,"text"]\n` per line.

Invariants: JSON escapes every line break inside a text, so a `\n` byte always ends a line; the frame's header carries
the size of the content, so whether a chunk can still grow is known without unpacking it. A chunk grows up to
`MAX_LINES` lines or `MAX_BYTES` packed bytes; a single longer line is a chunk of its own.
"""

import json
from json.encoder import encode_basestring
from typing import NamedTuple

import zstandard

MAX_LINES = 1_000
MAX_BYTES = 64 * 1024
MAX_TEXT_BYTES = 256 * 1024
_LEVEL = 3


class Line(NamedTuple):
    """A stored line. `position` counts from 0 within its stream; times are epoch milliseconds (UTC)."""

    position: int
    ms: int
    ingested_ms: int
    text: str


def encode_line(ms: int, ingested_ms: int, text: str) -> bytes:
    return f"[{ms},{ingested_ms},{encode_basestring(text)}]\n".encode()


def pack(raw: bytes | bytearray) -> bytes:
    return zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True).compress(raw)


def raw_size(data: bytes) -> int:
    """Bytes that `unpack` will give."""
    return int(zstandard.frame_content_size(data))


def unpack(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(data)


def decode(data: bytes, first_position: int) -> list[Line]:
    """All lines of a stored chunk."""
    raw = unpack(data)
    rows = json.loads(b"[" + raw[:-1].replace(b"\n", b",") + b"]")
    return [Line(position, row[0], row[1], row[2]) for position, row in enumerate(rows, first_position)]


def fit_text(text: str) -> str:
    """`text`, cut to `MAX_TEXT_BYTES` of UTF-8 with a remark where it is longer. Agents split lines before that."""
    if len(text) * 4 <= MAX_TEXT_BYTES:
        return text
    encoded = text.encode()
    if len(encoded) <= MAX_TEXT_BYTES:
        return text
    remark = f" [cut by the log service: the line has {len(encoded)} bytes]"
    return encoded[: MAX_TEXT_BYTES - len(remark)].decode(errors="ignore") + remark
