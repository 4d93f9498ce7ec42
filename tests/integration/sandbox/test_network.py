"""The cluster's network: forwards, credentials, egress, isolation, life."""

import contextlib
import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.integration.sandbox.support import log_lines, make_spec, python
from tests.support.wait import wait_until
from trainshed_worker.sandbox import Addresses, ClusterNetwork, InstanceHandle, SandboxSpec
from trainshed_worker.sandbox.procs import is_alive

Start = Callable[[SandboxSpec], InstanceHandle]
Network = Callable[[Path], ClusterNetwork]

_FETCH = """
import json, sys, urllib.request, urllib.error
out = []
for item in json.loads(sys.argv[1]):
    proxy = item.get("proxy")
    handlers = [urllib.request.ProxyHandler({"http": proxy, "https": proxy} if proxy else {})]
    request = urllib.request.Request(item["url"], headers=item.get("headers", {}))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=20) as answer:
            out.append([answer.status, answer.read().decode()])
    except urllib.error.HTTPError as error:
        out.append([error.code, error.read().decode()])
    except OSError as error:
        out.append([0, str(error)])
print(json.dumps(out))
"""


@contextlib.contextmanager
def web_server(text: str) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f"{text} {self.path}".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Inside:
    """Fetch from within an instance of the network."""

    def __init__(self, folder: Path, network: ClusterNetwork, start: Start) -> None:
        self.folder, self.network, self.start, self.count = folder, network, start, 0

    def fetch(self, addresses: Addresses, *requests: dict[str, object]) -> list[list[object]]:
        self.count += 1
        spec = make_spec(
            self.folder / f"i{self.count}",
            python(_FETCH, json.dumps(requests)),
            hosts=addresses.hosts,
            network="cluster",
            network_dir=str(self.network.directory),
        )
        handle = self.start(spec)
        record = handle.wait(90)
        assert record is not None and record.exit_code == 0, log_lines(handle)
        value: list[list[object]] = json.loads(log_lines(handle)[-1])
        return value


@pytest.fixture
def inside(tmp_path: Path, make_network: Network, start_instance: Start) -> Inside:
    return Inside(tmp_path, make_network(tmp_path / "net work"), start_instance)


def test_forwards_and_their_change_under_a_running_network(inside: Inside) -> None:
    with web_server("first") as first, web_server("second") as second:
        addresses = inside.network.ensure(["algo-1"], {"api": first}, isolated=False)
        netd = inside.network.state()
        assert inside.fetch(addresses, {"url": addresses.forwards["api"] + "/x"}) == [[200, "first /x"]]
        port = addresses.forwards["api"].rsplit(":", 1)[1]
        moved = inside.network.ensure(["algo-1"], {"api": f"http://127.0.0.1:{port}"}, isolated=False)
        assert inside.network.state() == netd and moved == addresses
        assert second != first


def test_credentials_by_token(inside: Inside, tmp_path: Path) -> None:
    addresses = inside.network.ensure(["algo-1", "algo-2"], {}, isolated=False)
    for name in ("one", "two"):
        document = {"AccessKeyId": name, "SecretAccessKey": "s", "Token": "t", "Expiration": "2030-01-01T00:00:00Z"}
        (tmp_path / name).write_text(json.dumps({**document, "Extra": "not shown"}))
        inside.network.set_credentials(f"token-{name}", tmp_path / name)
    inside.network.set_credentials("token-three", tmp_path / "absent")
    inside.network.set_credentials("token-gone", tmp_path / "one")
    inside.network.drop_credentials("token-gone")
    url = addresses.credentials_url
    asked = [{"url": url, "headers": {"Authorization": f"token-{name}"}} for name in ("one", "two", "three", "gone")]
    one, two, three, gone, bare, other = inside.fetch(addresses, *asked, {"url": url}, {"url": f"{url}/../etc/passwd"})
    assert json.loads(str(one[1]))["AccessKeyId"] == "one" and "Extra" not in str(one[1])
    assert json.loads(str(two[1]))["AccessKeyId"] == "two"
    assert [answer[0] for answer in (one, two, three, gone, bare, other)] == [200, 200, 503, 403, 403, 404]


def test_the_egress_proxy_refuses_private_targets_and_strangers(inside: Inside) -> None:
    with web_server("mirror") as mirror:
        port = int(mirror.rsplit(":", 1)[1])
        allow = [f"localhost:{port}"]
        addresses = inside.network.ensure(["algo-1"], {}, isolated=False, egress_allow=allow)
        proxy = str(addresses.egress_proxy)
        stranger = "http://10.210.0.1:3128"
        allowed, private, metadata, no_secret, tunnel = inside.fetch(
            addresses,
            {"url": f"http://localhost:{port}/simple/", "proxy": proxy},
            {"url": f"http://127.0.0.1:{port}/", "proxy": proxy},
            {"url": "http://169.254.169.254/latest/", "proxy": proxy},
            {"url": f"http://localhost:{port}/", "proxy": stranger},
            {"url": f"https://127.0.0.1:{port}/", "proxy": proxy},
        )
    assert allowed == [200, "mirror /simple/"]
    assert [private[0], metadata[0], no_secret[0]] == [403, 403, 407]
    assert tunnel[0] == 0 and "403" in str(tunnel[1])


