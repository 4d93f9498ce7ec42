"""notify: where events of jobs and pools go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainshed_service.cli.connection import Connection
from trainshed_service.cli.errors import CommandError
from trainshed_service.cli.shown import moment, path_part, print_json, print_table

_PATH = "/v1/notification-targets"


def add(folder: Path | None, url: str, user: str | None, mine: bool, on: list[str], as_json: bool) -> None:
    if user is not None and mine:
        raise CommandError("say whose events it gets: one of --user NAME and --mine; without both, everybody's")
    body: dict[str, Any] = {"url": url, "on": on, "mine": mine}
    if user is not None:
        body["user"] = user
    made = Connection(folder).post(_PATH, body)
    if as_json:
        print_json(made)
        return
    print(f"{made['id']}  {made['url']}  gets {', '.join(made['on'])} of {_whose(made)}")
    print(f"try it: trainshed notify test {made['id']}")


def list_targets(folder: Path | None, as_json: bool) -> None:
    answer = Connection(folder).get(_PATH)
    if as_json:
        print_json(answer)
        return
    rows = (
        (
            each["id"],
            each["url"],
            _whose(each),
            ", ".join(each["on"]),
            each["status"],
            moment(each["deliveredAt"]),
            each["lastError"] or "",
        )
        for each in answer["targets"]
    )
    print_table(("ID", "TO", "OF", "ON", "STATE", "DELIVERED", "ERROR"), rows, "no notification targets")


def remove(folder: Path | None, target_id: str) -> None:
    gone = Connection(folder).delete(f"{_PATH}/{path_part(target_id)}")
    print(f"no more notifications to {gone['url']}")


def test(folder: Path | None, target_id: str) -> None:
    answer = Connection(folder).post(f"{_PATH}/{path_part(target_id)}/test")
    if not answer["delivered"]:
        raise CommandError(f"the test message was not delivered: {answer['error']}")
    print("the test message was delivered")


def _whose(target: dict[str, Any]) -> str:
    return str(target["user"] or "everybody")
