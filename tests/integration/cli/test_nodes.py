"""Nodes that only offer certain instance types: how they enroll, what `trainshed nodes` shows, which jobs wait."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.integration.cli.conftest import Command
from tests.support.shown_service import ShownService
from trainshed_worker.agent.__main__ import parse
from trainshed_worker.agent.service import ServiceClient, load_identity
from trainshed_worker.protocol import MachineFacts


def test_an_agent_that_was_given_types(service: ShownService, trainshed: Command, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(service.bootstrap.enrollment_token)
    words = ["--home", str(tmp_path), "--server", service.url, "--token-file", str(token), "--slots", "2"]
    options = parse([*words, "--instance-type", "ml.m5.large", "--instance-type", "ml.m5.xlarge"])
    options.identity_file.parent.mkdir(parents=True, exist_ok=True)
    client = ServiceClient(options, load_identity(options))
    facts = MachineFacts(hostname="typed", cpus=4, memory_bytes=8 << 30, isolation="full", version="0.1.0")

    async def enroll() -> None:
        await client.enroll(facts)
        await client.close()

    asyncio.run(enroll())
    lines = [line for line in trainshed("nodes").out.splitlines() if "typed" in line.split()]
    assert len(lines) == 2
    assert all("ml.m5.large, ml.m5.xlarge" in line for line in lines)
    request = service.request("of-another-type")
    request["ResourceConfig"]["InstanceType"] = "ml.c4.xlarge"
    path = tmp_path / "job.json"
    path.write_text(json.dumps(request))
    assert trainshed("submit", path).code == 0
    described = json.loads(trainshed("describe", "of-another-type").out)
    assert "ml.c4.xlarge" in described["WaitingReason"]
    assert trainshed("stop", "of-another-type").code == 0
