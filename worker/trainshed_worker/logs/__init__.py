"""Log lines and metrics on their way from an instance's spool to the ingest."""

from trainshed_worker.logs.metrics import Definition, definitions, notices
from trainshed_worker.logs.shipper import Access, LogShipper, Source
from trainshed_worker.logs.tail import last_lines, spool_size

__all__ = ["Access", "Definition", "LogShipper", "Source", "definitions", "last_lines", "notices", "spool_size"]
