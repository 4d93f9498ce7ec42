"""Messages between processes of the service."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainshed_service.replicas.message import MOST_BYTES, Message, decode

_names = st.text(min_size=1, max_size=60)
_versions = st.dictionaries(_names, st.integers(0, 2**53), max_size=200)
_messages = st.builds(
    Message,
    sender=_names,
    bumped=_versions,
    known=_versions,
    first=st.integers(0, 2**53),
    heard=st.lists(_names, unique=True, max_size=200).map(tuple),
    replan=st.booleans(),
    finish=st.lists(_names, unique=True, max_size=50).map(tuple),
    remove=st.lists(st.integers(1, 2**53), unique=True, max_size=50).map(tuple),
    hello=st.booleans(),
    everything=st.booleans(),
)


@given(_messages)
def test_a_message_comes_as_it_was_or_asks_for_everything_and_always_fits(message: Message) -> None:
    text = message.encode()
    assert len(text.encode()) <= MOST_BYTES
    come = decode(text)
    if come != message:
        assert come == Message(message.sender, first=message.first, hello=message.hello, replan=True, everything=True)


@given(_messages, _messages)
def test_what_is_merged_asks_for_all_that_each_asked_for(one: Message, other: Message) -> None:
    both = one.merged(other)
    for each in (one, other):
        assert set(each.bumped) <= set(both.bumped) and set(each.known) <= set(both.known)
        assert set(each.heard) <= set(both.heard) and both.first >= each.first
        assert set(each.finish) <= set(both.finish) and set(each.remove) <= set(both.remove)
        assert both.replan >= each.replan and both.hello >= each.hello and both.everything >= each.everything
    assert all(both.bumped[agent] == version for agent, version in other.bumped.items())