def test_isolation_leaves_the_peers_alone(inside: Inside) -> None:
    with web_server("api") as api:
        addresses = inside.network.ensure(["algo-1"], {"api": api}, isolated=True)
        assert (addresses.forwards, addresses.credentials_url, addresses.egress_proxy) == ({}, None, None)
        port = api.rsplit(":", 1)[1]
        urls = [f"http://10.210.0.1:{port}/", "http://10.210.0.1:3128/", "http://169.254.170.2/creds", api]
        assert {answer[0] for answer in inside.fetch(addresses, *({"url": url} for url in urls))} == {0}


def test_ensure_again_finds_it_and_another_layout_replaces_it(make_network: Network, tmp_path: Path) -> None:
    network = make_network(tmp_path / "net")
    first = network.ensure(["algo-1"], {}, isolated=False)
    state = network.state()
    assert network.ensure(["algo-1"], {}, isolated=False) == first and network.state() == state
    network.ensure(["algo-1", "algo-2"], {}, isolated=True)
    assert state is not None and not is_alive(state.pid, state.start)
    assert not is_alive(state.holder_pid, state.holder_start)
    assert network.is_alive()


def test_it_ends_with_its_folder_and_when_killed(make_network: Network, tmp_path: Path) -> None:
    network = make_network(tmp_path / "net")
    network.ensure(["algo-1"], {}, isolated=False)
    state = network.state()
    assert state is not None
    os.rename(tmp_path / "net", tmp_path / "moved")
    wait_until(lambda: not is_alive(state.pid, state.start) and not is_alive(state.holder_pid, state.holder_start))
    network.ensure(["algo-1"], {}, isolated=False)
    state = network.state()
    assert state is not None
    os.kill(state.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(state.holder_pid, state.holder_start))
    assert not network.is_alive()
    network.ensure(["algo-1"], {}, isolated=False)
    assert network.is_alive()
    network.remove()
    assert not (tmp_path / "net").exists()


def test_bulk_bytes_pass_unchanged(inside: Inside) -> None:
    size = 32 << 20
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                while connection.recv(65536):
                    pass
                connection.sendall(bytes(range(256)) * (size // 256))

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        addresses = inside.network.ensure(["algo-1"], {"bulk": url}, isolated=False)
        port = addresses.forwards["bulk"].rsplit(":", 1)[1]
        script = (
            "import hashlib, socket, sys\ns = socket.create_connection(('10.210.0.1', int(sys.argv[1])))\n"
            "s.sendall(b'x' * 1_000_000); s.shutdown(1)\nh = hashlib.sha256(); n = 0\n"
            "while data := s.recv(1 << 18): h.update(data); n += len(data)\nprint(n, h.hexdigest())"
        )
        spec = make_spec(
            inside.folder / "bulk",
            python(script, port),
            hosts=addresses.hosts,
            network="cluster",
            network_dir=str(inside.network.directory),
        )
        handle = inside.start(spec)
        assert handle.wait(60) is not None
        thread.join(30)
    import hashlib

    expected = hashlib.sha256(bytes(range(256)) * (size // 256)).hexdigest()
    assert log_lines(handle) == [f"{size} {expected}"]


def test_the_egress_proxy_tunnels(inside: Inside) -> None:
    """CONNECT, as https uses it: bytes pass both ways, and an end of one side ends the other."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"pong " + connection.recv(100))

        thread = threading.Thread(target=serve)
        thread.start()
        addresses = inside.network.ensure(["algo-1"], {}, isolated=False, egress_allow=[f"127.0.0.1:{port}"])
        script = (
            "import base64, socket, sys\nfrom urllib.parse import urlsplit\nproxy = urlsplit(sys.argv[1])\n"
            "word = base64.b64encode(f'{proxy.username}:{proxy.password}'.encode()).decode()\n"
            "s = socket.create_connection((proxy.hostname, proxy.port))\n"
            "s.sendall(f'CONNECT {sys.argv[2]} HTTP/1.1\\r\\nProxy-Authorization: Basic {word}\\r\\n\\r\\n'.encode())\n"
            "print(s.recv(1000).split(b'\\r\\n')[0].decode())\ns.sendall(b'ping')\n"
            "print(s.recv(100).decode(), s.recv(100))"
        )
        spec = make_spec(
            inside.folder / "tunnel",
            python(script, str(addresses.egress_proxy), f"127.0.0.1:{port}"),
            hosts=addresses.hosts,
            network="cluster",
            network_dir=str(inside.network.directory),
        )
        handle = inside.start(spec)
        assert handle.wait(60) is not None
        thread.join(30)
    assert log_lines(handle) == ["HTTP/1.1 200 Connection established", "pong ping b''"]
