"""Webhooks: one POST of the JSON body, to an address that the policy allows.

Invariants: the whole takes at most `TOTAL_SECONDS`; of the answer only its status is looked at; a redirect is followed
only where it keeps the method (307, 308) and the scheme, at most `MAX_REDIRECTS` times, each place judged anew;
proxies of the environment are not used; no text that leaves here holds more of the URL than its host.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import ssl
from collections.abc import Awaitable, Callable
from typing import ClassVar

import certifi
import httpx

from trainshed_service.notifications.addresses import AddressRefused, resolve
from trainshed_service.notifications.masking import scrub
from trainshed_service.notifications.messages import Message
from trainshed_service.notifications.outcome import DELIVERED, Outcome

SCHEMES = ("http", "https")
TOTAL_SECONDS = 20.0
CONNECT_SECONDS = 5.0
MAX_REDIRECTS = 3
MAX_RETRY_AFTER = 3600.0
_LITTLE = 64 * 1024
_READ_SECONDS = 2.0
_PORTS = {"http": 80, "https": 443}
_HEADERS = {"content-type": "application/json", "user-agent": "trainshed", "accept": "*/*"}
Resolve = Callable[..., Awaitable[list[str]]]


def check_webhook(url: str) -> None:
    """ValueError in words where it is no URL that can be posted to."""
    try:
        parsed = httpx.URL(url)
        if not parsed.host or (parsed.port is not None and not 0 < parsed.port < 65536):
            raise ValueError
    except (httpx.InvalidURL, ValueError):
        raise ValueError("it is not a URL with a host") from None


class WebhookChannel:
    heavy: ClassVar[bool] = False

    def __init__(
        self,
        url: str,
        *,
        any_address: bool,
        resolver: Resolve = resolve,
        total_seconds: float = TOTAL_SECONDS,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._url = url
        self._any_address = any_address
        self._resolve = resolver
        self._total_seconds = total_seconds
        self._client = httpx.AsyncClient(
            verify=tls or _tls(),
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(total_seconds, connect=min(CONNECT_SECONDS, total_seconds)),
        )

    async def send(self, message: Message) -> Outcome:
        """Delivered with any 2xx."""
        try:
            async with asyncio.timeout(self._total_seconds):
                return await self._post(message.encoded())
        except TimeoutError:
            return Outcome(f"no answer within {self._total_seconds:g} s")
        except httpx.TimeoutException:
            return Outcome("the connection or the answer took too long")
        except AddressRefused as error:
            return Outcome(str(error))
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            return Outcome(scrub(f"cannot deliver: {error or type(error).__name__}", self._url))

    async def close(self) -> None:
        await self._client.aclose()

    async def _post(self, content: bytes) -> Outcome:
        url = httpx.URL(self._url)
        for _ in range(MAX_REDIRECTS + 1):
            status, headers = await self._request(url, content)
            if 200 <= status < 300:
                return DELIVERED
            if status not in (307, 308) or "location" not in headers:
                return Outcome(f"the webhook answered {status}", _retry_after(headers))
            following = url.join(headers["location"])
            if following.scheme != url.scheme:
                return Outcome(f"the webhook answered {status}, a redirect to another scheme, which is not followed")
            url = following
        return Outcome(f"the webhook redirected more than {MAX_REDIRECTS} times")

    async def _request(self, url: httpx.URL, content: bytes) -> tuple[int, httpx.Headers]:
        port = url.port or _PORTS[url.scheme]
        addresses = await self._resolve(url.host, port, any_address=self._any_address)
        for number, address in enumerate(addresses, 1):
            try:
                return await self._request_at(address, port, url, content)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if number == len(addresses):
                    raise
        raise OSError("the host has no address")

    async def _request_at(self, address: str, port: int, url: httpx.URL, content: bytes) -> tuple[int, httpx.Headers]:
        """To this very address; name and certificate are those of the URL."""
        place = httpx.URL(scheme=url.scheme, host=address, port=port, raw_path=url.raw_path)
        extensions = {} if _is_address(url.host) else {"sni_hostname": url.host}
        auth = httpx.BasicAuth(url.username, url.password) if url.userinfo else None
        headers = {**_HEADERS, "host": url.netloc.decode("ascii")}
        async with self._client.stream(
            "POST", place, content=content, headers=headers, extensions=extensions, auth=auth
        ) as answer:
            if answer.is_success:
                await _read_little(answer)
            return answer.status_code, answer.headers


async def _read_little(answer: httpx.Response) -> None:
    """So that the connection serves the next message too. Where it fails, that one gets a new connection."""
    length = answer.headers.get("content-length", "0" if answer.status_code == 204 else "")
    if length.isascii() and length.isdigit() and int(length[:9]) <= _LITTLE:
        with contextlib.suppress(TimeoutError, httpx.HTTPError):
            async with asyncio.timeout(_READ_SECONDS):
                await answer.aread()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _retry_after(headers: httpx.Headers) -> float | None:
    """Only seconds; a date is not looked at."""
    text = headers.get("retry-after", "")
    return min(float(text), MAX_RETRY_AFTER) if text.isascii() and text.isdigit() and len(text) < 10 else None


@functools.cache
def _tls() -> ssl.SSLContext:
    """What the machine trusts (`SSL_CERT_FILE` included), and the usual authorities where it knows none."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context
