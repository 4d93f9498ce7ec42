"""Sends recorded requests to a whole service, in which one peer of the agent protocol runs the jobs (by saying so).

Names that the recorded service gave out (upload ids, page tokens, log streams) are replaced by those that ours gave
out. Bodies of S3 requests were not recorded: bytes of the recorded length stand in.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
from botocore.credentials import Credentials
from botocore.parsers import create_parser
from botocore.session import Session

from tests.integration.wire import recorded
from tests.integration.wire.recorded import Call
from tests.support.api_process import ApiProcess
from tests.support.scripted_agent import ScriptedAgent
from tests.support.wait import wait_until
from trainshed_worker.protocol import Phase

LINES = ("loss=0.5", "done")
_LOCATION = (
    b'<CreateBucketConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    b"<LocationConstraint>us-west-2</LocationConstraint></CreateBucketConfiguration>"
)
_MODELS = {"monitoring": "cloudwatch"}
_BOTO = Session()


class Machines:
    """The peer: each host of a job prints LINES and ends."""

    def __init__(self, api: ApiProcess, ingest: str, slots: int) -> None:
        self._ingest = ingest
        self._agent = ScriptedAgent(api.url, api.bootstrap.enrollment_token, slots=slots)
        self._agent.enroll()
        self._agent.report().raise_for_status()

    def close(self) -> None:
        self._agent.close()

    def run(self, job: str, hosts: int, code: int | None) -> None:
        """Until it trains; with a `code` until it has ended with that."""
        held = self._until(lambda: self._running(job, hosts), f"{job} runs on {hosts} hosts")
        for one in held:
            self._ship(one.assignment)
        if code is not None:
            for one in held:
                self._agent.exit(one.assignment.host.name, code, "" if code == 0 else "ValueError: no data")
            self.until_ended()

    def until_ended(self) -> None:
        """A slot is cleared only once its job has ended."""
        self._until(lambda: not self._agent.held, "the job has ended and left its slots")

    def _running(self, job: str, hosts: int) -> Any:
        held = [one for one in self._agent.held.values() if one.assignment.job_name == job]
        return held if [one.phase for one in held] == [Phase.RUNNING] * hosts else None

    def _until(self, condition: Any, what: str) -> Any:
        return wait_until(lambda: self._agent.step() and condition(), timeout=60, every=0.01, what=what)

    def _ship(self, assignment: Any) -> None:
        now, host = int(time.time() * 1000), assignment.host.name
        lines = [{"seq": seq, "timestamp_ms": now, "stream": host, "text": text} for seq, text in enumerate(LINES)]
        whose = {"job_name": assignment.job_name, "attempt_id": assignment.attempt_id, "source": host}
        points = [{"name": "loss", "value": 0.5, "timestamp_ms": now, "seq": 0}]
        for path, what in [("logs", {"lines": lines}), ("metrics", {"points": points})]:
            wait_until(lambda path=path, what=what: self._sent(path, {**whose, **what}), what=f"{path} are taken")

    def _sent(self, path: str, body: dict[str, Any]) -> bool:
        """False while the job's streams are being made, which the ingest asks an agent to wait for."""
        sent = self._agent.http.post(f"{self._ingest}/ingest/v1/{path}", json=body)
        if sent.status_code == 503:
            return False
        sent.raise_for_status()
        return True


@dataclass
class Answered:
    step: str
    number: int
    call: Call
    answer: httpx.Response

    @property
    def where(self) -> str:
        return f"{self.step}[{self.number}] {self.call.get('op') or self.call['method'] + ' ' + self.call['path']}"

    @property
    def body(self) -> dict[str, Any]:
        """As the client's own parser gives it."""
        call, answer = self.call, self.answer
        model = _BOTO.get_service_model(_MODELS.get(call["service"], call["service"]))
        query = "Action" in (call.get("body") or {})
        parser = create_parser("query" if query else "json")
        given = {"status_code": answer.status_code, "headers": answer.headers, "body": answer.content}
        parsed: dict[str, Any] = parser.parse(given, model.operation_model(call["op"]).output_shape)
        return parsed


