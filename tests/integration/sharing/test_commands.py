"""The commands of sharing against a running service: user, key, token, role, quota."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.integration.sharing.conftest import Sharing
from tests.support.stack import TRAINSHED, plain_environment, run
from trainshed_service.cli.app import app
from trainshed_service.cli.errors import CommandError

WHO = (
    "import boto3, os; sts = boto3.client('sts'); print(sts.get_caller_identity()['Arn'], os.environ['SAGEMAKER_ROLE'],"
    " os.environ.get('TRAINSHED_TOKEN'))"
)


def command(home: Path, *words: str) -> str:
    """What the command prints. In this process: each start of an interpreter takes a second."""
    done = CliRunner().invoke(app, [*words, "--home", str(home)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def refused(home: Path, *words: str) -> str:
    with pytest.raises(CommandError) as caught:
        command(home, *words)
    assert caught.value.exit_code == 1
    return str(caught.value)


def test_users_roles_and_keys_by_commands(sharing: Sharing, home_folder: Path) -> None:
    account = sharing.service.bootstrap.account_id
    arn = command(home_folder, "role", "create", "cli-role").strip()
    assert arn == f"arn:aws:iam::{account}:role/cli-role"
    assert arn in command(home_folder, "role", "list")
    # As in a shell that pointed elsewhere before.
    script = 'eval "$("$0" user create cli-user --may-pass cli-role --home "$1")" && exec "$2" -c "$3"'
    before = plain_environment() | {"TRAINSHED_TOKEN": "of-somebody-else", "AWS_PROFILE": "nowhere"}
    printed = run("bash", "-c", script, TRAINSHED, home_folder, sys.executable, WHO, env=before).stdout
    assert printed.split() == [f"arn:aws:iam::{account}:user/cli-user", arn, "None"]

    users = json.loads(command(home_folder, "user", "list", "--json"))["users"]
    (shown,) = [each for each in users if each["name"] == "cli-user"]
    assert (shown["mayPass"], shown["anyRole"], shown["isAdmin"]) == ([arn], False, False)
    assert "cli-user" in command(home_folder, "user", "list")
    assert "no role" in command(home_folder, "user", "deny", "cli-user", "cli-role")
    assert arn in command(home_folder, "user", "allow", "cli-user", "cli-role")
    assert "is an administrator" in command(home_folder, "user", "update", "cli-user", "--admin")
    assert "is a user" in command(home_folder, "user", "update", "cli-user", "--no-admin")
    assert json.loads(command(home_folder, "role", "show", "cli-role"))["allowedUsers"] == ["cli-user"]

    made = json.loads(command(home_folder, "key", "create", "cli-user", "--json"))
    listed = command(home_folder, "key", "list", "cli-user")
    assert listed.count("active") == 2
    assert made["accessKeyId"] in listed
    assert made["secretAccessKey"] not in listed
    assert "works no more" in command(home_folder, "key", "deactivate", made["accessKeyId"])
    assert "off" in command(home_folder, "key", "list")
    assert "works again" in command(home_folder, "key", "activate", made["accessKeyId"])
    assert "is deleted" in command(home_folder, "key", "delete", made["accessKeyId"])
    exported = command(home_folder, "key", "create", "cli-user")
    assert f"export SAGEMAKER_ROLE={arn}\n" in exported
    assert exported.startswith("unset ")

    token = command(home_folder, "token", "create", "cli-user", "--name", "laptop", "--days", "2")
    assert token.startswith("export TRAINSHED_TOKEN=ts_")
    (entry,) = json.loads(command(home_folder, "token", "list", "cli-user", "--json"))["tokens"]
    assert "laptop" in command(home_folder, "token", "list", "cli-user")
    assert "works no more" in command(home_folder, "token", "revoke", entry["id"])
    assert command(home_folder, "token", "list", "cli-user") == "no tokens\n"

    assert "is deleted" in command(home_folder, "user", "delete", "cli-user")
    assert "cannot be found" in refused(home_folder, "user", "show", "cli-user")
    assert command(home_folder, "role", "delete", "cli-role") == f"{arn} is deleted\n"


def test_quotas_by_commands(sharing: Sharing, home_folder: Path) -> None:
    sharing.person("quota-user")
    whose = ("--user", "quota-user")
    said = command(home_folder, "quota", "set", *whose, "--instances", "3", "--warm-instances", "1", "--hard")
    assert said == "user quota-user, all types together: 3 instances, refused beyond; 1 warm instances\n"
    command(home_folder, "quota", "set", "--all", "--instance-type", "ml.c5.xlarge", "--instances", "7")
    listed = command(home_folder, "quota", "list")
    assert "user quota-user" in listed
    assert "0 of 3" in listed
    assert "everybody together" in listed
    (only,) = json.loads(command(home_folder, "quota", "show", *whose, "--json"))["quotas"]
    assert (only["instances"], only["warmInstances"], only["hard"]) == (3, 1, True)
    # Setting it again replaces it, whole.
    command(home_folder, "quota", "set", *whose, "--instances", "4")
    (only,) = json.loads(command(home_folder, "quota", "show", *whose, "--json"))["quotas"]
    assert (only["instances"], only["warmInstances"], only["hard"]) == (4, None, False)
    assert command(home_folder, "quota", "delete", *whose) == "user quota-user, all types together: no quota any more\n"
    command(home_folder, "quota", "delete", "--all", "--instance-type", "ml.c5.xlarge")
    assert command(home_folder, "quota", "list") == "no quotas\n"


def test_what_cannot_be_is_said_in_a_sentence(sharing: Sharing, home_folder: Path) -> None:
    assert "the installation's own administrator" in refused(home_folder, "user", "delete", "admin")
    assert "one of --user NAME, --role NAME and --all" in refused(home_folder, "quota", "set", "--instances", "1")
    assert "--instances N, --warm-instances N or both" in refused(home_folder, "quota", "set", "--all")
    assert "say what to change" in refused(home_folder, "user", "update", "admin")
    assert "cannot be found among those of users" in refused(home_folder, "key", "deactivate", "AKIANOBODY")
    assert "own role; it cannot be deleted" in refused(home_folder, "role", "delete", "TrainshedExecutionRole")


def test_help_of_every_command_is_there() -> None:
    for group in ("user", "key", "token", "role", "quota"):
        assert f"{group} [OPTIONS] COMMAND" in CliRunner().invoke(app, [group, "--help"]).stdout
