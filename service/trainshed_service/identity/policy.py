"""May this principal do this? A small evaluator for the policies that we issue ourselves; not an IAM engine.

Users may do everything except what is kept for administrators; jobs only what their policy document allows. The
evaluator fails closed: a statement that it does not understand whole allows nothing, and `check_policy` refuses such a
document before it is stored.

A policy document has the form of IAM's: `Statement` is a list of {Effect, Action, Resource, Condition?}, where Effect
is Allow or Deny (a Deny wins), Action and Resource are strings or lists with the wildcards `*` and `?` (`${*}`, `${?}`
and `${$}` mean the character itself), and Condition may be StringLike or StringEquals on keys such as `s3:prefix`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from trainshed_service.identity.principal import Principal

ADMIN_ACTIONS_PREFIX = "trainshed-admin:"
"""Actions with this prefix are for administrators alone."""

_STATEMENT_KEYS = {"Sid", "Effect", "Action", "Resource", "Condition"}
_WILDCARDS = {"*": ".*", "?": "."}
_CONDITIONS = {"StringLike", "StringEquals"}


class PolicyError(ValueError):
    """A policy document says something that this evaluator does not know."""


def allows(
    principal: Principal, action: str, resource_arn: str = "*", context: Mapping[str, str] | None = None
) -> bool:
    """`action` like "s3:GetObject", `resource_arn` like "arn:aws:s3:::bucket/key"; `context` has condition keys."""
    if principal.kind == "user":
        return principal.is_admin or not action.startswith(ADMIN_ACTIONS_PREFIX)
    return evaluate(principal.policy or {}, action, resource_arn, context or {})


def evaluate(policy: Mapping[str, Any], action: str, resource_arn: str, context: Mapping[str, str]) -> bool:
    """True where some statement allows and none denies. A document that is not well made allows nothing."""
    try:
        check_policy(policy)
    except PolicyError:
        return False
    allowed = False
    for statement in policy["Statement"]:
        if _matches(statement, action, resource_arn, context):
            if statement["Effect"] == "Deny":
                return False
            allowed = True
    return allowed


def check_policy(policy: Mapping[str, Any]) -> None:
    """Raise PolicyError where the document holds anything that `evaluate` would not honour."""
    statements = policy.get("Statement")
    if not isinstance(statements, list):
        raise PolicyError("a policy needs a list 'Statement'")
    for statement in statements:
        if not isinstance(statement, Mapping) or set(statement) - _STATEMENT_KEYS:
            raise PolicyError(f"a statement may have {sorted(_STATEMENT_KEYS)} and nothing else")
        if statement.get("Effect") not in ("Allow", "Deny"):
            raise PolicyError("the Effect of a statement is Allow or Deny")
        for key in ("Action", "Resource"):
            if not _strings(statement.get(key)):
                raise PolicyError(f"a statement needs '{key}': a string or a list of strings")
        condition = statement.get("Condition", {})
        if not isinstance(condition, Mapping) or set(condition) - _CONDITIONS:
            raise PolicyError(f"a condition may be one of {sorted(_CONDITIONS)}")
        for tests in condition.values():
            if not isinstance(tests, Mapping) or not all(_strings(values) for values in tests.values()):
                raise PolicyError("a condition maps keys to strings or lists of strings")


def job_policy(*, read: Iterable[tuple[str, str]], write: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """A policy for one attempt: (bucket, key prefix) pairs to read, and pairs to read, write and delete.

    A prefix matches as S3 prefixes do, so say "out/job/" where "out/job2" must stay out of reach.
    """
    statements: list[dict[str, Any]] = []
    for pairs, actions in (
        (sorted(set(read)), ["s3:GetObject"]),
        (sorted(set(write)), ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]),
    ):
        for bucket, prefix in pairs:
            literal = _escape(prefix)
            statements.append({"Effect": "Allow", "Action": actions, "Resource": f"arn:aws:s3:::{bucket}/{literal}*"})
            statements.append(
                {
                    "Effect": "Allow",
                    "Action": ["s3:ListBucket"],
                    "Resource": f"arn:aws:s3:::{bucket}",
                    "Condition": {"StringLike": {"s3:prefix": f"{literal}*"}},
                }
            )
    return {"Version": "2012-10-17", "Statement": statements}


def _matches(statement: Mapping[str, Any], action: str, resource: str, context: Mapping[str, str]) -> bool:
    if not any(_wildcard(pattern.lower()).fullmatch(action.lower()) for pattern in _strings(statement["Action"])):
        return False
    if not any(_wildcard(pattern).fullmatch(resource) for pattern in _strings(statement["Resource"])):
        return False
    for operator, tests in statement.get("Condition", {}).items():
        for key, values in tests.items():
            given = context.get(key)
            if given is None or not any(_satisfies(operator, value, given) for value in _strings(values)):
                return False
    return True


def _satisfies(operator: str, value: str, given: str) -> bool:
    return value == given if operator == "StringEquals" else _wildcard(value).fullmatch(given) is not None


def _strings(value: object) -> list[str]:
    """The value as a list of strings; empty where it is something else."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    return []


def _escape(literal: str) -> str:
    """IAM's own way to write a wildcard character that means itself."""
    return literal.replace("$", "${$}").replace("*", "${*}").replace("?", "${?}")


@lru_cache(maxsize=8192)
def _wildcard(pattern: str) -> re.Pattern[str]:
    translated = []
    for part in re.findall(r"\$\{[*?$]\}|[*?]|[^*?$]+|\$", pattern):
        if part in _WILDCARDS:
            translated.append(_WILDCARDS[part])
        else:
            literal = part[2] if part.startswith("${") else part
            translated.append(re.escape(literal))
    return re.compile("".join(translated), re.DOTALL)
