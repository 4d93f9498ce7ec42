"""Data of a job: channels and code in, artifacts and checkpoints out, over any S3.

All calls block (the agent runs them in threads), stop soon after their `Cancellation` is set, are safe to repeat after
a crash, and end in `DataError` with words for the user.
"""

from trainshed_worker.data.artifacts import Upload, assemble, upload_parts
from trainshed_worker.data.checkpoints import CheckpointSync
from trainshed_worker.data.code import check_entry_point, fetch_code
from trainshed_worker.data.download import download_channel
from trainshed_worker.data.errors import Cancelled, DataError
from trainshed_worker.data.store import Cancellation, ObjectStore, parse_uri

__all__ = [
    "Cancellation",
    "Cancelled",
    "CheckpointSync",
    "DataError",
    "ObjectStore",
    "Upload",
    "assemble",
    "check_entry_point",
    "download_channel",
    "fetch_code",
    "parse_uri",
    "upload_parts",
]
