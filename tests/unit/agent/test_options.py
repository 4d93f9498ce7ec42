"""The agent's command line."""

from __future__ import annotations

import pytest

from trainshed_worker.agent.__main__ import parse

BASE = ["--home", "/h", "--server", "http://s", "--token-file", "/t"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("1234", 1234), ("500M", 500 * 10**6), ("1.5g", 1_500_000_000), ("2 TB", 2 * 10**12)],
)
def test_sizes(text: str, expected: int) -> None:
    assert parse([*BASE, "--cache-limit", text]).cache_limit == expected


@pytest.mark.parametrize("text", ["", "-1", "many", "10X", "1e9"])
def test_what_is_no_size_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([*BASE, f"--cache-limit={text}"])
    assert "is no size" in capsys.readouterr().err


def test_the_limit_comes_from_the_environment_where_no_option_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse(BASE).cache_limit is None
    monkeypatch.setenv("TRAINSHED_NODE_CACHE_LIMIT", "20G")
    assert parse(BASE).cache_limit == 20 * 10**9
    assert parse([*BASE, "--cache-limit", "1G"]).cache_limit == 10**9


@pytest.mark.parametrize(
    ("variable", "words", "expected"),
    [
        (None, [], True),
        ("1", [], True),
        ("0", [], False),
        ("off", [], False),
        ("0", ["--preload"], True),
        (None, ["--no-preload"], False),
    ],
)
def test_parents_are_preloaded_unless_it_is_switched_off(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, words: list[str], expected: bool
):
    monkeypatch.delenv("TRAINSHED_PRELOAD", raising=False)
    if variable is not None:
        monkeypatch.setenv("TRAINSHED_PRELOAD", variable)
    assert parse([*BASE, *words]).preload is expected
