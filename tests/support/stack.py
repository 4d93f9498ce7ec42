"""A whole Trainshed on this machine, started and ended by its own command line, as a user would."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3

from tests.support.databases import database_settings
from tests.support.processes import plain_environment
from tests.support.wait import patient
from trainshed_service.embedded.home import Home

__all__ = ["REPOSITORY", "TRAINSHED", "CommandFailed", "Stack", "plain_environment", "run"]

REPOSITORY = Path(__file__).resolve().parents[2]
TRAINSHED = Path(sys.executable).with_name("trainshed")


class CommandFailed(AssertionError):
    def __init__(self, completed: subprocess.CompletedProcess[str]) -> None:
        super().__init__(
            f"{completed.args} ended with {completed.returncode}\n--- stdout\n{completed.stdout[-8000:]}"
            f"\n--- stderr\n{completed.stderr[-8000:]}"
        )


def run(
    *command: str | Path, env: dict[str, str] | None = None, timeout: float = 240, check: bool = True, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; raise CommandFailed with all that it printed where it fails."""
    completed = subprocess.run(
        [str(word) for word in command],
        env=env,
        timeout=patient(timeout),
        text=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        **options,
    )
    if check and completed.returncode != 0:
        raise CommandFailed(completed)
    return completed


@dataclass
class Stack:
    """`env` is exactly what `eval "$(trainshed env)"` leaves in a user's shell."""

    home: Path
    env: dict[str, str]

    @classmethod
    def up(cls, home: Path, *options: str, settings: dict[str, str] | None = None) -> Stack:
        """`settings`: TRAINSHED_* variables of the service, as docs/operations.md tells."""
        database = {f"TRAINSHED_{name.upper()}": value for name, value in database_settings(home, empty=True).items()}
        env = plain_environment() | database | (settings or {})
        run(TRAINSHED, "up", "--home", home, "--detach", *options, env=env, timeout=120)
        return cls.at(home)

    @classmethod
    def at(cls, home: Path) -> Stack:
        script = 'eval "$("$0" env --home "$1")" && exec "$2" -c "import json, os; print(json.dumps(dict(os.environ)))"'
        printed = run("bash", "-c", script, TRAINSHED, home, sys.executable, env=plain_environment()).stdout
        return cls(home, json.loads(printed))

    def down(self, *options: str) -> None:
        run(TRAINSHED, "down", "--home", self.home, *options, env=plain_environment(), timeout=120)

    def trainshed(self, *words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        return run(TRAINSHED, words[0], "--home", self.home, *words[1:], env=self.env, **options)

    @property
    def role(self) -> str:
        return self.env["SAGEMAKER_ROLE"]

    @property
    def bucket(self) -> str:
        """The default bucket, which `up` has made."""
        return Home(self.home).read().default_bucket

    def client(self, service: str, **options: Any) -> Any:
        variable = "AWS_ENDPOINT_URL_S3" if service == "s3" else "AWS_ENDPOINT_URL"
        return boto3.client(
            service,
            endpoint_url=self.env[variable],
            region_name=self.env["AWS_REGION"],
            aws_access_key_id=self.env["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.env["AWS_SECRET_ACCESS_KEY"],
            **options,
        )


def put_and_get(stack: Stack, key: str) -> None:
    """An object goes through the gateway and comes back."""
    s3 = stack.client("s3")
    s3.put_object(Bucket=stack.bucket, Key=key, Body=key.encode())
    assert s3.get_object(Bucket=stack.bucket, Key=key)["Body"].read() == key.encode()
