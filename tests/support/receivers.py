"""Real receivers of notifications: an HTTP server that keeps what is posted, and an SMTP server that keeps mail."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller

from tests.support.ports import free_port


class WebhookServer:
    """Use as a context manager. `answer(number)`: status and headers for the n-th POST, from 1; it may block."""

    def __init__(
        self,
        answer: Callable[[int], tuple[int, dict[str, str]]] | None = None,
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.connections: set[Any] = set()
        self.answer = answer or (lambda _: (204, {}))
        self._lock = threading.Lock()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with owner._lock:
                    owner.bodies.append(body)
                    owner.headers.append({name.lower(): value for name, value in self.headers.items()})
                    owner.paths.append(self.path)
                    owner.connections.add(self.client_address)
                    number = len(owner.bodies)
                status, headers = owner.answer(number)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks/s3cret-path"

    def kinds(self) -> list[str]:
        """What arrived, in short."""
        return [_short(body) for body in list(self.bodies)]

    def __enter__(self) -> WebhookServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


class MailServer:
    """Use as a context manager."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self._controller = Controller(self, hostname="127.0.0.1", port=free_port())

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:
        mail = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        self.mails.append(mail)
        return "250 kept"

    @property
    def url(self) -> str:
        return f"mailto://127.0.0.1:{self._controller.port}?from=trainshed@example.com&to=anna@example.org"

    def texts(self) -> list[str]:
        return [_content(mail) for mail in list(self.mails)]

    def __enter__(self) -> MailServer:
        self._controller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._controller.stop()


def _content(mail: EmailMessage) -> str:
    part = mail.get_body(preferencelist=("plain", "html"))
    assert part is not None
    return str(part.get_content())


def _short(body: dict[str, Any]) -> str:
    detail = body["detail"]
    return str(detail.get("TrainingJobStatus") or detail.get("Status") or body["detail-type"])
