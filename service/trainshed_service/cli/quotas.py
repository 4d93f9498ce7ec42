"""quota: how many instances a user, a role or everybody together may hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainshed_service.cli.connection import Connection
from trainshed_service.cli.errors import CommandError
from trainshed_service.cli.shown import print_json, print_table


def put(
    folder: Path | None,
    user: str | None,
    role: str | None,
    everybody: bool,
    instance_type: str | None,
    instances: int | None,
    warm_instances: int | None,
    hard: bool,
) -> None:
    if instances is None and warm_instances is None:
        raise CommandError("say how many: --instances N, --warm-instances N or both")
    whose = subject(user, role, everybody, instance_type)
    body: dict[str, Any] = {**whose, "hard": hard, "instances": instances, "warmInstances": warm_instances}
    if everybody:
        body["all"] = True
    made = Connection(folder).put("/v1/quotas", body)
    print(f"{_whose(made)}, {_types(made)}: {_limit(made)}")


def list_quotas(folder: Path | None, query: dict[str, str], as_json: bool) -> None:
    answer = Connection(folder).get("/v1/quotas", query)
    if as_json:
        print_json(answer)
        return
    rows = (
        (
            _whose(each),
            _types(each),
            _of(each["used"], each["instances"]),
            _kind(each),
            _of(each["warmUsed"], each["warmInstances"]),
        )
        for each in answer["quotas"]
    )
    print_table(("OF", "TYPE", "INSTANCES", "KIND", "WARM"), rows, "no quotas")


def delete(folder: Path | None, query: dict[str, str]) -> None:
    gone = Connection(folder).delete("/v1/quotas", **query)
    print(f"{_whose(gone)}, {_types(gone)}: no quota any more")


def subject(user: str | None, role: str | None, everybody: bool, instance_type: str | None) -> dict[str, str]:
    """As REST wants it. CommandError unless it is exactly one."""
    found = {"user": user, "role": role, "all": "true" if everybody else None}
    given = {name: value for name, value in found.items() if value is not None}
    if len(given) != 1:
        raise CommandError("say whose quota it is: one of --user NAME, --role NAME and --all")
    return given if instance_type is None else {**given, "instanceType": instance_type}


def _whose(quota: dict[str, Any]) -> str:
    return "everybody together" if quota["subjectKind"] == "all" else f"{quota['subjectKind']} {quota['subject']}"


def _types(quota: dict[str, Any]) -> str:
    return "all types together" if quota["instanceType"] == "*" else str(quota["instanceType"])


def _limit(quota: dict[str, Any]) -> str:
    parts = []
    if quota["instances"] is not None:
        parts.append(f"{quota['instances']} instances, {'refused' if quota['hard'] else 'waiting'} beyond")
    if quota["warmInstances"] is not None:
        parts.append(f"{quota['warmInstances']} warm instances")
    return "; ".join(parts)


def _kind(quota: dict[str, Any]) -> str:
    return "" if quota["instances"] is None else "hard" if quota["hard"] else "soft"


def _of(used: int, limit: int | None) -> str:
    return "no limit" if limit is None else f"{used} of {limit}"
