"""Real agent process, real sandbox, real object store, scripted service."""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_process import AgentProcess
from tests.support.agent_protocol import ScriptedService
from tests.support.seaweed import fresh_bucket, make_store, s3_client, seaweed_store
from trainshed_service.embedded.store import EmbeddedStore

__all__ = ["make_store", "seaweed_store"]


@pytest.fixture
def service() -> Iterator[ScriptedService]:
    scripted = ScriptedService()
    scripted.start()
    yield scripted
    scripted.stop()


@pytest.fixture
def agent(service: ScriptedService) -> Iterator[AgentProcess]:
    with tempfile.TemporaryDirectory(prefix="trainshed agent ") as folder:
        home = Path(folder) / "home"
        home.mkdir()
        process = AgentProcess(home, service.url)
        process.start()
        try:
            yield process
        finally:
            process.end_all()


@pytest.fixture
def bucket(seaweed_store: EmbeddedStore) -> str:
    return fresh_bucket(seaweed_store)


@pytest.fixture
def upload_code(seaweed_store: EmbeddedStore, bucket: str) -> Callable[..., dict[str, str]]:
    """`upload_code(train_py, **files)` puts a source archive and returns the SDK's hyperparameters for it."""

    def upload(script: str, files: dict[str, str] | None = None, **hyperparameters: Any) -> dict[str, str]:
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz") as tar:
            for name, text in {"train.py": script, **(files or {})}.items():
                member = tarfile.TarInfo(name)
                member.size = len(text.encode())
                tar.addfile(member, io.BytesIO(text.encode()))
        s3_client(seaweed_store).put_object(Bucket=bucket, Key="code/sourcedir.tar.gz", Body=content.getvalue())
        own = {
            "sagemaker_program": "train.py",
            "sagemaker_submit_directory": f"s3://{bucket}/code/sourcedir.tar.gz",
        }
        return {key: json.dumps(value) for key, value in {**own, **hyperparameters}.items()}

    return upload