@dataclass
class Replay:
    api: ApiProcess
    machines: Machines
    region: str
    others: dict[tuple[str, int], Credentials]
    """By (step, number of the call): who asks, where it is not the administrator."""
    bodies: dict[tuple[str, int], dict[str, Any]]
    """By (step, number of the call): members of the request that stand in for the recorded ones."""
    unasked: list[str] = field(default_factory=list)
    """Calls for a next page where ours has given the last."""
    _streams: dict[str, str] = field(default_factory=dict)
    _tokens: dict[str, str | None] = field(default_factory=dict)
    _uploads: dict[str, str] = field(default_factory=dict)
    _parts: dict[str, dict[int, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        admin = self.api.bootstrap.admin
        self._admin = Credentials(admin.access_key_id, admin.secret_access_key)

    def run(self, steps: dict[str, list[Call]]) -> Iterator[Answered]:
        all_calls = [call for calls in steps.values() for call in calls]
        asked = Counter(map(recorded.job_of, all_calls))
        made = {recorded.job_of(call) for call in all_calls if call.get("op") == "CreateTrainingJob"}
        with httpx.Client(timeout=60, trust_env=False, verify=False) as http:
            for name in recorded.in_order(steps):
                stopped = {recorded.job_of(call) for call in steps[name] if call.get("op") == "StopTrainingJob"}
                for number, call in enumerate(steps[name]):
                    job = recorded.job_of(call)
                    if job not in made and _assumes_job(call):
                        made.add(job)
                        self._create(_plain(str(job), self.api.bootstrap.role_arn), stops=job in stopped)
                    request = self._request(call, name, number)
                    if request is None:
                        self.unasked.append(f"{name}[{number}]")
                        continue
                    answered = Answered(name, number, call, http.send(request))
                    self._learn(answered)
                    yield answered
                    if job is not None and (answered.answer.is_success or asked[job] > 1):
                        self._go_on(answered, stops=job in stopped)

    def _go_on(self, answered: Answered, *, stops: bool) -> None:
        """What happens on the machines before the client's next call."""
        call, status = answered.call, answered.answer.status_code
        if call.get("op") == "CreateTrainingJob" and call["status"] == 200:
            if status == 400:
                self._create(_acceptable(call["body"]), stops=stops)
            else:
                self._run(call["body"], None if stops else int(answered.step.endswith("_fail")))
        elif call.get("op") == "StopTrainingJob" and status == 200:
            self.machines.until_ended()

    def _create(self, request: dict[str, Any], *, stops: bool) -> None:
        self.api.client().create_training_job(**request)
        self._run(request, None if stops else 0)

    def _run(self, request: dict[str, Any], code: int | None) -> None:
        shape = request["ResourceConfig"]
        hosts = sum(group["InstanceCount"] for group in shape.get("InstanceGroups", [shape]))
        self.machines.run(request["TrainingJobName"], hosts, code)

    def _request(self, call: Call, name: str, number: int) -> httpx.Request | None:
        who = self.others.get((name, number), self._admin)
        if call["service"] == "s3":
            return self._s3_request(call, who)
        body = call.get("body")
        if isinstance(body, dict):
            body = body | self.bodies.get((name, number), {})
            if "EndTime" in body:
                body["EndTime"] = int(time.time()) + 3600
            for member in ("nextToken", "NextToken"):
                if member in body:
                    token = self._tokens.get(_paged(call))
                    if token is None:
                        return None
                    body[member] = token
            if "logStreamName" in body:
                body["logStreamName"] = self._streams[body["logStreamName"].rpartition("-")[0]]
        return recorded.signed(call, self.api.url, who, self.region, body=body)

    def _s3_request(self, call: Call, who: Credentials) -> httpx.Request:
        path, query = call["path"].split("?")[0], parse_qs(urlsplit(call["path"]).query)
        said = call.get("body")
        body = b"x" * int(said.strip("<> bytes")) if said else b""
        more: dict[str, str] = {"Expect": "100-continue"} if "Expect" in call["headers"] else {}
        target = call["path"]
        if "uploadId" in query:
            upload = self._uploads[path]
            part = query.get("partNumber")
            target = f"{path}?uploadId={upload}" + (f"&partNumber={part[0]}" if part else "")
            body = body if part else self._completion(upload)
        elif recorded.makes_bucket(call):
            body = _LOCATION
        elif "X-Amz-Trailer" in call["headers"]:
            kept = ("Transfer-Encoding", "Content-Encoding", "X-Amz-Trailer", "X-Amz-Decoded-Content-Length")
            more |= {name: call["headers"][name] for name in kept}
            body = _chunked(b"x" * int(more["X-Amz-Decoded-Content-Length"]))
        if call["status"] == 206:
            more["Range"] = "bytes=0-8388607"
        return recorded.signed(call, self.api.url, who, self.region, path=target, body=body, **more)

    def _completion(self, upload: str) -> bytes:
        parts = "".join(
            f"<Part><ETag>{etag}</ETag><PartNumber>{number}</PartNumber></Part>"
            for number, etag in sorted(self._parts[upload].items())
        )
        return f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()

    def _learn(self, answered: Answered) -> None:
        """Keep what the client will name in a later call."""
        call, answer = answered.call, answered.answer
        if not answer.is_success:
            return
        if call["service"] == "s3":
            path, query = call["path"].split("?")[0], parse_qs(urlsplit(call["path"]).query, keep_blank_values=True)
            if "uploads" in query:
                upload = answer.text.partition("<UploadId>")[2].partition("</UploadId>")[0]
                self._uploads[path] = upload
                self._parts[upload] = {}
            elif "partNumber" in query:
                self._parts[self._uploads[path]][int(query["partNumber"][0])] = answer.headers["ETag"]
        elif call["op"] == "DescribeLogStreams":
            names = [stream["logStreamName"] for stream in answered.body["logStreams"]]
            self._streams |= {name.rpartition("-")[0]: name for name in names}
        elif call["op"] in ("GetLogEvents", "ListTrainingJobs"):
            body = answered.body
            self._tokens[_paged(call)] = body.get("nextForwardToken") or body.get("NextToken")


def _paged(call: Call) -> str:
    """What a page token belongs to."""
    body = {name: value for name, value in (call.get("body") or {}).items() if name not in ("nextToken", "NextToken")}
    return f"{call['op']} {body.get('logStreamName') or json.dumps(body, sort_keys=True)}"


def _assumes_job(call: Call) -> bool:
    body = call.get("body")
    return call["status"] == 200 and isinstance(body, dict) and "TrainingJobName" in body


def _plain(job: str, role: str) -> dict[str, Any]:
    return {
        "TrainingJobName": job,
        "RoleArn": role,
        "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
        "OutputDataConfig": {"S3OutputPath": "s3://bkt1/out"},
        "ResourceConfig": {"InstanceType": "ml.c5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
    }


def _acceptable(request: dict[str, Any]) -> dict[str, Any]:
    """The same job without what we refuse: lazy input modes and managed spot training."""
    job = {name: value for name, value in request.items() if name != "EnableManagedSpotTraining"}
    limit = request["StoppingCondition"]["MaxRuntimeInSeconds"]
    job["StoppingCondition"] = {"MaxRuntimeInSeconds": limit}
    job["AlgorithmSpecification"] = request["AlgorithmSpecification"] | {"TrainingInputMode": "File"}
    channels = request.get("InputDataConfig", [])
    if channels:
        job["InputDataConfig"] = [
            {name: value for name, value in channel.items() if name != "InputMode"} for channel in channels
        ]
    return job


def _chunked(data: bytes) -> bytes:
    checksum = base64.b64encode(binascii.crc32(data).to_bytes(4, "big"))
    return b"%x\r\n%b\r\n0\r\nx-amz-checksum-crc32:%b\r\n\r\n" % (len(data), data, checksum)
