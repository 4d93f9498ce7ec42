"""Soft quotas: how many instances a user, a role or everybody together may hold at once, and how many they do hold.

Invariant: an instance counts once for its user, its role and all, whether it runs or is kept warm; a job is placed only
where no rule would be broken by it. A job that a quota makes wait holds back nobody.
"""

from __future__ import annotations

from collections import defaultdict

from trainshed_service.scheduling.events import ANY_TYPE, Needs, QuotaRule

Subject = tuple[str, str]
Credit = tuple[int | None, str, str, int]
"""User, role, instance type and number of instances that would be given back by the same decision."""
ALL: Subject = ("all", "*")


def subjects(user_id: int | None, role_arn: str) -> tuple[Subject, ...]:
    return (ALL, ("user", str(user_id)), ("role", role_arn))


class QuotaBook:
    def __init__(self) -> None:
        self.rules: tuple[QuotaRule, ...] = ()
        self._by_subject: dict[Subject, list[QuotaRule]] = {}
        self._held: defaultdict[tuple[Subject, str], int] = defaultdict(int)

    def replace(self, rules: tuple[QuotaRule, ...]) -> None:
        """Other rules; who holds what is to be told anew, by `take`."""
        self.rules = rules
        self._held.clear()
        self._by_subject = {}
        for rule in rules:
            key = ALL if rule.subject_kind == "all" else (rule.subject_kind, rule.subject)
            self._by_subject.setdefault(key, []).append(rule)

    def take(self, user_id: int | None, role_arn: str, instance_type: str, count: int) -> None:
        """`count` below 0: they are given back. Nothing is counted while there are no rules."""
        if not self.rules:
            return
        for subject in subjects(user_id, role_arn):
            self._held[subject, instance_type] += count
            self._held[subject, ANY_TYPE] += count

    def held(self, rule: QuotaRule) -> int:
        key = ALL if rule.subject_kind == "all" else (rule.subject_kind, rule.subject)
        return self._held[key, rule.instance_type]

    def broken(
        self, user_id: int | None, role_arn: str, needs: Needs, credit: Credit | None = None
    ) -> QuotaRule | None:
        """The first rule that a job with these needs would break now. `credit`: what it takes over from a pool."""
        if not self.rules:
            return None
        returned = subjects(credit[0], credit[1]) if credit else ()
        for subject in subjects(user_id, role_arn):
            for rule in self._by_subject.get(subject, ()):
                wanted = sum(count for name, count in needs if rule.instance_type in (ANY_TYPE, name))
                if not wanted:
                    continue
                held = self._held[subject, rule.instance_type]
                if credit and subject in returned and rule.instance_type in (ANY_TYPE, credit[2]):
                    held -= credit[3]
                if held + wanted > rule.instances:
                    return rule
        return None

    def has_wide_rule(self, user_id: int | None, role_arn: str) -> bool:
        """Whether an instance that these give back makes room for jobs that need instances of another type."""
        return any(
            rule.instance_type == ANY_TYPE
            for subject in subjects(user_id, role_arn)
            for rule in self._by_subject.get(subject, ())
        )

    def words(self, rule: QuotaRule, needs: Needs) -> str:
        """E.g. 'quota: user ann may hold 4 ml.c5.xlarge at once, holds 4'."""
        name = rule.name or rule.subject
        who = "all together" if rule.subject_kind == "all" else f"{rule.subject_kind} {name}"
        what = "instances" if rule.instance_type == ANY_TYPE else rule.instance_type
        wanted = sum(count for name, count in needs if rule.instance_type in (ANY_TYPE, name))
        held = f"{'hold' if rule.subject_kind == 'all' else 'holds'} {self.held(rule)}"
        more = (
            f"; the job needs {wanted}, so it can't run before the quota is raised" if wanted > rule.instances else ""
        )
        return f"quota: {who} may hold {rule.instances} {what} at once, {held}{more}"
