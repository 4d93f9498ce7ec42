"""The lines of `trainshed env`: they survive any shell quoting, and nothing of the user's settings wins over them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trainshed_service.embedded.home import Home, HomeConfig
from trainshed_service.embedded.plan import local_hosts_without_proxy
from trainshed_service.embedded.sdk_config import exported, shell_lines, write_sdk_config

CONFIG = HomeConfig(
    account_id="123456789012",
    ports={"main": 11000, "gateway": 11001, "ingest": 11002},
    access_key_id="AKIAEXAMPLE",
    secret_access_key="s3cr/et+'\"$`\\ \t!",
    token="ts_token",
    role_arn="arn:aws:iam::123456789012:role/service-role/TrainshedExecutionRole",
)


def evaluated(lines: str, environment: dict[str, str] | None = None, shell: str = "sh") -> dict[str, str]:
    """What a shell that evaluates the lines hands to a program."""
    done = subprocess.run(
        [shell, "-c", 'eval "$1" && exec env -0', shell, lines],
        env={"PATH": "/usr/bin:/bin"} | (environment or {}),
        capture_output=True,
        check=True,
    )
    entries = (entry.partition("=") for entry in done.stdout.decode().split("\0") if entry)
    return {name: value for name, _, value in entries}


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_shell_gets_exactly_the_values(tmp_path: Path, shell: str):
    home = Home(tmp_path / 'it\'s a "home" $HOME `x` \\')
    found = evaluated(shell_lines(home, CONFIG, {}), shell=shell)
    for name, value in exported(home, CONFIG, {}).items():
        assert found[name] == value, name


@given(st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), min_size=1, max_size=40))
def test_any_folder_name_survives(name: str):
    home = Home(Path("/tmp") / name.replace("/", "_"))
    assert evaluated(shell_lines(home, CONFIG, {}))["TRAINSHED_HOME"] == str(home.folder)


def test_what_would_win_is_unset(tmp_path: Path):
    set_before = {
        "AWS_PROFILE": "work",
        "AWS_DEFAULT_PROFILE": "work",
        "AWS_SESSION_TOKEN": "old",
        "AWS_SECURITY_TOKEN": "old",
        "AWS_ENDPOINT_URL_SAGEMAKER": "https://example.org",
        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.2/x",
        "AWS_ROLE_ARN": "arn:aws:iam::1:role/x",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "/token",
        "UNTOUCHED": "stays",
    }
    found = evaluated(shell_lines(Home(tmp_path), CONFIG, {}), set_before)
    assert {name for name in set_before if name in found} == {"UNTOUCHED"}
    assert found["AWS_REGION"] == found["AWS_DEFAULT_REGION"] == "us-east-1"
    assert found["AWS_ENDPOINT_URL"] == "http://127.0.0.1:11000"
    assert found["AWS_ENDPOINT_URL_S3"] == "http://127.0.0.1:11001"
    assert found["AWS_EC2_METADATA_DISABLED"] == "true"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, "127.0.0.1,localhost"),
        ({"NO_PROXY": "a.example, b.example"}, "a.example,b.example,127.0.0.1,localhost"),
        ({"no_proxy": "localhost"}, "localhost,127.0.0.1"),
        ({"NO_PROXY": "localhost,127.0.0.1"}, "localhost,127.0.0.1"),
    ],
)
def test_no_proxy_is_extended_once(before: dict[str, str], after: str):
    assert local_hosts_without_proxy(before) == after
    assert local_hosts_without_proxy({"NO_PROXY": after}) == after


def test_the_sdk_config_names_the_bucket_and_opts_out(tmp_path: Path):
    home = Home(tmp_path)
    write_sdk_config(home, CONFIG)
    content = yaml.safe_load(home.sdk_config_path.read_text())
    sdk = content["SageMaker"]["PythonSDK"]["Modules"]
    assert content["SchemaVersion"] == "1.0"
    assert sdk == {"Session": {"DefaultS3Bucket": "sagemaker-us-east-1-123456789012"}, "TelemetryOptOut": True}
