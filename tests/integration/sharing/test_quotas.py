"""Quotas over REST and at create: hard ones hold exactly under concurrency, soft ones let the job wait."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.integration.sharing.conftest import Person, Sharing, error_of
from trainshed_service.store.tables import quota_holdings

TYPE = "ml.m5.xlarge"


@pytest.fixture
def anna(sharing: Sharing) -> Iterator[Person]:
    """A user who may pass the role; every quota is taken away after the test."""
    yield sharing.person(mayPass=[sharing.service.bootstrap.role_arn])
    for each in sharing.ask("GET", "/v1/quotas")["quotas"]:
        whose = "all=true" if each["subjectKind"] == "all" else f"{each['subjectKind']}={each['subject']}"
        sharing.ask("DELETE", f"/v1/quotas?{whose}&instanceType={each['instanceType']}")


def create(sharing: Sharing, person: Any, count: int = 1, kind: str = TYPE, **more: Any) -> str:
    resources = {"InstanceType": kind, "InstanceCount": count, "VolumeSizeInGB": 1}
    request = sharing.request(ResourceConfig=resources, **more)
    person.client().create_training_job(**request)
    return str(request["TrainingJobName"])


def limit(what: str, most: int, used: int, asked: int) -> str:
    return (
        f"The account-level service limit '{what} for training job usage' is {most} Instances, with current "
        f"utilization of {used} Instances and a request delta of {asked} Instances. Please contact"
    )


def refusal(sharing: Sharing, person: Any, count: int = 1, kind: str = TYPE) -> str:
    with pytest.raises(ClientError) as caught:
        create(sharing, person, count, kind)
    error = caught.value.response["Error"]
    assert error["Code"] == "ResourceLimitExceeded"
    return str(error["Message"])


def test_of_creates_at_once_exactly_as_many_are_let_in_as_fit(sharing: Sharing, anna: Person) -> None:
    sharing.ask("PUT", "/v1/quotas", {"user": anna.name, "instanceType": TYPE, "instances": 10, "hard": True})
    anna.client()

    def attempt(_: int) -> str | None:
        try:
            return create(sharing, anna, 2)
        except ClientError as error:
            assert error.response["Error"]["Code"] == "ResourceLimitExceeded"
            return None

    with ThreadPoolExecutor(16) as threads:
        let_in = [name for name in threads.map(attempt, range(16)) if name is not None]
    assert len(let_in) == 5
    assert refusal(sharing, anna, 1).startswith(limit(TYPE, 10, 10, 1))
    # Another type, another user: not concerned.
    create(sharing, anna, 5, "ml.c5.xlarge")
    create(sharing, sharing.person(mayPass=[sharing.service.bootstrap.role_arn]), 5)
    # A job that ends makes room.
    anna.client().stop_training_job(TrainingJobName=let_in[0])
    assert refusal(sharing, anna, 3).startswith(limit(TYPE, 10, 8, 3))
    create(sharing, anna, 2)


def test_a_quota_of_nothing_refuses_a_type_altogether(sharing: Sharing, anna: Person) -> None:
    kind = "ml.m5.2xlarge"
    sharing.ask("PUT", "/v1/quotas", {"all": True, "instanceType": kind, "instances": 0, "hard": True})
    for person in (anna, sharing):
        message = refusal(sharing, person, kind=kind)
        assert message.startswith(limit(kind, 0, 0, 1))
        assert "(It is the hard quota of everybody together; `trainshed quota list` shows all.)" in message
    sharing.ask("DELETE", f"/v1/quotas?all=true&instanceType={kind}")
    create(sharing, anna, kind=kind)


def test_dry_run_tells_the_same(sharing: Sharing, anna: Person) -> None:
    sharing.ask("PUT", "/v1/quotas", {"user": anna.name, "instances": 2, "hard": True})
    request = sharing.request(hosts=3)
    told = anna.http.post("/v1/training-jobs?dryRun=true", json=request).json()
    code, message = error_of(anna.client().create_training_job, **request)
    assert told == {"valid": False, "refusals": [{"code": code, "message": message}]}
    assert message.startswith(limit("all instance types", 2, 0, 3))
    assert anna.http.post("/v1/training-jobs?dryRun=true", json=sharing.request(hosts=2)).json()["valid"] is True


def test_jobs_from_before_the_quota_count(sharing: Sharing, anna: Person) -> None:
    before = create(sharing, anna, 3)
    sharing.ask("PUT", "/v1/quotas", {"user": anna.name, "instanceType": TYPE, "instances": 4, "hard": True})
    assert refusal(sharing, anna, 2).startswith(limit(TYPE, 4, 3, 2))
    create(sharing, anna, 1)
    anna.client().stop_training_job(TrainingJobName=before)
    create(sharing, anna, 3)


def test_a_quota_of_a_role(sharing: Sharing, anna: Person) -> None:
    narrow = sharing.ask("POST", "/v1/roles", {"name": f"narrow-{anna.name}"})["arn"]
    sharing.ask("PUT", "/v1/quotas", {"role": narrow, "instances": 1, "hard": True})
    other = sharing.person(mayPass=[narrow])
    create(sharing, other, RoleArn=narrow)
    message = error_of(sharing.client().create_training_job, **sharing.request(RoleArn=narrow))
    assert message[0] == "ResourceLimitExceeded"
    assert f"the hard quota of role {narrow}" in message[1]
    create(sharing, anna)


def test_a_heterogeneous_cluster_counts_each_of_its_types(sharing: Sharing, anna: Person) -> None:
    sharing.ask("PUT", "/v1/quotas", {"user": anna.name, "instanceType": TYPE, "instances": 2, "hard": True})
    groups = [
        {"InstanceGroupName": "a", "InstanceType": TYPE, "InstanceCount": 3},
        {"InstanceGroupName": "b", "InstanceType": "ml.c5.xlarge", "InstanceCount": 5},
    ]
    request = sharing.request(ResourceConfig={"InstanceGroups": groups, "VolumeSizeInGB": 1})
    code, message = error_of(anna.client().create_training_job, **request)
    assert code == "ResourceLimitExceeded"
    assert message.startswith(limit(TYPE, 2, 0, 3))
    for kind, instances in ((TYPE, 4), ("ml.c5.xlarge", 12), ("*", 30)):
        sharing.ask(
            "PUT", "/v1/quotas", {"user": anna.name, "instanceType": kind, "instances": instances, "hard": True}
        )
    anna.client().create_training_job(**request)
    shown = sharing.ask("GET", f"/v1/quotas?user={anna.name}")["quotas"]
    assert {each["instanceType"]: each["used"] for each in shown} == {TYPE: 3, "ml.c5.xlarge": 5, "*": 8}
    request["TrainingJobName"] += "-again"
    code, message = error_of(anna.client().create_training_job, **request)
    assert (code, message.startswith(limit(TYPE, 4, 3, 3))) == ("ResourceLimitExceeded", True)
    create(sharing, anna, 7, "ml.c5.xlarge")
    code, message = error_of(anna.client().create_training_job, **sharing.request())
    assert code == "ResourceLimitExceeded" and message.startswith(limit("ml.c5.xlarge", 12, 12, 1))


def test_a_soft_quota_refuses_nothing(sharing: Sharing, anna: Person) -> None:
    sharing.ask("PUT", "/v1/quotas", {"user": anna.name, "instances": 1})
    name = create(sharing, anna, 4)
    assert anna.client().describe_training_job(TrainingJobName=name)["TrainingJobStatus"] == "InProgress"


def test_what_is_used_is_shown(sharing: Sharing, anna: Person) -> None:
    create(sharing, anna, 2)
    create(sharing, anna, 3, "ml.c5.xlarge")
    sharing.place(anna.name, hosts=2)  # ml.c5.xlarge, and it trains
    for body in (
        {"instanceType": TYPE, "instances": 9, "hard": True},
        {"instances": 20, "hard": True, "warmInstances": 4},
        {"instanceType": "ml.c5.xlarge", "instances": 9},
    ):
        sharing.ask("PUT", "/v1/quotas", {"user": anna.name, **body})
    shown = sharing.ask("GET", f"/v1/quotas?user={anna.name}")["quotas"]
    assert [(each["instanceType"], each["used"], each["hard"]) for each in shown] == [
        ("*", 7, True),
        ("ml.c5.xlarge", 2, False),  # a soft one counts what runs
        (TYPE, 2, True),
    ]
    assert (shown[0]["warmInstances"], shown[0]["warmUsed"]) == (4, 0)
    sharing.ask("PUT", "/v1/quotas", {"all": True, "instances": 1000})
    mine = anna.http.get("/v1/quotas").json()["quotas"]
    assert {each["subject"] for each in mine} == {"*", anna.name}
    ben = sharing.person()
    assert {each["subject"] for each in ben.http.get("/v1/quotas").json()["quotas"]} == {"*"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"instances": 1}, "Give exactly one of 'user', 'role' and 'all'"),
        ({"all": True, "user": "admin", "instances": 1}, "Give exactly one of 'user', 'role' and 'all'"),
        ({"all": True}, "Give 'instances' or 'warmInstances'"),
        ({"all": True, "warmInstances": 1, "hard": True}, "'hard' is about 'instances'"),
        ({"all": True, "instances": -1}, "'instances': input should be greater than or equal to 0"),
        ({"all": True, "instances": 1, "instanceType": "ml.none"}, "'ml.none' is not an instance type"),
        ({"all": True, "instances": 1, "kind": "hard"}, "'kind' is not a member of this request"),
    ],
)
def test_what_is_wrong_is_said(sharing: Sharing, body: dict[str, Any], words: str) -> None:
    assert words in sharing.ask("PUT", "/v1/quotas", body, 400)["message"]


def test_subjects_must_exist(sharing: Sharing) -> None:
    for body in ({"user": "nobody"}, {"role": "nothing"}):
        assert sharing.ask("PUT", "/v1/quotas", {**body, "instances": 1}, 404)["code"] == "NoSuchEntity"
    answer = sharing.ask("DELETE", "/v1/quotas?user=admin", None, 404)
    assert answer["message"] == "There is no quota of user admin for *."


def test_without_hard_quotas_nothing_is_counted(sharing: Sharing, anna: Person) -> None:
    def rows() -> int:
        return len(sharing.service.control.read_sync(lambda session: session.execute(quota_holdings.select()).all()))

    create(sharing, anna)
    assert rows() == 0
    sharing.ask("PUT", "/v1/quotas", {"user": anna.name, "instances": 5, "hard": True})
    assert rows() > 0
    sharing.ask("PUT", "/v1/quotas", {"user": anna.name, "instances": 5, "hard": False})
    assert rows() == 0
