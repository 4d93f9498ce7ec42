"""Why data could not be moved, in words that go to the job's FailureReason."""

import errno
from pathlib import Path

from trainshed_worker.protocol import FailureCause


class DataError(Exception):
    """A transfer failed for good. `cause` says whose matter it is; the text names the place and what to do."""

    def __init__(self, cause: FailureCause, message: str) -> None:
        super().__init__(message)
        self.cause = cause
        self.message = message


class Cancelled(Exception):
    """The transfer was told to stop (StopTrainingJob, a newer epoch); nothing is wrong with it."""


def disk_error(error: OSError, place: str | Path, cause: FailureCause) -> DataError:
    """Words for a failed write or read on the node's own disk; `place` is named as the user knows it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DataError(
            cause, f"no space left on the node's disk while writing {place}; free space there or ask for less data"
        )
    if error.errno == errno.ENAMETOOLONG:
        return DataError(cause, f"a file name in {place} is longer than the node's file system allows (255 bytes)")
    return DataError(cause, f"{place}: {error.strerror or error}")
