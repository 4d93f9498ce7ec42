"""Nodes, warm pools and the queue as pages, on a service whose agent reports over the real protocol."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.integration.core.driving import create, run_until, step_until, until_phase
from tests.integration.pools.test_life import until_pool, warm
from tests.support.api_process import ApiProcess
from tests.support.scripted_agent import ScriptedAgent
from tests.support.shown_service import csrf_of
from trainshed_worker.protocol import Phase


@pytest.fixture
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    api = ApiProcess(tmp_path_factory.mktemp("a home"))
    api.start()
    yield api
    api.kill()


@pytest.fixture
def agent(api: ApiProcess) -> Iterator[ScriptedAgent]:
    agent = ScriptedAgent(api.url, api.bootstrap.enrollment_token, slots=2)
    agent.enroll()
    agent.report().raise_for_status()
    yield agent
    agent.close()


@contextmanager
def enter(api: ApiProcess, token: str | None = None) -> Iterator[httpx.Client]:
    """A browser of whoever has this token; by default the administrator."""
    with httpx.Client(base_url=api.url, timeout=30, trust_env=False) as client:
        csrf = csrf_of(client.get("/login").text)
        answer = client.post("/login", data={"csrf": csrf, "token": token or api.token})
        assert answer.status_code == 303, answer.text
        yield client


def words_of(page: str) -> str:
    """The text of its main part."""
    main = page.partition("<main")[2].partition("</main>")[0]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", main.partition(">")[2]))


def test_a_warm_pool_is_shown_extended_and_ended_by_whom_it_belongs_to(api: ApiProcess, agent: ScriptedAgent) -> None:
    with enter(api) as person:
        assert "No instance is kept warm now" in person.get("/pools").text
        create(api, "first", 2, **warm(2, 600))
        until_phase([agent], Phase.RUNNING, 2)
        assert "2 × ml.c5.xlarge by first of admin , then warm for 10 min" in words_of(person.get("/pools").text)
        agent.exits = 0
        run_until(api, [agent], "first", "Completed")
        until_pool(api, [agent], "first", "Available")
        listed = person.get("/pools").text
        assert "Last used by first of admin" in words_of(listed) and 'href="/pools/first"' in listed
        nodes = words_of(person.get("/nodes").text)
        assert "2 nodes 2 warm" in nodes and nodes.count("last used by first") == 2
        page = person.get("/pools/first").text
        assert '"InstanceCount": 2' in re.sub("&#34;", '"', page) and "KeepAlivePeriodInSeconds=900" in page
        ran = words_of(person.get(f"/nodes/{api.rest('/v1/nodes')['nodes'][0]['id']}").text)
        assert re.search(r"Jobs that ran here first Completed algo-[12]", ran)
        until = api.rest("/v1/pools")["pools"][0]["until"]
        form = {"csrf": csrf_of(page), "seconds": "3000"}
        assert person.post("/pools/first/extend", data={**form, "csrf": "x"}).status_code == 403
        assert person.post("/pools/first/extend", data={**form, "seconds": "-1"}).status_code == 400
        assert api.rest("/v1/pools")["pools"][0]["until"] == until
        assert person.post("/pools/first/extend", data=form).headers["location"] == "/pools/first"
        assert api.rest("/v1/pools")["pools"][0]["until"] > until + 1000
        api.call("POST", "/v1/users", {"name": "ann"})
        token = api.call("POST", "/v1/users/ann/tokens", {"name": "t"}).json()["token"]
        with enter(api, token) as other:
            seen = other.get("/pools").text
            assert "a job of another user" in seen and "first" not in words_of(seen)
            assert other.get("/pools/first").status_code == 404
            others = {"csrf": csrf_of(other.get("/pools").text)}
            assert other.post("/pools/first/end", data=others).status_code in (400, 403, 404)
            assert len(api.rest("/v1/pools")["pools"]) == 1
            node = api.rest("/v1/nodes")["nodes"][0]["id"]
            seen = words_of(other.get(f"/nodes/{node}").text)
            assert "Drain" not in seen and "No job has run" in seen  # that it may know of
            assert other.post(f"/nodes/{node}/drain", data=others).status_code == 403
        assert person.post("/pools/first/end", data=form).headers["location"] == "/pools"
        assert "No instance is kept warm now" in person.get("/pools").text
        gone = person.get("/pools/first")
        assert gone.status_code == 404 and "no warm pool of first any more" in gone.text


def test_a_node_is_drained_and_taken_back_from_its_page(api: ApiProcess, agent: ScriptedAgent) -> None:
    node = api.rest("/v1/nodes")["nodes"][0]["id"]
    with enter(api) as person:
        path = f"/nodes/{node}"
        page = person.get(path).text
        assert person.post(f"{path}/drain", data={"csrf": "x"}).status_code == 403
        assert person.post(f"{path}/drain", data={"csrf": csrf_of(page)}).headers["location"] == path
        page = person.get(path).text
        assert "node.draining" in page and "as admin wants it" in page and "takes no new job" in page
        assert "1 draining" in words_of(person.get("/nodes").text)
        assert api.rest("/v1/nodes")["nodes"][0]["drainingSince"]
        assert person.post(f"{path}/undrain", data={"csrf": csrf_of(page)}).status_code == 303
        assert api.rest("/v1/nodes")["nodes"][0]["drainingSince"] is None
        assert "draining" not in words_of(person.get("/nodes").text)
        assert person.get("/nodes/absent").status_code == 404


def test_the_queue_is_in_order_paged_and_says_until_when_others_run(api: ApiProcess, agent: ScriptedAgent) -> None:
    with enter(api) as person:
        assert "No job waits" in person.get("/queue").text and "No job holds instances" in person.get("/queue").text
        create(api, "runs", 2)
        until_phase([agent], Phase.RUNNING, 2)
        names = [f"w-{number:02}" for number in range(53)]
        for name in names:
            create(api, name)
        step_until([agent], lambda: api.rest("/v1/queue")["total"] == 53, what="all wait")
        first, second = person.get("/queue").text, person.get("/queue?page=2").text
        assert re.findall(r'href="/jobs/(w-\d+)"', first) == names[:50]
        assert re.findall(r'href="/jobs/(w-\d+)"', second) == names[50:]
        assert "needs 1 × ml.c5.xlarge; 0 free, 2 busy" in words_of(first)
        assert "Page 2 of 2" in words_of(second) and 'href="/queue?page=1"' in second
        assert re.search(r"Training runs admin 2 × ml.c5.xlarge .* not known \d{4}-", words_of(first))
        assert person.get("/queue?page=99").text.count("/jobs/w-") == 3  # the last one there is
        rest = api.rest("/v1/queue?limit=2&offset=51")
        assert [row["name"] for row in rest["jobs"]] == names[51:] and rest["jobs"][0]["queuePosition"] == 51
