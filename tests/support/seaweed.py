"""The real object store for tests. Register with `pytest_plugins`, or import the fixtures in a conftest.

* `seaweed_store` (session): one running store that a whole test run shares; make a bucket of your own name in it.
* `make_store` (function): a factory for stores of one's own, for tests that kill or restart theirs.
* `s3_client(store)`: a boto3 client with the store's own key; `fresh_bucket(store)`: a new bucket's name.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from trainshed_service.embedded.store import EmbeddedStore

REGION = "us-east-1"


def s3_client(store: EmbeddedStore, **config: Any) -> Any:
    """A boto3 S3 client that talks to the store directly with its admin key. `config` goes to botocore's Config."""
    return boto3.client(
        "s3",
        endpoint_url=store.endpoint,
        aws_access_key_id=store.access_key,
        aws_secret_access_key=store.secret_key,
        region_name=REGION,
        config=Config(s3={"addressing_style": "path"}, **config),
    )


def fresh_bucket(store: EmbeddedStore, prefix: str = "test") -> str:
    """Create a bucket that nobody else uses and return its name."""
    name = f"{prefix}-{uuid.uuid4().hex[:12]}"
    s3_client(store).create_bucket(Bucket=name)
    return name


@pytest.fixture(scope="session")
def seaweed_store() -> Iterator[EmbeddedStore]:
    with tempfile.TemporaryDirectory(prefix="trainshed-store-") as folder:
        store = EmbeddedStore(Path(folder), die_with_thread=True)
        store.start()
        try:
            yield store
        finally:
            store.stop()


@pytest.fixture
def make_store(tmp_path: Path) -> Iterator[Callable[..., EmbeddedStore]]:
    """`make_store(home=None, start=True)`: a store with a home of its own; stopped and removed at the end."""
    made: list[EmbeddedStore] = []

    def make(home: Path | None = None, *, start: bool = True) -> EmbeddedStore:
        store = EmbeddedStore(home or tmp_path / f"store-{len(made)}", die_with_thread=True)
        made.append(store)
        if start:
            store.start()
        return store

    yield make
    for store in made:
        store.stop()
        shutil.rmtree(store.folder, ignore_errors=True)
