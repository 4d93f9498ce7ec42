"""The network between a node and the service loses everything for a while, without an end of any connection."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.core.conftest import start_api
from tests.integration.core.driving import create, describe
from tests.support.agent_process import AgentProcess
from tests.support.api_process import ApiProcess
from tests.support.depth import DEEP
from tests.support.partition import Network
from tests.support.wait import wait_until

__all__ = ["start_api"]
LEASE, BLIP = (120.0, 90.0) if DEEP else (16.0, 8.0)  # shorter by so much as the machine may be slow
pytestmark = pytest.mark.timeout(900)


@dataclass
class Site:
    api: ApiProcess
    network: Network

    def start(self, name: str) -> None:
        """A job whose process runs until it is stopped, without anything to store."""
        program = {"ContainerEntrypoint": ["sleep", "3600"]}
        image = {"TrainingImage": "image", "TrainingInputMode": "File", **program}
        create(self.api, name, AlgorithmSpecification=image)

    def until(self, name: str, status: str, timeout: float = 30) -> None:
        """`status` is a secondary one."""
        what = f"{name} is {status}"
        wait_until(lambda: describe(self.api, name)["SecondaryStatus"] == status, timeout=timeout, every=0.1, what=what)

    def nodes(self) -> list[str]:
        return sorted(node["state"] for node in self.api.rest("/v1/nodes")["nodes"])

    def lose_all_for(self, seconds: float) -> None:
        self.network.cut()
        threading.Event().wait(seconds)  # the outage itself
        self.network.mend()


@pytest.fixture
def site(request: pytest.FixtureRequest, start_api: Callable[..., ApiProcess]) -> Iterator[Site]:
    """The parameter is the lease in seconds."""
    api = start_api(lease_seconds=request.param)
    with Network(api.port) as network, tempfile.TemporaryDirectory(prefix="trainshed agent ") as folder:
        home = Path(folder) / "home"
        home.mkdir()
        agent = AgentProcess(home, network.url, slots=2)
        (home.parent / "token").write_text(api.bootstrap.enrollment_token)
        agent.start()
        try:
            yield Site(api, network)
        finally:
            network.mend()
            agent.end_all()


@pytest.mark.parametrize("site", [LEASE], indirect=True)
def test_a_blip_shorter_than_the_lease_kills_nothing_and_the_node_goes_on(site: Site) -> None:
    wait_until(lambda: site.nodes() == ["free", "free"], timeout=60)
    site.start("running")
    site.until("running", "Training", 60)
    site.lose_all_for(BLIP)
    site.start("next")
    site.until("next", "Training", 30)
    assert describe(site.api, "running")["SecondaryStatus"] == "Training"
    assert site.nodes() == ["leased", "leased"]
    events: list[dict[str, Any]] = site.api.rest("/v1/training-jobs/running/events")["events"]
    assert not [event for event in events if "lost" in event["message"]]


@pytest.mark.parametrize("site", [4.0], indirect=True)
def test_after_a_longer_one_the_node_is_back_in_time_and_its_job_has_ended(site: Site) -> None:
    wait_until(lambda: site.nodes() == ["free", "free"], timeout=60)
    site.start("lost")
    site.until("lost", "Training", 60)
    site.network.cut()
    site.until("lost", "Failed", 60)
    assert site.nodes() == ["lost", "lost"]
    site.network.mend()
    for name in ("one", "two"):
        site.start(name)
    for name in ("one", "two"):
        site.until(name, "Training", 30)
