"""Log lines: stored once and in order by the ingest process, read by the CloudWatch Logs operations and REST."""

from trainshed_service.logs.chunks import Line
from trainshed_service.logs.errors import InvalidPattern, InvalidToken, LogStoreError, UnknownStream
from trainshed_service.logs.pages import Page
from trainshed_service.logs.search import FoundLine, FoundPage
from trainshed_service.logs.store import LOG_GROUP, LogStore
from trainshed_service.logs.streams import SourceInfo, StreamInfo
from trainshed_service.logs.tail import TailLine, TailPage
from trainshed_service.logs.window import Range, Window, WindowLine

__all__ = [
    "LOG_GROUP",
    "FoundLine",
    "FoundPage",
    "InvalidPattern",
    "InvalidToken",
    "Line",
    "LogStore",
    "LogStoreError",
    "Page",
    "Range",
    "SourceInfo",
    "StreamInfo",
    "TailLine",
    "TailPage",
    "UnknownStream",
    "Window",
    "WindowLine",
]
