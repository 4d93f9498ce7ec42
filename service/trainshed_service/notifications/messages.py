"""What is sent: an event as a title and text for people, and as the JSON body of an EventBridge event for programs.

Invariants: the end of a job has AWS's own detail type and members; what is ours stands in `detail.Trainshed`. The id
of an event is the same whenever it is sent, so that a receiver can tell a second delivery. Environment variables of a
job are never in it. A body is at most `MAX_BODY_BYTES`: large members are left out by name before.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainshed_service.notifications import words
from trainshed_service.notifications.receivers import Sight

MAX_BODY_BYTES = 256 * 1024
"""EventBridge's own limit."""
MAX_TEXT = 4_000
LATE_SECONDS = 120.0
JOB_DETAIL_TYPE = "SageMaker Training Job State Change"
POOL_DETAIL_TYPES = {
    "pool.available": "Trainshed Warm Pool Available",
    "pool.expiring": "Trainshed Warm Pool Expiring",
    "pool.ended": "Trainshed Warm Pool Ended",
}
TEST_DETAIL_TYPE = "Trainshed Notification Test"
DROPPED_DETAIL_TYPE = "Trainshed Notifications Dropped"
JOB_MEMBERS = (
    "TrainingJobName",
    "TrainingJobArn",
    "TrainingJobStatus",
    "SecondaryStatus",
    "FailureReason",
    "HyperParameters",
    "AlgorithmSpecification",
    "RoleArn",
    "InputDataConfig",
    "OutputDataConfig",
    "ResourceConfig",
    "VpcConfig",
    "StoppingCondition",
    "CreationTime",
    "TrainingStartTime",
    "TrainingEndTime",
    "LastModifiedTime",
    "SecondaryStatusTransitions",
    "ModelArtifacts",
)
_TIMES = ("CreationTime", "TrainingStartTime", "TrainingEndTime", "LastModifiedTime")
_LARGE = ("HyperParameters", "InputDataConfig", "SecondaryStatusTransitions", "AlgorithmSpecification", "Tags")
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:trainshed:event")


@dataclass(frozen=True)
class Place:
    """The installation that speaks."""

    account: str
    region: str
    max_keep_alive_seconds: int = 3600


@dataclass(frozen=True)
class Happening:
    """One row of the event log. `subject` is `job/<name>`."""

    id: int
    at: float
    kind: str
    subject: str
    message: str
    data: dict[str, Any]

    @property
    def name(self) -> str:
        return self.subject.partition("/")[2]


@dataclass(frozen=True)
class Message:
    """`level`: info, success, warning or failure."""

    title: str
    text: str
    body: dict[str, Any] = field(repr=False)
    level: str = "info"

    def encoded(self) -> bytes:
        """The body as JSON, within the limit."""
        content = _dump(self.body)
        left_out: list[str] = []
        for name in _LARGE:
            if len(content) <= MAX_BODY_BYTES:
                break
            if name in self.body["detail"]:
                left_out.append(name)
                detail = {key: value for key, value in self.body["detail"].items() if key not in left_out}
                detail["Trainshed"] = {**detail.get("Trainshed", {}), "LeftOut": left_out}
                content = _dump({**self.body, "detail": detail})
        return content


def job_ended(
    event: Happening, described: Mapping[str, Any] | None, tags: Mapping[str, str], place: Place, now: float
) -> Message:
    """`described`: the job as Describe shows it; None where it is deleted: then what the event itself knows is told."""
    data = event.data
    status = str(data.get("status") or event.kind.partition(".")[2].capitalize())
    detail: dict[str, Any] = {"TrainingJobName": event.name, "TrainingJobArn": data.get("jobArn")}
    if described is not None:
        detail |= {name: described[name] for name in JOB_MEMBERS if described.get(name) is not None}
    elif data.get("failureReason"):
        detail["FailureReason"] = data["failureReason"]
    detail |= {"TrainingJobStatus": status, "SecondaryStatus": data.get("secondaryStatus") or status}
    for name in _TIMES:
        if name in detail:
            detail[name] = words.milliseconds(detail[name])
    if "SecondaryStatusTransitions" in detail:
        detail["SecondaryStatusTransitions"] = [_in_milliseconds(row) for row in detail["SecondaryStatusTransitions"]]
    detail["Tags"] = dict(tags)
    wall = float(data.get("wallSeconds") or 0.0)
    reason = data.get("failureReason") or (event.message if status == "Stopped" else None)
    ours: dict[str, Any] = {"WallSeconds": wall, "Message": event.message}
    lines = [f"Job {event.name} {status.lower()} after {words.duration(wall)} on {words.instances(data)}."]
    if reason:
        lines += ["", f"Reason: {reason}"]
    lines += ["", f"Log: trainshed logs {event.name}"]
    if data.get("keepAliveSeconds"):
        commands = words.pool_commands(event.name, place.max_keep_alive_seconds)
        ours["Commands"] = commands
        kept = words.duration(data["keepAliveSeconds"])
        lines += ["", f"Its instances may stay warm for {kept}; matching jobs then start at once.", ""]
        lines += words.command_lines(commands)
    detail["Trainshed"] = ours
    level = {"Completed": "success", "Failed": "failure"}.get(status, "warning")
    body = _body(event, JOB_DETAIL_TYPE, "aws.sagemaker", [data.get("jobArn")], detail, place)
    return Message(f"Trainshed: job {event.name} {status.lower()}", _text(lines, event, now), body, level)


