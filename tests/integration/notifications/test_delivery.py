"""What happens to jobs and pools reaches webhooks and mailboxes: through the real API, to real servers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tests.integration.core.driving import ROLE, create, run_until
from tests.integration.pools.test_life import until_pool, update, warm
from tests.support.api_process import ApiProcess
from tests.support.ports import free_port
from tests.support.receivers import MailServer, WebhookServer
from tests.support.scripted_agent import ScriptedAgent
from tests.support.wait import wait_until

Join = Callable[..., ScriptedAgent]


def add(api: ApiProcess, url: str, token: str | None = None, **options: Any) -> dict[str, Any]:
    answer = api.call("POST", "/v1/notification-targets", {"url": url, **options}, token=token)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def new_user(api: ApiProcess, name: str, may_pass: list[str]) -> str:
    """A user; its token."""
    assert api.call("POST", "/v1/users", {"name": name, "mayPass": may_pass}).status_code == 201
    token: str = api.call("POST", f"/v1/users/{name}/tokens", {"name": "t"}).json()["token"]
    return token


def target(api: ApiProcess, target_id: str) -> dict[str, Any]:
    return next(each for each in api.rest("/v1/notification-targets")["targets"] if each["id"] == target_id)


def test_jobs_and_pools_are_told_by_webhook_and_mail(start_api: Callable[..., ApiProcess], join: Join) -> None:
    api = start_api(notify_private_addresses=True)
    agent = join(api, slots=2)
    agent.exits = 0
    with WebhookServer() as everybody, WebhookServer() as of_anna, WebhookServer() as of_ben, MailServer() as post:
        add(api, everybody.url.replace("//", "//hook:pa55word@"))
        anna, ben = new_user(api, "anna", [ROLE.rpartition("/")[2]]), new_user(api, "ben", [])
        add(api, of_anna.url, token=anna)
        add(api, of_ben.url, token=ben)
        mail = add(api, post.url, on=["job.ended", "pool.expiring"])
        assert api.call("POST", f"/v1/notification-targets/{mail['id']}/test").json()["delivered"] is True
        create(api, "first", 2, **warm(2, seconds=16), Environment={"TOKEN": "hidden-from-bodies"})
        run_until(api, [agent], "first", "Completed")
        until_pool(api, [agent], "first", "Available")
        wait_until(lambda: len(everybody.bodies) == 3, what="job, available, expiring")
        update(api, "first", 0)
        wait_until(lambda: len(everybody.bodies) == 4 and len(of_anna.bodies) == 3, what="all have arrived")
        assert everybody.kinds() == ["Completed", "Available", "Expiring", "Ended"]
        assert of_anna.kinds() == ["Available", "Expiring", "Ended"], "the next person, who may pass the role"
        wait_until(lambda: len(post.mails) == 3, what="a test, the end of the job, the warning", timeout=60)
        assert of_ben.bodies == []

    job, available, expiring, ended = everybody.bodies
    assert job["detail-type"] == "SageMaker Training Job State Change"
    assert job["source"] == "aws.sagemaker" and job["account"] == "123456789012"
    assert job["resources"] == [job["detail"]["TrainingJobArn"]]
    assert job["detail"]["ResourceConfig"]["InstanceCount"] == 2
    assert job["detail"]["SecondaryStatusTransitions"][-1]["Status"] == "Completed"
    assert "hidden-from-bodies" not in str(everybody.bodies)
    assert available["detail"]["Trainshed"]["Commands"]["End"] == "trainshed keep-alive first 0"
    assert ended["detail"]["Reason"] == "its keep-alive period was set to 0"
    assert everybody.headers[0]["authorization"].startswith("Basic ")
    assert len({body["id"] for body in everybody.bodies}) == 4
    assert available["id"] == of_anna.bodies[0]["id"]
    assert "first" not in str(of_anna.bodies), "whose job it was is not anna's to know"
    assert of_anna.bodies[1]["detail"]["InstanceCount"] == 2
    assert expiring["detail"]["SecondsLeft"] <= 8
    subjects = [str(each["subject"]) for each in post.mails]
    assert subjects[1] == "Trainshed: job first completed"
    assert "trainshed keep-alive first 1800" in post.texts()[1]
    assert "aws sagemaker update-training-job --training-job-name first" in post.texts()[2]

    listed = api.rest("/v1/notification-targets")["targets"]
    assert [each["user"] for each in listed] == [None, "anna", "ben", None]
    assert [each["status"] for each in listed] == ["ok"] * 4
    assert listed[3]["url"].endswith("to anna@example.org")
    log = api.log()
    for secret in ("pa55word", "s3cret-path"):
        assert secret not in str(listed) and secret not in log
    assert api.call("GET", "/v1/notification-targets", token=ben).json()["targets"][0]["user"] == "ben"
    theirs = f"/v1/notification-targets/{mail['id']}"
    assert api.call("DELETE", theirs, token=ben).status_code == 404
    assert (
        api.call("POST", "/v1/notification-targets", {"url": "https://x.org", "user": "anna"}, token=ben).status_code
        == 403
    )


def test_a_dead_webhook_delays_no_other_and_loses_nothing(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=1)
    agent.exits = 0
    port = free_port()
    dead = add(api, f"http://127.0.0.1:{port}/hooks/s3cret-path")
    with WebhookServer() as live:
        add(api, live.url)
        for name in ("one", "two"):
            create(api, name)
            run_until(api, [agent], name, "Completed")
        wait_until(lambda: len(live.bodies) == 2, what="the live one has both")
        wait_until(lambda: target(api, dead["id"])["status"] == "retrying")
        error = target(api, dead["id"])["lastError"]
        assert "cannot deliver" in error and "s3cret" not in error
    with WebhookServer(port=port) as back:
        wait_until(lambda: len(back.bodies) == 2, timeout=120, what="both arrive when it is back")
        assert [body["detail"]["TrainingJobName"] for body in back.bodies] == ["one", "two"]
        assert wait_until(lambda: target(api, dead["id"])["status"] == "ok")


def test_killed_between_delivery_and_commit_it_delivers_again(start_api: Callable[..., ApiProcess], join: Join) -> None:
    api = start_api(notify_lease_seconds=2)
    agent = join(api, slots=1)
    agent.exits = 0
    killed = threading.Event()

    def answer(number: int) -> tuple[int, dict[str, str]]:
        if number == 1:
            killed.wait(60)  # it has the message; whoever sent it never hears so
        return 200, {}

    with WebhookServer(answer) as hook:
        add(api, hook.url, on=["job.ended"])
        create(api, "before")
        run_until(api, [agent], "before", "Completed")
        wait_until(lambda: len(hook.bodies) == 1, what="the first delivery")
        api.kill()
        killed.set()
        api.start()
        agent.restart()
        create(api, "after")
        run_until(api, [agent], "after", "Completed")
        wait_until(lambda: len(hook.bodies) == 3, what="once more, and what came later")
        names = [body["detail"]["TrainingJobName"] for body in hook.bodies]
        assert names == ["before", "before", "after"]
        assert hook.bodies[0]["id"] == hook.bodies[1]["id"] != hook.bodies[2]["id"]
