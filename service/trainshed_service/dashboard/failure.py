"""Why a job failed: the lines of its log that tell it, and a report to hand on.

Invariant: a page looks at the last `LINES` lines of each host of the last attempt, however long the log is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainshed_service.dashboard import words
from trainshed_service.logs.telling import telling
from trainshed_service.services import Services

LINES = 400
MAX_HOSTS = 16
_PER_HOST = 12


@dataclass(frozen=True)
class Told:
    """A line; `number` counts from 1 in its stream, `anchor` is its place in the log's page."""

    host: str
    number: int
    anchor: str
    text: str


async def telling_lines(services: Services, attempts: list[dict[str, Any]]) -> list[Told]:
    """Of the last attempt, host by host."""
    found: list[Told] = []
    hosts = attempts[-1]["Hosts"][:MAX_HOSTS] if attempts else []
    known = {stream.name for stream in await services.logs.job_streams(_job(hosts))} if hosts else set()
    for host in hosts:
        if host["LogStreamName"] not in known:
            continue
        page = await services.logs.get_events(host["LogStreamName"], limit=LINES)
        place = host["LogStreamName"].rpartition("/")[2]
        for index in telling([line.text for line in page.lines], _PER_HOST):
            line = page.lines[index]
            found.append(Told(host["Host"], line.position + 1, f"line={place}:{line.position + 1}", line.text[:2_000]))
    return found


def report(job: dict[str, Any], more: dict[str, Any], reason: str, types: str, told: list[Told], url: str) -> str:
    """All that somebody who helps wants to know, as text."""
    lines = [
        f"Training job {job['TrainingJobName']}: {job['TrainingJobStatus']}",
        f"Reason: {reason}",
        f"Instances: {types}{' (stand-in)' if more['StandIn'] else ''}",
        f"Image: {job['AlgorithmSpecification'].get('TrainingImage', '–')}",
        f"Created: {words.moment(job['CreationTime'])}",
    ]
    if job.get("TrainingStartTime") is not None:
        end = job.get("TrainingEndTime")
        lasted = words.duration(end - job["TrainingStartTime"]) if end is not None else "not ended"
        lines.append(f"Trained: from {words.moment(job['TrainingStartTime'])}, {lasted}")
    for attempt in more["Attempts"]:
        lines.append(f"Attempt {attempt['Number']}: {outcome(attempt)}")
        for host in attempt["Hosts"]:
            code = "" if host["ExitCode"] is None else f", exit code {host['ExitCode']}"
            message = f": {host['Message']}" if host["Message"] else ""
            lines.append(f"  {host['Host']} ({host['NodeId']}) {host['Phase'] or 'assigned'}{code}{message}")
    lines += [f"Notice: {notice}" for notice in more["Notices"]]
    if told:
        lines.append("Lines that tell:")
        lines += [f"  {each.host}:{each.number}  {each.text}" for each in told]
    lines.append(f"Page: {url}/jobs/{job['TrainingJobName']}")
    return "\n".join(lines)


def outcome(attempt: dict[str, Any]) -> str:
    """How an attempt ended, in words."""
    found = attempt["Outcome"]
    if not found:
        return str(attempt["State"])
    if isinstance(found, dict):
        return ", ".join(f"{name} {value}" for name, value in found.items() if isinstance(value, (str, int, float)))
    return str(found)


def _job(hosts: list[dict[str, Any]]) -> str:
    return str(hosts[0]["LogStreamName"]).partition("/")[0]
