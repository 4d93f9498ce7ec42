"""The POST itself, to a real server on this machine."""

from __future__ import annotations

import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.support.ports import free_port
from tests.support.receivers import WebhookServer
from trainshed_service.notifications.messages import Place, sample
from trainshed_service.notifications.outcome import Outcome
from trainshed_service.notifications.webhook import MAX_REDIRECTS, WebhookChannel, check_webhook

MESSAGE = sample(Place("123456789012", "us-east-1"), 0.0, "t1")


async def send(url: str, *, any_address: bool = True, **options: Any) -> Outcome:
    channel = WebhookChannel(url, any_address=any_address, **options)
    try:
        return await channel.send(MESSAGE)
    finally:
        await channel.close()


async def test_it_posts_json_with_the_name_of_the_host_and_its_password() -> None:
    with WebhookServer() as server:
        url = f"http://user:pa55@localhost:{server.port}/a/b?c=d"
        assert (await send(url)).error is None
        assert server.paths == ["/a/b?c=d"]
        assert server.bodies[0]["detail-type"] == "Trainshed Notification Test"
        assert server.headers[0]["host"] == f"localhost:{server.port}"
        assert server.headers[0]["content-type"] == "application/json"
        assert server.headers[0]["authorization"] == "Basic dXNlcjpwYTU1"


@pytest.mark.parametrize("status", [200, 204])
async def test_messages_share_a_connection(status: int) -> None:
    with WebhookServer(lambda _: (status, {})) as server:
        channel = WebhookChannel(server.url, any_address=True)
        for _ in range(3):
            assert (await channel.send(MESSAGE)).error is None
        await channel.close()
        assert (len(server.bodies), len(server.connections)) == (3, 1)


@pytest.mark.parametrize(
    ("status", "headers", "wait"),
    [(500, {}, None), (429, {"retry-after": "90"}, 90.0), (302, {"location": "/x"}, None)],
)
async def test_what_is_no_success_is_a_failure(status: int, headers: dict[str, str], wait: float | None) -> None:
    with WebhookServer(lambda _: (status, headers)) as server:
        outcome = await send(server.url)
        assert outcome.error == f"the webhook answered {status}"
        assert outcome.retry_after == wait


async def test_redirects_keep_method_and_scheme_or_are_not_followed() -> None:
    answers = [(307, {"location": "/elsewhere"}), (204, {})]
    with WebhookServer(lambda number: answers[number - 1]) as server:
        assert (await send(server.url)).error is None
        assert server.paths == ["/hooks/s3cret-path", "/elsewhere"]
        assert server.bodies[0] == server.bodies[1]
    for location in ("https://127.0.0.1/", "ftp://127.0.0.1/x", "file:///etc/passwd"):
        with WebhookServer(lambda _, to=location: (308, {"location": to})) as server:  # type: ignore[misc]
            assert "another scheme" in ((await send(server.url)).error or "")
    with WebhookServer(lambda _: (307, {"location": "/round"})) as server:
        assert "more than" in ((await send(server.url)).error or "")
        assert len(server.bodies) == MAX_REDIRECTS + 1


async def test_a_redirect_into_the_network_is_judged_again() -> None:
    async def resolver(host: str, port: int, *, any_address: bool) -> list[str]:
        from trainshed_service.notifications.addresses import resolve

        return ["127.0.0.1"] if host == "public.example" else await resolve(host, port, any_address=any_address)

    with WebhookServer() as inside:
        with WebhookServer(lambda _: (307, {"location": f"http://127.0.0.1:{inside.port}/"})) as outside:
            outcome = await send(f"http://public.example:{outside.port}/", any_address=False, resolver=resolver)
        assert "not at a public address" in (outcome.error or "")
        assert inside.bodies == [] and len(outside.bodies) == 1


async def test_an_ordinary_users_webhook_does_not_reach_this_machine() -> None:
    with WebhookServer() as server:
        outcome = await send(server.url, any_address=False)
        assert "not at a public address" in (outcome.error or "")
        assert server.bodies == []


async def test_one_that_does_not_answer_and_one_that_is_not_there() -> None:
    done = threading.Event()

    def never(_: int) -> tuple[int, dict[str, str]]:
        done.wait(30)
        return 200, {}

    with WebhookServer(never) as server:
        outcome = await send(server.url, total_seconds=0.5)
        assert "took too long" in (outcome.error or "") or "no answer" in (outcome.error or "")
        done.set()
    outcome = await send(f"http://127.0.0.1:{free_port()}/s3cret")
    assert "cannot deliver" in (outcome.error or "") and "s3cret" not in (outcome.error or "")


async def test_the_certificate_is_that_of_the_name_though_the_address_is_connected_to(tmp_path: Path) -> None:
    async def here(_host: str, _port: int, *, any_address: bool) -> list[str]:
        assert not any_address
        return ["127.0.0.1"]

    certificate = certificate_of("hooks.example", tmp_path)
    inward = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    inward.load_cert_chain(certificate)
    outward = ssl.create_default_context(cafile=str(certificate))
    with WebhookServer(tls=inward) as server:
        options: dict[str, Any] = {"any_address": False, "resolver": here, "tls": outward}
        assert (await send(f"https://hooks.example:{server.port}/", **options)).error is None
        assert server.headers[0]["host"] == f"hooks.example:{server.port}"
        wrong = await send(f"https://other.example:{server.port}/", **options)
        assert "certificate" in (wrong.error or "").lower()
        assert len(server.bodies) == 1


def certificate_of(name: str, folder: Path) -> Path:
    """A PEM file with a key and its own certificate for a host."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(secret + made.public_bytes(Encoding.PEM))
    return path


@pytest.mark.parametrize("url", ["https://", "http:///x", "https://host:99999/", "http://[::1"])
def test_what_is_no_webhook_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="not a URL"):
        check_webhook(url)
