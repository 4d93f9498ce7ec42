"""Fair shares: what each user has used, decayed, such that running jobs count from moment to moment.

Usage halves every `half_life_seconds`. It is kept in *normalised* units, instance-seconds × 2^(t / half-life), in which
the decay is the same factor for everybody and therefore changes no order.

Invariants: keys only grow (so a stored key is a lower bound for ever, which is what lets heaps be lazy); a user who
holds instances has a key that is a straight line in `warp(now)`, so reading it costs one multiplication.
"""

from __future__ import annotations

import math

START_SECONDS = 10.0
"""Each instance that is given to a job counts for so many seconds at once, so that users take turns at one moment."""
_REBASE_HALF_LIVES = 128.0


class Account:
    __slots__ = ("as_of", "held", "offset")

    def __init__(self) -> None:
        self.offset = 0.0
        self.held = 0
        self.as_of = -math.inf
        """Until when the usage that was restored counts; nothing before it is counted again."""

    def key(self, warp: float) -> float:
        """The normalised usage at the moment of `warp`: who has less comes first."""
        return self.offset + self.held * warp


class Shares:
    """`user` None: all jobs without a user share one account."""

    def __init__(self, half_life_seconds: float) -> None:
        if half_life_seconds <= 0:
            raise ValueError("the half-life of usage must be above 0 seconds")
        self._half_life = half_life_seconds
        self._zero: float | None = None
        self.accounts: dict[int | None, Account] = {}

    def weight(self, at: float) -> float:
        """What one instance-second at `at` counts, in normalised units."""
        if self._zero is None:
            self._zero = at
        return math.exp2(max(-1000.0, (at - self._zero) / self._half_life))

    def warp(self, now: float) -> float:
        """The integral of `weight`: an instance held from a to b has used `warp(b) - warp(a)`."""
        if self._zero is None:
            self._zero = now
        scale = self._half_life / math.log(2.0)
        return scale * math.expm1(max(-500.0, (now - self._zero) / scale))

    def account(self, user: int | None) -> Account:
        found = self.accounts.get(user)
        if found is None:
            found = self.accounts[user] = Account()
        return found

    def key(self, user: int | None, warp: float) -> float:
        """The normalised usage at the moment of `warp`: who has less comes first."""
        found = self.accounts.get(user)
        return 0.0 if found is None else found.offset + found.held * warp

    def restore(self, user: int, instance_seconds: float, at: float) -> None:
        """What the user had used at `at`, before anything else is said of the user."""
        account = self.account(user)
        account.offset = instance_seconds * self.weight(at)
        account.as_of = at

    def take(self, user: int | None, count: int, now: float, *, since: float | None = None) -> None:
        """`count` instances are held from `now` on, or (after a restart) since an earlier moment."""
        account = self.account(user)
        if since is None:
            account.offset += count * START_SECONDS * self.weight(now)
            since = now
        account.offset -= count * self.warp(max(since, account.as_of))
        account.held += count

    def give(self, user: int | None, count: int, warp: float) -> None:
        """`count` instances are not held any more, from the moment of `warp` on."""
        account = self.account(user)
        account.offset += count * warp
        account.held -= count

    def used(self, user: int | None, now: float) -> float:
        """Decayed instance-seconds as of `now`."""
        return max(0.0, self.key(user, self.warp(now)) / self.weight(now))

    def rebase(self, now: float) -> float | None:
        """Keep the numbers small: the factor by which every key changed, None where it is not needed yet."""
        if self._zero is None or now - self._zero < _REBASE_HALF_LIVES * self._half_life:
            return None
        factor, warp = 1.0 / self.weight(now), self.warp(now)
        self._zero = now
        for account in self.accounts.values():
            account.offset = (account.offset + account.held * warp) * factor  # the new warp begins at 0
        return factor
