"""Process logs: one line of JSON per event on stderr. Secrets never reach a log call; nothing here hides them later."""

from __future__ import annotations

import logging
import sys

import structlog


def configure_logging(process: str, level: int = logging.INFO) -> None:
    """For the whole process, once at its start; also what libraries log goes to the same stream."""
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.EventRenamer("event"),
                _named(process),
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # httpx writes whole URLs, and those of webhooks are secrets
    for noisy in ("botocore", "boto3", "urllib3", "aiohttp.access", "uvicorn.access", "alembic", "httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def _named(process: str) -> structlog.types.Processor:
    def add(
        _logger: structlog.types.WrappedLogger, _method: str, event: structlog.types.EventDict
    ) -> structlog.types.EventDict:
        event["process"] = process
        return event

    return add
