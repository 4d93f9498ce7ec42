"""Bytes of a process's output become lines.

Invariant: no byte is lost or doubled; a line ends at \\n, \\r or \\r\\n (progress bars use \\r), at `MAX_LINE` bytes,
or where `flush` is called on a line that is still open. An empty line is kept where \\n ends it and dropped where \\r
does.
"""

import re

MAX_LINE = 256 * 1024 - 26
"""Bytes: what CloudWatch takes as one event, whose own overhead is 26."""

_PIECE = re.compile(rb"([^\r\n]*)(\r\n|\r|\n)")


class LineSplitter:
    """One output stream. Text is UTF-8; what is not becomes U+FFFD."""

    def __init__(self) -> None:
        self._open = b""
        self._after_return = False

    @property
    def has_open_line(self) -> bool:
        return bool(self._open)

    def feed(self, data: bytes) -> list[str]:
        """The lines that `data` completes."""
        if self._after_return and data.startswith(b"\n"):
            data = data[1:]
        if data:
            self._after_return = data.endswith(b"\r")
        whole = self._open + data
        end = max(whole.rfind(b"\n"), whole.rfind(b"\r")) + 1
        ended, self._open = whole[:end], whole[end:]
        if b"\r" in ended:
            pieces = [match[1] for match in _PIECE.finditer(ended) if match[1] or match[2] != b"\r"]
        else:
            pieces = ended.split(b"\n")[:-1]
        if len(self._open) > MAX_LINE:
            parts = _cut(self._open)
            self._open = parts.pop()
            pieces += parts
        if len(ended) > MAX_LINE:
            pieces = [part for piece in pieces for part in _cut(piece)]
        return [piece.decode("utf-8", "replace") for piece in pieces]

    def flush(self, final: bool = False) -> list[str]:
        """The open line as it stands; an unfinished character at its end waits unless `final`."""
        keep = 0 if final else _unfinished(self._open)
        cut = len(self._open) - keep
        text, self._open = self._open[:cut], self._open[cut:]
        return [text.decode("utf-8", "replace")] if text else []


def _cut(piece: bytes) -> list[bytes]:
    """Parts of at most MAX_LINE bytes, never inside a character of valid UTF-8."""
    parts = []
    while len(piece) > MAX_LINE:
        end = MAX_LINE
        while end > MAX_LINE - 4 and piece[end] & 0xC0 == 0x80:
            end -= 1
        parts.append(piece[:end])
        piece = piece[end:]
    parts.append(piece)
    return parts


def _unfinished(data: bytes) -> int:
    """How many bytes at the end are the beginning of a character whose rest has not come."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        need = 2 if byte >> 5 == 0b110 else 3 if byte >> 4 == 0b1110 else 4 if byte >> 3 == 0b11110 else 1
        return back if need > back else 0
    return 0