def pool_changed(event: Happening, sight: Sight, place: Place, now: float) -> Message:
    """A pool that is available, about to expire, or ended. What `sight` does not cover is left out."""
    data = event.data
    what = words.instances(data)
    role = str(data.get("roleArn") or "").rpartition("/")[2]
    until = data.get("until")
    detail: dict[str, Any] = {
        "Status": event.kind.partition(".")[2].capitalize(),
        "ClusterId": data.get("clusterId"),
        "RoleArn": data.get("roleArn"),
        "InstanceType": data.get("instanceType"),
        "InstanceCount": data.get("instanceCount"),
    }
    of = ""
    if sight.named:
        detail |= {"TrainingJobName": event.name, "TrainingJobArn": data.get("jobArn")}
        of = f" (of job {event.name})"
    if until is not None:
        detail |= {"Until": words.milliseconds(until), "UntilTime": words.iso(until)}
    if event.kind == "pool.available":
        title = f"Trainshed: {what} warm until {words.time_of_day(until or now)}"
        first = f"{what}{of} kept warm until {words.time_of_day(until or now)}: matching jobs start at once."
    elif event.kind == "pool.expiring":
        left = words.duration((until or event.at) - event.at)
        detail["SecondsLeft"] = data.get("secondsLeft")
        title = f"Trainshed: {what} warm only until {words.time_of_day(until or now)}"
        first = (
            f"{what}{of} warm only until {words.time_of_day(until or now)}, another {left}, unless a matching job "
            "starts there or somebody extends it."
        )
    else:
        title = f"Trainshed: warm {what} given back"
        first = f"Warm {what}{of} given back after {words.duration(float(data.get('keptSeconds') or 0))}"
        if sight.named and data.get("why"):
            detail["Reason"] = data["why"]
            first += f": {data['why']}"
        first += "."
    lines = [first, "", f"Role: {role}. Whether a job matches: trainshed explain FILE"]
    ours: dict[str, Any] = {"Message": first}
    if sight.named and sight.may_change and event.kind != "pool.ended":
        ours["Commands"] = words.pool_commands(event.name, place.max_keep_alive_seconds)
        lines += ["", *words.command_lines(ours["Commands"])]
    detail["Trainshed"] = ours
    resources = [data.get("jobArn")] if sight.named else []
    body = _body(event, POOL_DETAIL_TYPES[event.kind], "trainshed", resources, detail, place)
    level = "warning" if event.kind == "pool.expiring" else "info"
    return Message(title, _text(lines, event, now), body, level)


def dropped(event: Happening, place: Place) -> Message:
    """That events could not be delivered to this target and were given up."""
    data = event.data
    detail = {"Count": data["count"], "From": words.iso(data["from"]), "To": words.iso(data["to"])}
    detail["Trainshed"] = {"Message": event.message}
    body = _body(event, DROPPED_DETAIL_TYPE, "trainshed", [], detail, place)
    return Message(f"Trainshed: {data['count']} notifications were lost", event.message, body, "warning")


def sample(place: Place, now: float, target_id: str) -> Message:
    """What `trainshed notify test` sends."""
    text = "This is a test. Events of jobs and warm pools arrive here like this one."
    event = Happening(0, now, "test", f"notification-target/{target_id}", text, {})
    detail = {"TargetId": target_id, "Trainshed": {"Message": text}}
    body = _body(event, TEST_DETAIL_TYPE, "trainshed", [], detail, place)
    return Message("Trainshed: a test", text, {**body, "id": str(uuid.uuid4())})


def _body(
    event: Happening, detail_type: str, source: str, resources: list[Any], detail: dict[str, Any], place: Place
) -> dict[str, Any]:
    return {
        "version": "0",
        "id": str(uuid.uuid5(_NAMESPACE, f"{place.account}/{event.id}")),
        "detail-type": detail_type,
        "source": source,
        "account": place.account,
        "time": words.iso(event.at),
        "region": place.region,
        "resources": [each for each in resources if each],
        "detail": detail,
    }


def _in_milliseconds(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: words.milliseconds(value) if key.endswith("Time") else value for key, value in row.items()}


def _text(lines: list[str], event: Happening, now: float) -> str:
    if now - event.at > LATE_SECONDS:
        lines = [*lines, "", f"(This was at {words.iso(event.at)}; the message could not be delivered earlier.)"]
    text = "\n".join(lines)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 2] + " …"


def _dump(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
