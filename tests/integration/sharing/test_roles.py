"""Which roles a user may run jobs in, with roles that must be known and with open ones; what IAM answers about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.integration.core.conftest import start_api
from tests.integration.sharing.conftest import Person, Sharing, error_of
from tests.support.api_process import ApiProcess
from trainshed_service.clock import SystemClock
from trainshed_service.identity import IdentityService
from trainshed_service.store import Database
from trainshed_service.store.models import User

__all__ = ["start_api"]
FOREIGN = "arn:aws:iam::999988887777:role/service-role/AmazonSageMaker-ExecutionRole"


def not_authorized(person_arn: str, role: str) -> tuple[str, str]:
    return (
        "AccessDeniedException",
        f"User: {person_arn} is not authorized to perform: iam:PassRole on resource: {role} because no identity-based "
        "policy allows the iam:PassRole action",
    )


def test_known_roles(sharing: Sharing) -> None:
    blue = sharing.ask("POST", "/v1/roles", {"name": "blue"}, 201)["arn"]
    account = sharing.service.bootstrap.account_id
    assert blue == f"arn:aws:iam::{account}:role/blue"
    anna = sharing.person(mayPass=["blue"])
    arn = f"arn:aws:iam::{account}:user/{anna.name}"
    anna.client().create_training_job(**sharing.request(RoleArn=blue))
    other = sharing.service.bootstrap.role_arn
    assert error_of(anna.client().create_training_job, **sharing.request(RoleArn=other)) == not_authorized(arn, other)
    dry = anna.http.post("/v1/training-jobs?dryRun=true", json=sharing.request(RoleArn=other)).json()
    assert dry["refusals"] == [dict(zip(("code", "message"), not_authorized(arn, other), strict=True))]
    code, message = error_of(anna.client().create_training_job, **sharing.request(RoleArn=FOREIGN))
    assert code == "ValidationException"
    assert message.startswith(f"Could not assume role {FOREIGN}. Please ensure that the role exists")
    sharing.client().create_training_job(**sharing.request(RoleArn=blue))  # an administrator may, of course


def test_a_list_is_changed(sharing: Sharing) -> None:
    role = sharing.service.bootstrap.role_arn
    ben = sharing.person()  # with known roles a user without a list may pass none
    assert error_of(ben.client().create_training_job, **sharing.request())[0] == "AccessDeniedException"
    assert sharing.ask("PATCH", f"/v1/users/{ben.name}", {"allow": ["TrainshedExecutionRole"]})["mayPass"] == [role]
    ben.client().create_training_job(**sharing.request())
    assert sharing.ask("PATCH", f"/v1/users/{ben.name}", {"deny": [role]})["mayPass"] == []
    assert error_of(ben.client().create_training_job, **sharing.request())[0] == "AccessDeniedException"
    assert sharing.ask("GET", "/v1/users/nobody", None, 404)["code"] == "NoSuchEntity"


def test_what_iam_says_agrees(sharing: Sharing) -> None:
    green = sharing.ask("POST", "/v1/roles", {"name": "green"})["arn"]
    anna = sharing.person(mayPass=["green"])
    iam, account = anna.client("iam"), sharing.service.bootstrap.account_id
    assert iam.get_role(RoleName="green")["Role"]["Arn"] == green
    code, message = error_of(iam.get_role, RoleName="TrainshedExecutionRole")
    assert code == "AccessDenied"
    assert "is not authorized to perform: iam:GetRole on resource: " in message
    assert [role["RoleName"] for role in iam.list_roles()["Roles"]] == ["green"]
    assert [role["name"] for role in anna.http.get("/v1/roles").json()["roles"]] == ["green"]
    assert anna.http.get("/v1/roles/TrainshedExecutionRole").status_code == 404
    me = f"arn:aws:iam::{account}:user/{anna.name}"
    asked = {"ActionNames": ["iam:PassRole"], "ResourceArns": [green, sharing.service.bootstrap.role_arn]}
    for client in (iam, sharing.client("iam")):
        results = client.simulate_principal_policy(PolicySourceArn=me, **asked)["EvaluationResults"]
        assert [result["EvalDecision"] for result in results] == ["allowed", "implicitDeny"]
    as_role = iam.simulate_principal_policy(PolicySourceArn=green, ActionNames=["s3:PutObject"])
    assert as_role["EvaluationResults"][0]["EvalDecision"] == "allowed"
    other = {"ActionNames": ["s3:PutObject"]}
    for source in (sharing.service.bootstrap.role_arn, f"arn:aws:iam::{account}:user/admin"):
        assert error_of(iam.simulate_principal_policy, PolicySourceArn=source, **other)[0] == "AccessDenied"


def test_roles_come_and_go(sharing: Sharing) -> None:
    made = sharing.ask("POST", "/v1/roles", {"name": FOREIGN.replace("Execution", "Other")}, 201)
    assert made["name"] == "AmazonSageMaker-OtherRole"
    for name in (made["name"], made["arn"]):
        assert sharing.ask("GET", f"/v1/roles/{name}")["arn"] == made["arn"]
    assert sharing.ask("POST", "/v1/roles", {"name": made["arn"]}, 409)["code"] == "EntityAlreadyExists"
    assert sharing.ask("POST", "/v1/roles", {"name": "a b"}, 400)["code"] == "ValidationException"
    assert sharing.ask("POST", "/v1/roles", {"name": "arn:aws:iam::1:user/x"}, 400)["code"] == "ValidationException"
    anna = sharing.person(mayPass=[made["arn"]])
    assert sharing.ask("GET", f"/v1/roles/{made['name']}")["allowedUsers"] == [anna.name]
    assert sharing.ask("DELETE", f"/v1/roles/{made['name']}") == {"arn": made["arn"]}
    assert sharing.ask("DELETE", f"/v1/roles/{made['name']}", None, 404)["code"] == "NoSuchEntity"
    assert sharing.ask("GET", f"/v1/users/{anna.name}")["mayPass"] == []
    code, message = error_of(anna.client().create_training_job, **sharing.request(RoleArn=made["arn"]))
    assert (code, message[:21]) == ("ValidationException", "Could not assume role")


def test_a_role_in_use_stays(sharing: Sharing) -> None:
    arn = sharing.ask("POST", "/v1/roles", {"name": "busy"})["arn"]
    request = sharing.request(RoleArn=arn)
    sharing.client().create_training_job(**request)
    answer = sharing.ask("DELETE", "/v1/roles/busy", None, 409)
    assert answer["code"] == "DeleteConflict"
    assert f"jobs that have not ended {request['TrainingJobName']} use it" in answer["message"]
    sharing.client().stop_training_job(TrainingJobName=request["TrainingJobName"])
    sharing.ask("PUT", "/v1/quotas", {"role": "busy", "instances": 1})
    assert "quotas for the types *" in sharing.ask("DELETE", "/v1/roles/busy", None, 409)["message"]
    sharing.ask("DELETE", "/v1/quotas?role=busy")
    sharing.ask("DELETE", "/v1/roles/busy")
    assert error_of(sharing.client().create_training_job, **sharing.request(RoleArn=arn))[0] == "ValidationException"
    own = sharing.ask("DELETE", "/v1/roles/TrainshedExecutionRole", None, 409)
    assert "the installation's own role" in own["message"]


class OpenApi:
    """An API process with open roles, and users made in its database."""

    def __init__(self, api: ApiProcess) -> None:
        self.api = api
        self.database = Database(api.settings.resolved_database_url)
        self.identity = IdentityService(api.home, SystemClock())

    def person(self, name: str, *allowed: str) -> Any:
        def make(session: Any) -> Any:
            user = self.identity.create_user(session, name)
            if allowed:
                self.identity.users.allow(session, user, allowed)
            return self.identity.create_access_key(session, user.id)

        key = self.database.write_sync(make)
        return Person(name, self.api.url, key.access_key_id, key.secret_access_key, httpx.Client())

    def request(self, name: str, role: str) -> dict[str, Any]:
        return {
            "TrainingJobName": name,
            "RoleArn": role,
            "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
            "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
            "ResourceConfig": {"InstanceType": "ml.c5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        }


@pytest.fixture
def open_api(start_api: Callable[..., ApiProcess]) -> Iterator[OpenApi]:
    made = OpenApi(start_api(roles="open"))
    yield made
    made.database.close()


def test_open_roles(open_api: OpenApi) -> None:
    listed = open_api.api.bootstrap.role_arn
    free, bound = open_api.person("free"), open_api.person("bound", listed)
    free.client().create_training_job(**open_api.request("of-free", FOREIGN))
    bound.client().create_training_job(**open_api.request("of-bound", listed))
    arn = f"arn:aws:iam::{open_api.api.bootstrap.account_id}:user/bound"
    for role in (FOREIGN, FOREIGN + "-new"):
        refused = error_of(bound.client().create_training_job, **open_api.request("refused", role))
        assert refused == not_authorized(arn, role)
    # What was refused has not come to be by being named.
    names = [role["Arn"] for role in open_api.api.client("iam").list_roles()["Roles"]]
    assert sorted(names) == sorted([FOREIGN, listed])
    assert error_of(bound.client("iam").get_role, RoleName="made-up")[0] == "NoSuchEntity"
    assert free.client("iam").get_role(RoleName="made-up")["Role"]["RoleName"] == "made-up"


def test_a_list_that_became_empty_still_holds(open_api: OpenApi) -> None:
    listed = open_api.api.bootstrap.role_arn
    bound = open_api.person("bound", listed)

    def change(session: Any, lifted: bool) -> None:
        user: User = open_api.identity.users.find(session, "bound")
        if lifted:
            open_api.identity.users.restrict(session, user, False)
        else:
            open_api.identity.users.deny(session, user, [listed])

    open_api.database.write_sync(lambda session: change(session, False))
    code, _ = error_of(bound.client().create_training_job, **open_api.request("refused", listed))
    assert code == "AccessDeniedException"
    open_api.database.write_sync(lambda session: change(session, True))
    bound.client().create_training_job(**open_api.request("admitted", FOREIGN))
