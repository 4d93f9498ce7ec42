"""The S3 gateway: verifies, authorizes and re-signs S3 requests, and streams them to and from the store."""

from trainshed_service.s3.probe import ProbeError, StoreProbe, object_exists_under

__all__ = ["ProbeError", "StoreProbe", "object_exists_under"]
