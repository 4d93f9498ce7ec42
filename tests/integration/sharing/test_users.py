"""Users, keys and tokens over REST: who may do what with them, and what ends with them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.integration.sharing.conftest import Person, Sharing, error_of
from tests.support.shown_service import log_in
from trainshed_service.store.tables import events


def refused_key(person: Person) -> bool:
    """Whether the person's key is off by now (a second after it was, at most)."""
    try:
        person.client("sts").get_caller_identity()
    except person.client("sts").exceptions.ClientError as error:
        assert error.response["Error"]["Code"] == "InvalidClientTokenId"
        return True
    return False


def test_a_new_user_works_at_once(sharing: Sharing) -> None:
    anna = sharing.person("anna.b@c")
    account = sharing.service.bootstrap.account_id
    identity = anna.client("sts").get_caller_identity()
    assert identity["Arn"] == f"arn:aws:iam::{account}:user/anna.b@c"
    assert anna.http.get("/v1/whoami").json()["isAdmin"] is False
    assert anna.client().list_training_jobs()["TrainingJobSummaries"] == []


def test_the_secret_is_told_once(sharing: Sharing) -> None:
    made = sharing.ask("POST", "/v1/users", {"name": "told-once"}, 201)
    secret = made["accessKey"]["secretAccessKey"]
    more = sharing.ask("POST", "/v1/users/told-once/access-keys", None, 201)["secretAccessKey"]
    token = sharing.ask("POST", "/v1/users/told-once/tokens", {"name": "t"}, 201)["token"]
    for path in ("/v1/users", "/v1/users/told-once", "/v1/users/told-once/access-keys", "/v1/users/told-once/tokens"):
        text = sharing.admin.get(path).text
        assert not any(each in text for each in (secret, more, token))
    assert len(sharing.ask("GET", "/v1/users/told-once")["accessKeys"]) == 2


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "'name' must be given"),
        ({"name": "a b"}, "'a b' is no user name: 1 to 64 of the characters"),
        ({"name": "a~1"}, "is no user name"),
        ({"name": ""}, "is no user name"),
        ({"name": "x" * 65}, "'name': string should have at most 64 characters"),
        ({"name": "x", "isAdmin": "yes"}, "'isAdmin': input should be a valid boolean"),
        ({"name": "x", "admin": True}, "'admin' is not a member of this request (known are: name, isAdmin, mayPass)"),
        ({"name": "x", "mayPass": "R"}, "'mayPass': input should be a valid list"),
    ],
)
def test_what_is_wrong_is_said_in_words(sharing: Sharing, body: dict[str, Any], words: str) -> None:
    answer = sharing.ask("POST", "/v1/users", body, 400)
    assert answer["code"] == "ValidationException"
    assert words in answer["message"]


def test_names_and_roles_must_be_free_and_there(sharing: Sharing) -> None:
    sharing.person("twice")
    assert sharing.ask("POST", "/v1/users", {"name": "twice"}, 409)["code"] == "EntityAlreadyExists"
    answer = sharing.ask("POST", "/v1/users", {"name": "roleless", "mayPass": ["nowhere"]}, 404)
    assert answer == {"code": "NoSuchEntity", "message": "The role with name nowhere cannot be found."}
    assert sharing.ask("GET", "/v1/users/roleless", None, 404)["code"] == "NoSuchEntity"  # nothing was stored


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/users", None),
        ("POST", "/v1/users", {"name": "mine", "isAdmin": True}),
        ("GET", "/v1/users/admin", None),
        ("PATCH", "/v1/users/{me}", {"isAdmin": True}),
        ("PATCH", "/v1/users/{me}", {"anyRole": True}),
        ("DELETE", "/v1/users/{me}", None),
        ("GET", "/v1/users/admin/access-keys", None),
        ("POST", "/v1/users/admin/access-keys", None),
        ("POST", "/v1/users/{me}/access-keys", None),
        ("PATCH", "/v1/access-keys/{admin_key}", {"active": False}),
        ("DELETE", "/v1/access-keys/{admin_key}", None),
        ("POST", "/v1/users/admin/tokens", {"name": "t"}),
        ("DELETE", "/v1/tokens/0123456789abcdef", None),
        ("POST", "/v1/roles", {"name": "mine"}),
        ("DELETE", "/v1/roles/TrainshedExecutionRole", None),
        ("PUT", "/v1/quotas", {"all": True, "instances": 1000}),
        ("DELETE", "/v1/quotas?all=true", None),
    ],
)
def test_what_only_administrators_may(sharing: Sharing, method: str, path: str, body: Any) -> None:
    ben = sharing.person()
    filled = path.format(me=ben.name, admin_key=sharing.service.bootstrap.admin.access_key_id)
    answer = ben.http.request(method, filled, json=body)
    assert (answer.status_code, answer.json()["code"]) == (403, "AccessDeniedException"), answer.text
    assert f"user/{ben.name} is none" in answer.json()["message"]


