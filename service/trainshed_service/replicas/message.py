"""What processes of the service tell each other after a commit, as the payload of a NOTIFY.

Invariants: a message only says where to look, the rows are the truth. It fits into PostgreSQL's limit: one with too
much in it says `everything` instead, which asks for more work than needed and never for less.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

MOST_BYTES = 7_999
"""PostgreSQL refuses a payload of 8,000 bytes."""


@dataclass(frozen=True)
class Message:
    """`sender` is a process, by an id that is nobody else's."""

    sender: str
    bumped: Mapping[str, int] = field(default_factory=dict)
    """Agent → the version of its desired state, which has changed."""
    known: Mapping[str, int] = field(default_factory=dict)
    """Agent → the version of its desired state, for who has just begun to listen."""
    first: int = 0
    """The version of agents for which nothing was wanted since the sender began."""
    heard: tuple[str, ...] = ()
    """Agents that the sender has heard from for the first time."""
    replan: bool = False
    """What the planner goes by has changed."""
    finish: tuple[str, ...] = ()
    """Attempts that the leader is to conclude."""
    remove: tuple[int, ...] = ()
    """Jobs that the leader is to take away."""
    hello: bool = False
    """The sender has begun to listen: tell it what you know."""
    everything: bool = False
    """All of the above may have changed."""

    def merged(self, other: Message) -> Message:
        """Both in one; of the same sender, `other` the later."""
        return Message(
            self.sender,
            {**self.bumped, **other.bumped},
            {**self.known, **other.known},
            max(self.first, other.first),
            tuple(dict.fromkeys((*self.heard, *other.heard))),
            self.replan or other.replan,
            tuple(dict.fromkeys((*self.finish, *other.finish))),
            tuple(dict.fromkeys((*self.remove, *other.remove))),
            self.hello or other.hello,
            self.everything or other.everything,
        )

    def encode(self) -> str:
        text = self._text()
        if len(text.encode()) <= MOST_BYTES:
            return text
        return Message(self.sender, first=self.first, hello=self.hello, replan=True, everything=True)._text()

    def _text(self) -> str:
        empty = Message("")
        members = {name: value for name, value in asdict(self).items() if value != getattr(empty, name)}
        return json.dumps(members, separators=(",", ":"))


def decode(text: str) -> Message:
    """ValueError where it is none."""
    members = json.loads(text)
    message = Message(**members)
    return replace(message, heard=tuple(message.heard), finish=tuple(message.finish), remove=tuple(message.remove))
