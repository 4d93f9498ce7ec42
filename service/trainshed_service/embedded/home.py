"""The home: the one folder that holds all state of an installation, and its `config.json`.

Invariants: nothing is written outside the home; `config.json` is replaced as a whole, readable by its owner only
(0600), and on disk before the call returns, so that a crash leaves the old or the new one.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

DEFAULT_REGION = "us-east-1"


class HomeError(RuntimeError):
    """The home cannot be used; the message says why and what to do."""


class UpError(RuntimeError):
    """The installation did not come up; the message says why and what to do."""


class HomeConfig(BaseModel):
    """What an installation must remember between two starts. Holds secrets."""

    account_id: str = Field(default="", pattern=r"^(\d{12})?$", description="empty before the first start")
    region: str = DEFAULT_REGION
    nodes: int = Field(default=2, ge=0, description="slots of this machine's agent")
    instance_types: list[str] = Field(default_factory=list, description="empty: slots become any known type")
    ports: dict[str, int] = Field(default_factory=dict, description="main, gateway, ingest and the store's own")
    access_key_id: str = ""
    secret_access_key: str = ""
    token: str = Field(default="", description="bearer token of the same user, for REST")
    enrollment_token: str = ""
    role_arn: str = ""

    @property
    def default_bucket(self) -> str:
        """The name that the SageMaker SDKs make up for this account and region."""
        return f"sagemaker-{self.region}-{self.account_id}"

    @property
    def main_url(self) -> str:
        return f"http://127.0.0.1:{self.ports['main']}"

    @property
    def gateway_url(self) -> str:
        return f"http://127.0.0.1:{self.ports['gateway']}"

    @property
    def ingest_url(self) -> str:
        return f"http://127.0.0.1:{self.ports['ingest']}"


def default_home() -> Path:
    """`$TRAINSHED_HOME`, else `~/.trainshed`: the same from every folder and every shell."""
    named = os.environ.get("TRAINSHED_HOME")
    return Path(named) if named else Path.home() / ".trainshed"


class Home:
    """Names of what is inside. Nothing is made before `prepare`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser().absolute()
        self.config_path = self.folder / "config.json"
        self.run = self.folder / "run"
        self.log = self.folder / "log"
        self.node = self.folder / "node"
        self.lock_path = self.run / "lock"
        self.sdk_config_path = self.folder / "sagemaker-config.yaml"
        self.enrollment_path = self.run / "enrollment.token"

    def pid_path(self, part: str) -> Path:
        return self.run / f"{part}.pid"

    def log_path(self, part: str) -> Path:
        return self.log / f"{part}.log"

    def prepare(self) -> None:
        """Make the folders, closed to other users of the machine. Raises HomeError."""
        try:
            # A folder that the user had already keeps its mode; what holds secrets is closed in any case.
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            for folder in (self.run, self.log):
                folder.mkdir(exist_ok=True)
                folder.chmod(0o700)
        except OSError as error:
            raise HomeError(f"cannot use {self.folder} as the home: {error.strerror}; give another --home") from error

    def exists(self) -> bool:
        return self.config_path.is_file()

    def read(self) -> HomeConfig:
        """The configuration. Raises HomeError where `trainshed up` has never run here, or the file is damaged."""
        try:
            return HomeConfig.model_validate(json.loads(self.config_path.read_text()))
        except FileNotFoundError:
            raise HomeError(
                f"there is no Trainshed in {self.folder}; start one with `trainshed up`, or name its home by --home"
            ) from None
        except (ValueError, ValidationError) as error:
            raise HomeError(f"{self.config_path} is damaged ({error}); put it back from a backup") from error
        except PermissionError as error:
            raise HomeError(f"{self.config_path} belongs to another user; run this as that user") from error

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold this while the configuration is read to be changed, so that no start writes over what another wrote."""
        fd = os.open(self.run / "config.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def write(self, config: HomeConfig) -> None:
        write_private(self.config_path, json.dumps(config.model_dump(), indent=1) + "\n")


def write_private(path: Path, text: str) -> None:
    """Whole or not at all, readable by the owner only, on disk when it returns."""
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")  # two writers at once must not share it
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def dump(config: HomeConfig) -> dict[str, Any]:
    """The configuration without its secrets, for people to read."""
    return config.model_dump(exclude={"secret_access_key", "token", "enrollment_token"})