def test_everybody_may_look_at_oneself(sharing: Sharing) -> None:
    ben = sharing.person(mayPass=[sharing.service.bootstrap.role_arn])
    shown = ben.http.get(f"/v1/users/{ben.name}").json()
    assert shown["mayPass"] == [sharing.service.bootstrap.role_arn]
    assert [key["accessKeyId"] for key in shown["accessKeys"]] == [ben.key]
    assert ben.http.get(f"/v1/users/{ben.name}/access-keys").status_code == 200
    assert [each["name"] for each in ben.http.get(f"/v1/users/{ben.name}/tokens").json()["tokens"]] == ["test"]


def test_a_key_is_switched_off_and_on(sharing: Sharing) -> None:
    ben = sharing.person()
    with sharing.service.browser() as browser:
        assert log_in(browser, key=ben.key, secret=ben.secret).status_code == 303
        assert browser.get("/jobs").status_code == 200
        sharing.ask("PATCH", f"/v1/access-keys/{ben.key}", {"active": False})
        assert refused_key(ben)  # at once: the process that changed it has forgotten it
        assert browser.get("/jobs").status_code == 303  # the session that it opened ended
        sharing.ask("PATCH", f"/v1/access-keys/{ben.key}", {"active": True})
        assert not refused_key(ben)
        assert browser.get("/jobs").status_code == 303


def test_a_key_is_rotated(sharing: Sharing) -> None:
    ben = sharing.person()
    second = sharing.ask("POST", f"/v1/users/{ben.name}/access-keys")
    after = Person(ben.name, ben.url, second["accessKeyId"], second["secretAccessKey"], ben.http)
    assert not refused_key(after)
    sharing.ask("DELETE", f"/v1/access-keys/{ben.key}")
    assert refused_key(ben)
    assert not refused_key(after)
    assert sharing.ask("PATCH", f"/v1/access-keys/{ben.key}", {"active": True}, 404)["code"] == "NoSuchEntity"


def test_a_user_has_at_most_ten_keys(sharing: Sharing) -> None:
    ben = sharing.person()
    for _ in range(9):
        sharing.ask("POST", f"/v1/users/{ben.name}/access-keys", None, 201)
    assert sharing.ask("POST", f"/v1/users/{ben.name}/access-keys", None, 409)["code"] == "LimitExceeded"


def test_a_token_is_revoked_with_the_session_that_it_opened(sharing: Sharing) -> None:
    ben = sharing.person()
    token = sharing.ask("POST", f"/v1/users/{ben.name}/tokens", {"name": "laptop", "expiresInDays": 7})
    assert token["expiresAt"] is not None
    with sharing.service.browser() as browser:
        assert log_in(browser, token=token["token"]).status_code == 303
        (laptop,) = [
            each for each in sharing.ask("GET", f"/v1/users/{ben.name}/tokens")["tokens"] if each["name"] == "laptop"
        ]
        sharing.ask("DELETE", f"/v1/tokens/{laptop['id']}")
        assert browser.get("/jobs").status_code == 303
    headers = {"Authorization": f"Bearer {token['token']}"}
    assert httpx.get(f"{sharing.service.url}/v1/whoami", headers=headers, trust_env=False).status_code == 401
    assert ben.http.get("/v1/whoami").status_code == 200  # the other one goes on


