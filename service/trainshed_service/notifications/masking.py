"""URLs of targets without their secrets: how they are shown, and how texts are freed of them.

Invariant: what a URL holds beyond its scheme, a mail's host and recipients, and a webhook's host and port is never
shown: paths and queries of webhooks are keys as often as passwords are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import SplitResult, unquote, urlsplit

MASK = "***"
MAX_SHOWN = 512
MAX_ERROR = 300
_SHORTEST = 4
_MAIL = ("mailto", "mailtos")
_WEBHOOK = ("http", "https")


def scheme_of(url: str) -> str:
    """In small letters; empty where there is none."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", url)
    return found[1].lower() if found else ""


def shown(url: str, recipients: Iterable[str] = ()) -> str:
    """The URL for people."""
    scheme = scheme_of(url)
    if scheme in _WEBHOOK:
        parts = urlsplit(url)
        user = f"{MASK}@" if "@" in parts.netloc else ""
        path = f"/{MASK}" if parts.path not in ("", "/") else parts.path
        return f"{scheme}://{user}{_host(parts)}{path}{f'?{MASK}' if parts.query else ''}"[:MAX_SHOWN]
    if scheme in _MAIL:
        to = ", ".join(recipients)
        return f"{scheme}://{MASK}@{_host(urlsplit(url))}{f' to {to}' if to else ''}"[:MAX_SHOWN]
    return f"{scheme}://{MASK}"


def scrub(text: str, url: str) -> str:
    """One short line in which nothing of the URL that may be a secret is left."""
    for secret in _secrets(url):
        text = text.replace(secret, MASK)
    line = " ".join(text.split())
    return line if len(line) <= MAX_ERROR else line[: MAX_ERROR - 2] + " …"


def place_of(url: str) -> tuple[str, int]:
    """Host and port of a webhook. ValueError where it has none."""
    parts = urlsplit(url)
    if not parts.hostname:
        raise ValueError("it has no host")
    return parts.hostname, parts.port or {"http": 80, "https": 443}[parts.scheme.lower()]


def _host(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _secrets(url: str) -> list[str]:
    """The longest first."""
    parts = urlsplit(url)
    pieces = [url, *re.split(r"[/&=?#:@,;+]", url.partition("://")[2]), parts.path, parts.query, parts.netloc]
    pieces += [parts.netloc.rpartition("@")[0]]
    public = {scheme_of(url), MASK}
    if scheme_of(url) in (*_WEBHOOK, *_MAIL):
        host = _host(parts)
        public |= {host, host.rpartition(":")[0], host.rpartition(":")[2]}
    forms = {form for piece in pieces for form in (piece, unquote(piece))}
    return sorted((form for form in forms if len(form) >= _SHORTEST and form not in public), key=len, reverse=True)
