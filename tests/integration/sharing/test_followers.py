"""Who follows a job loses sight of it with the credential that the stream was opened with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.integration.sharing.conftest import Person, Sharing

SSE = {"accept": "text/event-stream"}
Followed = tuple[httpx.Response, Iterator[str]]


@contextmanager
def following(person: Person, path: str, *, signed: bool) -> Iterator[Followed]:
    """The open stream."""
    url = person.url + path
    headers = dict(SSE)
    if signed:
        request = AWSRequest("GET", url, headers=headers)
        SigV4Auth(Credentials(person.key, person.secret), "sagemaker", "us-east-1").add_auth(request)
        headers = dict(request.headers.items())
    else:
        headers["authorization"] = person.http.headers["authorization"]
    with httpx.stream("GET", url, headers=headers, timeout=60, trust_env=False) as answer:
        assert answer.status_code == 200
        yield answer, answer.iter_lines()


def rest_of(lines: Iterator[str]) -> list[str]:
    """What is sent until the stream ends, which is before it would have to say that it is alive."""
    found = []
    for line in lines:
        assert not line.startswith(":"), "the stream goes on"
        found.append(line)
    return found


def delete_user(sharing: Sharing, person: Person) -> None:
    sharing.ask("DELETE", f"/v1/users/{person.name}")


def deactivate_key(sharing: Sharing, person: Person) -> None:
    sharing.ask("PATCH", f"/v1/access-keys/{person.key}", {"active": False})


def delete_key(sharing: Sharing, person: Person) -> None:
    sharing.ask("DELETE", f"/v1/access-keys/{person.key}")


def revoke_token(sharing: Sharing, person: Person) -> None:
    (token,) = sharing.ask("GET", f"/v1/users/{person.name}/tokens")["tokens"]
    sharing.ask("DELETE", f"/v1/tokens/{token['id']}")


@pytest.mark.parametrize(
    ("what", "revoke", "signed"),
    [
        ("logs", delete_user, False),
        ("events", delete_user, True),
        ("logs", revoke_token, False),
        ("logs", deactivate_key, True),
        ("events", delete_key, True),
    ],
)
def test_a_stream_ends_with_its_credential(
    sharing: Sharing, what: str, revoke: Callable[[Sharing, Person], None], signed: bool
) -> None:
    anna = sharing.person()
    job = sharing.place(anna.name)
    with following(anna, f"/v1/training-jobs/{job}/{what}", signed=signed) as (answer, lines):
        revoke(sharing, anna)
        sharing.service.ship(job, "algo-1", ["a secret line"], first=1)
        told = rest_of(lines)
    assert not any("event: end" in line for line in told), "the job has not ended"
    again = httpx.get(f"{anna.url}/v1/training-jobs/{job}/{what}", headers=answer.request.headers, timeout=60)
    assert again.status_code == 401


def test_a_stream_ends_where_an_administrator_is_none_any_more(sharing: Sharing) -> None:
    anna, chief = sharing.person(), sharing.person(isAdmin=True)
    job = sharing.place(anna.name)
    with following(chief, f"/v1/training-jobs/{job}/events", signed=False) as (_, lines):
        sharing.ask("PATCH", f"/v1/users/{chief.name}", {"isAdmin": False})
        assert not any("event: end" in line for line in rest_of(lines))


def test_the_streams_of_others_go_on(sharing: Sharing) -> None:
    anna, ben = sharing.person(), sharing.person()
    job = sharing.place(anna.name)
    with following(anna, f"/v1/training-jobs/{job}/logs", signed=True) as (_, lines):
        delete_user(sharing, ben)
        sharing.service.ship(job, "algo-1", ["still followed"], first=1)
        assert any("still followed" in line for line in lines)
