"""The service as the agent reaches it: enrollment, reports, the desired state; and who the agent is, on disk.

Enrolling is idempotent by name: the same identity comes back with a fresh key. A 401 from any endpoint means "enroll
again"; it never means that a job has to end.
"""

import random
import secrets
import socket
import uuid
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from trainshed_worker.agent.files import read_json, write_atomic
from trainshed_worker.agent.options import AgentOptions
from trainshed_worker.protocol import (
    DesiredState,
    EnrollRequest,
    EnrollResponse,
    MachineFacts,
    ReportRequest,
    ReportResponse,
    SlotFacts,
    SlotReport,
)

REQUEST_TIMEOUT = 10.0
LONGEST_WAIT = 10.0
# Of a lease: with these a network that loses everything for three quarters of it costs no job, wherever it begins.
REPORT_EVERY = 1 / 8
REPORT_TIMEOUT = 1 / 24
REPORT_LONGEST_WAIT = 1 / 24
Model = TypeVar("Model", bound=BaseModel)


class Identity(BaseModel):
    """What the agent knows of itself; written after each enrollment."""

    agent_name: str
    agent_id: str = ""
    agent_key: str = ""
    node_ids: list[str] = []
    ingest_url: str = ""
    lease_seconds: float = 30.0


class Unreachable(Exception):
    """No usable answer: the service is away, restarting or overloaded. Try again later."""


class KeyUnknown(Exception):
    """401: enroll again."""


class Replaced(Exception):
    """409: a newer process of this agent has enrolled; this one must end and leave the jobs to it."""


class Refused(Exception):
    """Another 4xx: the service and this agent do not understand each other; the text says what it answered."""


def backoff(attempt: int, longest: float = LONGEST_WAIT) -> float:
    """Seconds to wait before try number `attempt` (0, 1, …): doubling from 0.2 with jitter, at most `longest`."""
    return float(min(longest, 0.2 * 2 ** min(attempt, 10)) * random.uniform(0.6, 1.2))


def load_identity(options: AgentOptions) -> Identity:
    """The stored identity, or a new one whose name is stored at once."""
    raw = read_json(options.identity_file)
    if raw is not None:
        identity = Identity.model_validate(raw)
        if options.name and options.name != identity.agent_name:
            identity = Identity(agent_name=options.name)
    else:
        identity = Identity(agent_name=options.name or f"{socket.gethostname()}-{secrets.token_hex(4)}")
    save_identity(options, identity)
    return identity


def save_identity(options: AgentOptions, identity: Identity) -> None:
    write_atomic(options.identity_file, identity.model_dump_json())


class ServiceClient:
    """HTTP calls of the agent protocol. Raises Unreachable, KeyUnknown, Replaced or Refused."""

    def __init__(self, options: AgentOptions, identity: Identity) -> None:
        self._options = options
        self.identity = identity
        self.boot_id = uuid.uuid4().hex
        # The service is on the site's own network: the machine's proxy settings are for the world outside.
        self._http = httpx.AsyncClient(base_url=options.server, timeout=REQUEST_TIMEOUT, trust_env=False)

    async def close(self) -> None:
        await self._http.aclose()

    async def enroll(self, facts: MachineFacts) -> None:
        """Make this agent known; the new key is on disk when this returns."""
        token = self._options.token_file.read_text().strip()
        types = list(self._options.instance_types)
        request = EnrollRequest(
            agent_name=self.identity.agent_name,
            boot_id=self.boot_id,
            facts=facts,
            slots=[SlotFacts(index=index, instance_types=types) for index in range(self._options.slots)],
        )
        answer = await self._send("POST", "/agent/v1/enroll", token, json=request.model_dump(mode="json"))
        response = _parse(EnrollResponse, answer)
        if len(response.node_ids) != self._options.slots:
            raise Refused(f"the service gave {len(response.node_ids)} nodes for {self._options.slots} slots")
        self.identity = Identity(
            agent_name=self.identity.agent_name,
            agent_id=response.agent_id,
            agent_key=response.agent_key,
            node_ids=response.node_ids,
            ingest_url=response.ingest_url,
            lease_seconds=response.lease_seconds,
        )
        save_identity(self._options, self.identity)

    async def report(self, slots: list[SlotReport]) -> ReportResponse:
        """Tell the whole observed state."""
        request = ReportRequest(agent_id=self.identity.agent_id, boot_id=self.boot_id, slots=slots)
        body = request.model_dump_json()
        answer = await self._send(
            "POST",
            "/agent/v1/reports",
            self.identity.agent_key,
            content=body,
            headers={"Content-Type": "application/json"},
            timeout=min(REQUEST_TIMEOUT, max(1.0, self.identity.lease_seconds * REPORT_TIMEOUT)),
        )
        return _parse(ReportResponse, answer)

    async def desired(self, version: int, wait: float) -> DesiredState:
        """The desired state, at once where it is not `version`, else after at most `wait` seconds."""
        answer = await self._send(
            "GET",
            "/agent/v1/desired",
            self.identity.agent_key,
            params={"version": version, "wait": wait},
            timeout=wait + REQUEST_TIMEOUT,
        )
        return _parse(DesiredState, answer)

    async def _send(self, method: str, path: str, key: str, **options: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}", **options.pop("headers", {})}
        try:
            answer = await self._http.request(method, path, headers=headers, **options)
        except httpx.HTTPError as error:
            raise Unreachable(f"{self._options.server}: {type(error).__name__} {error}") from error
        if answer.status_code == 401:
            raise KeyUnknown(answer.text)
        if answer.status_code == 409:
            raise Replaced(answer.text)
        if answer.status_code >= 500 or answer.status_code in (404, 408, 429):
            raise Unreachable(f"{self._options.server}{path} answered {answer.status_code}: {answer.text[:200]}")
        if answer.status_code >= 400:
            raise Refused(f"{path} answered {answer.status_code}: {answer.text[:1000]}")
        return answer


def _parse(model: type[Model], answer: httpx.Response) -> Model:
    try:
        return model.model_validate_json(answer.content)
    except ValidationError as error:
        raise Unreachable(f"{answer.url} gave an answer that is not understood: {error}") from error