def test_the_key_of_a_user_may_not_be_named_like_a_session(sharing: Sharing) -> None:
    answer = sharing.ask("POST", "/v1/users/admin/tokens", {"name": "session:x"}, 400)
    assert "The name of a token" in answer["message"]


def test_a_user_leaves_and_its_jobs_stay(sharing: Sharing) -> None:
    role = sharing.service.bootstrap.role_arn
    carl = sharing.person("carl", mayPass=[role])
    job = sharing.place("carl")
    waiting = sharing.request()
    carl.client().create_training_job(**waiting)
    sharing.ask("PUT", "/v1/quotas", {"user": "carl", "instances": 50})
    with sharing.service.browser() as browser:
        assert log_in(browser, key=carl.key, secret=carl.secret).status_code == 303
        assert sharing.ask("DELETE", "/v1/users/carl") == {"name": "carl", "activeJobs": 2}
        assert browser.get("/jobs").status_code == 303
    assert refused_key(carl)
    assert carl.http.get("/v1/whoami").status_code == 401
    for name in (job, waiting["TrainingJobName"]):
        shown = sharing.admin.get(f"/v1/training-jobs/{name}").json()
        assert (shown["User"], shown["TrainingJobStatus"]) == ("carl (deleted)", "InProgress")
    assert "carl" not in [each["name"] for each in sharing.ask("GET", "/v1/users")["users"]]
    assert not [each for each in sharing.ask("GET", "/v1/quotas")["quotas"] if each["subject"] == "carl"]
    assert sharing.ask("DELETE", "/v1/users/carl", None, 404)["code"] == "NoSuchEntity"
    # Somebody else gets the name, and nothing else of it.
    again = sharing.person("carl", mayPass=[role])
    assert again.client().list_training_jobs()["TrainingJobSummaries"] == []
    assert error_of(again.client().describe_training_job, TrainingJobName=job)[1] == "Requested resource not found."
    sharing.client().stop_training_job(TrainingJobName=waiting["TrainingJobName"])


def test_the_last_administrator_stays(sharing: Sharing) -> None:
    answer = sharing.ask("DELETE", "/v1/users/admin", None, 409)
    assert "the installation's own administrator" in answer["message"]
    assert sharing.ask("PATCH", "/v1/users/admin", {"isAdmin": False}, 409)["code"] == "DeleteConflict"
    assert sharing.admin.get("/v1/whoami").json()["isAdmin"] is True


def test_a_second_administrator_comes_and_goes(sharing: Sharing) -> None:
    dora = sharing.person(isAdmin=True)
    job = sharing.place("admin")
    assert dora.client().describe_training_job(TrainingJobName=job)["TrainingJobName"] == job
    assert dora.http.get("/v1/users").status_code == 200
    sharing.ask("PATCH", f"/v1/users/{dora.name}", {"isAdmin": False})
    assert dora.http.get("/v1/users").status_code == 403
    assert error_of(dora.client().describe_training_job, TrainingJobName=job)[1] == "Requested resource not found."


def test_changes_are_told_as_events(sharing: Sharing) -> None:
    ben = sharing.person()
    sharing.ask("PATCH", f"/v1/users/{ben.name}", {"isAdmin": True})
    sharing.ask("DELETE", f"/v1/users/{ben.name}")
    rows = sharing.service.control.read_sync(
        lambda session: session.execute(
            events.select().where(events.c.subject == f"user/{ben.name}").order_by(events.c.id)
        ).all()
    )
    assert [row.kind for row in rows] == ["user.created", "token.created", "user.changed", "user.deleted"]
    assert rows[2].data == {"by": "admin", "change": {"isAdmin": True}}
    assert ben.secret not in str([row.data for row in rows])
