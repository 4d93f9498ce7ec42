"""role: what jobs run in, and the unit of sharing."""

from __future__ import annotations

from pathlib import Path

from trainshed_service.cli.connection import Connection
from trainshed_service.cli.shown import moment, path_part, print_json, print_table


def create(folder: Path | None, name: str, as_json: bool) -> None:
    made = Connection(folder).post("/v1/roles", {"name": name})
    if as_json:
        print_json(made)
    else:
        print(made["arn"])


def list_roles(folder: Path | None, as_json: bool) -> None:
    answer = Connection(folder).get("/v1/roles")
    if as_json:
        print_json(answer)
        return
    rows = ((each["name"], each["arn"], moment(each["createdAt"])) for each in answer["roles"])
    print_table(("NAME", "ARN", "CREATED"), rows, "no roles")


def show(folder: Path | None, name: str) -> None:
    print_json(Connection(folder).get(f"/v1/roles/{path_part(name)}"))


def delete(folder: Path | None, name: str) -> None:
    print(f"{Connection(folder).delete(f'/v1/roles/{path_part(name)}')['arn']} is deleted")
