"""No part of a URL that may be a secret is shown."""

from __future__ import annotations

import pytest

from trainshed_service.notifications.masking import scheme_of, scrub, shown


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://hooks.example.com/services/T0/B0/abcdef", "https://hooks.example.com/***"),
        ("https://user:pa55@hooks.example.com:8443/x?token=t", "https://***@hooks.example.com:8443/***?***"),
        ("http://127.0.0.1:9", "http://127.0.0.1:9"),
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ", "slack://***"),
        ("json://u:p@host/path?+X-Token=s3cret", "json://***"),
    ],
)
def test_shown(url: str, expected: str) -> None:
    assert shown(url) == expected


def test_mail_shows_its_host_and_recipients() -> None:
    url = "mailtos://anna:pa55word@smtp.example.com/x@example.org"
    assert shown(url, ["x@example.org"]) == "mailtos://***@smtp.example.com to x@example.org"


@pytest.mark.parametrize(
    "url",
    [
        "https://user:pa55%20word@hooks.example.com/services/T0secret/abcdef?token=tok-en",
        "slack://T0secret/abcdef/pa55%20word/tok-en",
        "mailtos://user:pa55%20word@smtp.example.com/?abcdef=T0secret&to=tok-en",
    ],
)
def test_texts_are_freed_of_all_of_it(url: str) -> None:
    text = f"cannot connect to {url}\n(abcdef, T0secret, pa55 word, pa55%20word, tok-en): refused by hooks.example.com"
    clean = scrub(text, url)
    for secret in ("abcdef", "T0secret", "pa55", "tok-en", "\n"):
        assert secret not in clean
    assert "refused" in clean


def test_a_long_text_is_cut() -> None:
    assert len(scrub("x" * 5000, "https://a.example")) == 300


def test_schemes() -> None:
    assert [scheme_of(url) for url in ("HTTPS://a", "mailto://b", "no scheme", "x:/y")] == ["https", "mailto", "", ""]
