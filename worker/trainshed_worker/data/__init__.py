"""Data of a job: channels and code in, artifacts and checkpoints out, over any S3.

All calls block (the agent runs them in threads), stop soon after their `Cancellation` is set, are safe to repeat after
a crash, and end in `DataError` with words for the user.
"""

from trainshed_worker.data.artifacts import Upload, assemble, upload_parts
from trainshed_worker.data.cache import ObjectCache, RoleCache, default_limit
from trainshed_worker.data.checkpoints import CheckpointSync
from trainshed_worker.data.code import check_entry_point, fetch_code, needs_channels
from trainshed_worker.data.download import download_channel
from trainshed_worker.data.errors import Cancelled, DataError
from trainshed_worker.data.store import Cancellation, ObjectStore, make_spare_client, parse_uri

__all__ = [
    "Cancellation",
    "Cancelled",
    "CheckpointSync",
    "DataError",
    "ObjectCache",
    "ObjectStore",
    "RoleCache",
    "Upload",
    "assemble",
    "check_entry_point",
    "default_limit",
    "download_channel",
    "fetch_code",
    "make_spare_client",
    "needs_channels",
    "parse_uri",
    "upload_parts",
]
