"""What principals may do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed_service.identity import Principal, allows, job_policy
from trainshed_service.identity.policy import PolicyError, check_policy, evaluate


def job(policy: dict[str, Any] | None) -> Principal:
    return Principal("job", "a", "123456789012", "arn:aws:sts::123456789012:assumed-role/x/a", policy=policy)


READER = job(job_policy(read=[("data", "in/"), ("data", "one.csv")], write=[("out", "jobs/a/")]))
ADMIN = Principal("user", "admin", "123456789012", "arn:x", is_admin=True)
USER = Principal("user", "ada", "123456789012", "arn:x")


@pytest.mark.parametrize(
    ("action", "resource", "prefix", "allowed"),
    [
        ("s3:GetObject", "arn:aws:s3:::data/in/a/b", None, True),
        ("s3:getobject", "arn:aws:s3:::data/in/", None, True),
        ("s3:GetObject", "arn:aws:s3:::data/one.csv", None, True),
        ("s3:GetObject", "arn:aws:s3:::data/in", None, False),
        ("s3:GetObject", "arn:aws:s3:::data/other", None, False),
        ("s3:GetObject", "arn:aws:s3:::data2/in/a", None, False),
        ("s3:GetObject", "arn:aws:s3:::out/jobs/a/model.tar.gz", None, True),
        ("s3:GetObject", "arn:aws:s3:::out/jobs/ab/model.tar.gz", None, False),
        ("s3:PutObject", "arn:aws:s3:::out/jobs/a/x\ny", None, True),
        ("s3:PutObject", "arn:aws:s3:::data/in/a", None, False),
        ("s3:DeleteObject", "arn:aws:s3:::out/jobs/a/x", None, True),
        ("s3:DeleteObject", "arn:aws:s3:::data/in/a", None, False),
        ("s3:ListBucket", "arn:aws:s3:::data", "in/", True),
        ("s3:ListBucket", "arn:aws:s3:::data", "in/deeper/", True),
        ("s3:ListBucket", "arn:aws:s3:::data", "in", False),
        ("s3:ListBucket", "arn:aws:s3:::data", "", False),
        ("s3:ListBucket", "arn:aws:s3:::data", None, False),
        ("s3:ListBucket", "arn:aws:s3:::out", "jobs/a/", True),
        ("s3:ListAllMyBuckets", "*", None, False),
        ("s3:CreateBucket", "arn:aws:s3:::new", None, False),
        ("s3:PutBucketPolicy", "arn:aws:s3:::out", None, False),
        ("sagemaker:CreateTrainingJob", "*", None, False),
    ],
)
def test_a_job_reaches_its_own_places_only(action: str, resource: str, prefix: str | None, allowed: bool) -> None:
    context = {} if prefix is None else {"s3:prefix": prefix}
    assert allows(READER, action, resource, context) is allowed


@given(st.text(max_size=12), st.text(max_size=12))
def test_wildcards_in_a_prefix_mean_themselves(prefix: str, key: str) -> None:
    principal = job(job_policy(read=[("data", prefix)], write=[]))
    assert allows(principal, "s3:GetObject", f"arn:aws:s3:::data/{key}") is key.startswith(prefix)
    assert allows(principal, "s3:ListBucket", "arn:aws:s3:::data", {"s3:prefix": key}) is key.startswith(prefix)


def test_users_and_administrators() -> None:
    assert allows(ADMIN, "trainshed-admin:Drain")
    assert allows(ADMIN, "s3:DeleteObject", "arn:aws:s3:::any/thing")
    assert allows(USER, "sagemaker:CreateTrainingJob")
    assert not allows(USER, "trainshed-admin:Drain")
    assert not allows(job(None), "s3:GetObject", "arn:aws:s3:::data/in/a")


def statement(**more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": "s3:*", "Resource": "*", **more}


def test_deny_wins_and_equality_conditions() -> None:
    policy = {"Statement": [statement(), statement(Effect="Deny", Action="s3:Delete*")]}
    assert evaluate(policy, "s3:GetObject", "arn:x", {})
    assert not evaluate(policy, "s3:DeleteObject", "arn:x", {})
    equal = {"Statement": [statement(Condition={"StringEquals": {"s3:prefix": ["a*", "b"]}})]}
    assert evaluate(equal, "s3:ListBucket", "arn:x", {"s3:prefix": "b"})
    assert evaluate(equal, "s3:ListBucket", "arn:x", {"s3:prefix": "a*"})
    assert not evaluate(equal, "s3:ListBucket", "arn:x", {"s3:prefix": "ab"})


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"Statement": {}},
        {"Statement": ["x"]},
        {"Statement": [statement(Effect="Maybe")]},
        {"Statement": [statement(Action=5)]},
        {"Statement": [statement(Resource=[])]},
        {"Statement": [statement(NotAction="s3:*")]},
        {"Statement": [statement(Condition={"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}})]},
        {"Statement": [statement(Condition={"StringLike": "x"})]},
        {"Statement": [statement(Condition={"StringLike": {"s3:prefix": 5}})]},
    ],
)
def test_documents_that_are_not_understood_allow_nothing(policy: dict[str, Any]) -> None:
    with pytest.raises(PolicyError):
        check_policy(policy)
    assert not evaluate({"Statement": [statement(), *_list(policy)]}, "s3:GetObject", "arn:x", {}) or policy == {}
    assert not evaluate(policy, "s3:GetObject", "arn:x", {})


def _list(policy: dict[str, Any]) -> list[Any]:
    found = policy.get("Statement")
    return found if isinstance(found, list) else [None]
