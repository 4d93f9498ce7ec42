"""The question that the service asks when a job is created: does anything lie under this prefix?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.seaweed import s3_client
from trainshed_service.embedded.store import EmbeddedStore
from trainshed_service.s3 import ProbeError, object_exists_under
from trainshed_service.settings import Settings


def settings_for(store: EmbeddedStore, home: Path, endpoint: str | None = None) -> Settings:
    return Settings(
        home=home,
        store_endpoint=endpoint or store.endpoint,
        store_access_key=store.access_key,
        store_secret_key=store.secret_key,
    )


async def test_prefixes(seaweed_store: EmbeddedStore, bucket: str, tmp_path: Path) -> None:
    settings = settings_for(seaweed_store, tmp_path)
    assert not await object_exists_under(settings, bucket, "")
    s3_client(seaweed_store).put_object(Bucket=bucket, Key="train/a b/x", Body=b"1")
    for prefix, expected in (("", True), ("tr", True), ("train/", True), ("train/a b/x", True), ("train/b", False)):
        assert await object_exists_under(settings, bucket, prefix) is expected, prefix
    assert not await object_exists_under(settings, bucket + "-absent", "train/")


async def test_store_that_is_away(seaweed_store: EmbeddedStore, tmp_path: Path) -> None:
    settings = settings_for(seaweed_store, tmp_path, "http://127.0.0.1:9")
    with pytest.raises(ProbeError):
        await object_exists_under(settings, "bkt", "", seconds=0.5)
