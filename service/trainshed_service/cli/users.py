"""user: who may use the installation. Secrets are printed by the command that made them and never again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from trainshed_service.cli.connection import Connection
from trainshed_service.cli.errors import CommandError
from trainshed_service.cli.shown import moment, path_part, print_json, print_table
from trainshed_service.embedded.sdk_config import user_lines


def create(folder: Path | None, name: str, admin: bool, may_pass: list[str] | None, as_json: bool) -> None:
    connection = Connection(folder)
    body: dict[str, Any] = {"name": name, "isAdmin": admin}
    if may_pass:
        body["mayPass"] = may_pass
    made = connection.post("/v1/users", body)
    if as_json:
        print_json(made)
        return
    role = made["mayPass"][0] if made["mayPass"] else connection.config.role_arn
    key = made["accessKey"]
    sys.stdout.write(user_lines(connection.config, key["accessKeyId"], key["secretAccessKey"], role))


def list_users(folder: Path | None, as_json: bool) -> None:
    answer = Connection(folder).get("/v1/users")
    if as_json:
        print_json(answer)
        return
    rows = (
        (
            each["name"],
            "admin" if each["isAdmin"] else "user",
            "any" if each["anyRole"] else ", ".join(arn.rpartition("/")[2] for arn in each["mayPass"]) or "none",
            str(each["activeJobs"]),
            moment(each["createdAt"]),
        )
        for each in answer["users"]
    )
    print_table(("NAME", "KIND", "MAY PASS", "JOBS", "CREATED"), rows, "no users")


def show(folder: Path | None, name: str) -> None:
    print_json(Connection(folder).get(f"/v1/users/{path_part(name)}"))


def change(folder: Path | None, name: str, body: dict[str, Any]) -> None:
    """Send the change; say which roles the user may pass then."""
    user = Connection(folder).patch(f"/v1/users/{path_part(name)}", body)
    roles = "any role" if user["anyRole"] else ", ".join(user["mayPass"]) or "no role"
    print(f"{name} is {'an administrator' if user['isAdmin'] else 'a user'} and may run jobs in {roles}")


def update(folder: Path | None, name: str, admin: bool | None, any_role: bool | None) -> None:
    body = {"isAdmin": admin, "anyRole": any_role}
    given = {member: value for member, value in body.items() if value is not None}
    if not given:
        raise CommandError("say what to change: --admin, --no-admin, --any-role or --listed-roles")
    change(folder, name, given)


def delete(folder: Path | None, name: str) -> None:
    answer = Connection(folder).delete(f"/v1/users/{path_part(name)}")
    print(f"{name} is deleted: its keys, tokens and sessions work no more")
    if answer["activeJobs"]:
        print(f"{answer['activeJobs']} of its jobs have not ended and go on; an administrator can stop them")
