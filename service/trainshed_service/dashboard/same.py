"""The equivalents of a page: what a program or a shell would send to get the same."""

from __future__ import annotations

import json
from typing import Any

from trainshed_service.dashboard import words
from trainshed_service.dashboard.filters import JobFilter
from trainshed_service.jobs.states import AWS_STATUS

_SORTS = {"created": "CreationTime", "changed": "LastModifiedTime", "name": "TrainingJobName"}


def search_of(wanted: JobFilter, role_arns: list[str]) -> str:
    """The body of `POST /v1/search` (SageMaker's Search) that finds the same jobs. Users have no member there."""
    together: list[dict[str, Any]] = []
    either = [
        ("TrainingJobStatus", list(dict.fromkeys(AWS_STATUS[state].status for state in wanted.states))),
        ("RoleArn", role_arns),
        ("ResourceConfig.InstanceType", list(wanted.types)),
    ]
    nested = [_any([_equals(name, value) for value in values]) for name, values in either if values]
    if wanted.tags:
        nested.append(_any([_tag(each) for each in wanted.tags]))
    if wanted.text:
        together.append({"Name": "TrainingJobName", "Operator": "Contains", "Value": wanted.text})
    for operator, epoch in (
        ("GreaterThanOrEqualTo", wanted.since_epoch),
        ("LessThan", wanted.until_epoch),
    ):
        if epoch is not None:
            together.append({"Name": "CreationTime", "Operator": operator, "Value": words.iso(epoch)})
    body: dict[str, Any] = {"Resource": "TrainingJob", "SortBy": _SORTS.get(wanted.sort, "TrainingJobStatus")}
    body["SortOrder"] = "Ascending" if wanted.ascending else "Descending"
    expression: dict[str, Any] = {}
    if together:
        expression["Filters"] = together
    if nested:
        expression["SubExpressions"] = nested
    if expression:
        body["SearchExpression"] = expression
    return json.dumps(body, ensure_ascii=False)


def ps_of(wanted: JobFilter) -> str:
    """The command that lists them: it knows one status, and no other filter."""
    statuses = {AWS_STATUS[state].status for state in wanted.states}
    return f"trainshed ps --status {statuses.pop()}" if len(statuses) == 1 else "trainshed ps"


def quoted(text: str) -> str:
    """As one word of a POSIX shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def _equals(name: str, value: str) -> dict[str, str]:
    return {"Name": name, "Operator": "Equals", "Value": value}


def _tag(text: str) -> dict[str, str]:
    key, equals, value = text.partition("=")
    if equals:
        return _equals(f"Tags.{key}", value)
    return {"Name": f"Tags.{key}", "Operator": "Exists"}


def _any(filters: list[dict[str, str]]) -> dict[str, Any]:
    return {"Filters": filters, "Operator": "Or"}
