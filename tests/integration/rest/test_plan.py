"""`GET /v1/plan`: the same planner as the command line's, with this installation's instance types."""

from __future__ import annotations

import httpx

from tests.integration.rest.conftest import Rest


def test_a_plan_over_rest(rest: Rest) -> None:
    asked = {"params": "30B", "instance": "ml.p4d.24xlarge", "count": "32", "flash": "true"}
    plan = rest.http.get("/v1/plan", params=asked)
    assert plan.status_code == 200, plan.text
    assert plan.json()["recommendedDegree"] == 128
    assert plan.json()["model"]["stateBytes"] == 600_000_000_000
    assert [each["degree"] for each in plan.json()["degrees"]] == [1, 2, 4, 8, 16, 32, 64, 128, 256]


def test_a_type_without_accelerators_takes_the_memory_that_the_service_knows(rest: Rest) -> None:
    plan = rest.http.get("/v1/plan", params={"params": "100M", "instance": "ml.c5.4xlarge", "precision": "fp32"})
    assert plan.json()["cluster"]["deviceMemoryBytes"] == 32 * 2**30
    assert plan.json()["degrees"][0]["step"] is None


def test_mistakes_are_named(rest: Rest) -> None:
    asked = {"params": "30B", "instance": "ml.p4d.24xlarge"}
    for more, words in (
        ({"count": "-3"}, "count is a whole number"),
        ({"offload": "maybe"}, "offload is true or false"),
        ({"degree": "3"}, "use 1, 2 or 4"),
        ({"cuont": "3"}, "Unknown query parameters: 'cuont'"),
        ({"params": "1e999"}, "params"),
        ({"utilisation": "nan"}, "utilisation"),
        ({"count": "9" * 30}, "count is a whole number"),
    ):
        answer = rest.http.get("/v1/plan", params={**asked, **more})
        assert (answer.status_code, answer.json()["code"]) == (400, "ValidationException"), answer.text
        assert words in answer.json()["message"]
    assert "params is needed" in rest.http.get("/v1/plan").json()["message"]
    assert httpx.get(rest.service.url + "/v1/plan", params=asked).status_code == 401
