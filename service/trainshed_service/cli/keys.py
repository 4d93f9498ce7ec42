"""key, token: the credentials of users. To rotate a key: create a second one, use it, delete the first."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from trainshed_service.cli.connection import Connection
from trainshed_service.cli.shown import moment, path_part, print_json, print_table
from trainshed_service.embedded.sdk_config import user_lines


def create(folder: Path | None, name: str, as_json: bool) -> None:
    connection = Connection(folder)
    user = connection.get(f"/v1/users/{path_part(name)}")
    made = connection.post(f"/v1/users/{path_part(name)}/access-keys")
    if as_json:
        print_json(made)
        return
    role = user["mayPass"][0] if user["mayPass"] else connection.config.role_arn
    sys.stdout.write(user_lines(connection.config, made["accessKeyId"], made["secretAccessKey"], role))


def list_keys(folder: Path | None, name: str | None, as_json: bool) -> None:
    """Of one user, or of all."""
    connection = Connection(folder)
    names = [name] if name is not None else [each["name"] for each in connection.get("/v1/users")["users"]]
    found = [
        {"user": each, **key}
        for each in names
        for key in connection.get(f"/v1/users/{path_part(each)}/access-keys")["accessKeys"]
    ]
    if as_json:
        print_json({"accessKeys": found})
        return
    rows = (
        (key["user"], key["accessKeyId"], "active" if key["active"] else "off", moment(key["createdAt"]))
        for key in found
    )
    print_table(("USER", "KEY", "STATE", "CREATED"), rows, "no keys")


def switch(folder: Path | None, access_key_id: str, active: bool) -> None:
    answer = Connection(folder).patch(f"/v1/access-keys/{path_part(access_key_id)}", {"active": active})
    _say(answer, "works again" if active else "works no more")


def delete(folder: Path | None, access_key_id: str) -> None:
    _say(Connection(folder).delete(f"/v1/access-keys/{path_part(access_key_id)}"), "is deleted")


def _say(answer: dict[str, object], what: str) -> None:
    print(f"the key {answer['accessKeyId']} of {answer['user']} {what}")
    if answer["isHomeKey"] and not answer["active"]:
        print(
            "it is the key with which the commands of this home sign: `trainshed down` and `trainshed up` give the "
            "home a new one"
        )


def create_token(folder: Path | None, name: str, label: str, days: int | None, as_json: bool) -> None:
    body: dict[str, object] = {"name": label} | ({} if days is None else {"expiresInDays": days})
    made = Connection(folder).post(f"/v1/users/{path_part(name)}/tokens", body)
    if as_json:
        print_json(made)
    else:
        print(f"export TRAINSHED_TOKEN={shlex.quote(made['token'])}")


def list_tokens(folder: Path | None, name: str, as_json: bool) -> None:
    answer = Connection(folder).get(f"/v1/users/{path_part(name)}/tokens")
    if as_json:
        print_json(answer)
        return
    rows = (
        (each["id"], each["name"], moment(each["createdAt"]), moment(each["expiresAt"]) or "never")
        for each in answer["tokens"]
    )
    print_table(("ID", "NAME", "CREATED", "ENDS"), rows, "no tokens")


def revoke_token(folder: Path | None, token_id: str) -> None:
    Connection(folder).delete(f"/v1/tokens/{path_part(token_id)}")
    print(f"the token {token_id} works no more")
