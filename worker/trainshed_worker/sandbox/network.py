"""A cluster's own network on this machine, as the agent sees it: made once, kept with the warm pool, removed at its
end.

Invariant: one netd process per folder. It owns the network namespace with the bridge and everything that leads out of
it; nothing else connects the cluster to the world, so what netd does not forward cannot be reached.
"""

import json
import secrets
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainshed_worker.sandbox import procs
from trainshed_worker.sandbox.netplan import Addresses, NetPlan, make_plan
from trainshed_worker.sandbox.spawn import spawn
from trainshed_worker.sandbox.spec import SandboxError, read_json, write_atomic

PLAN_FILE, STATE_FILE, TOKENS_FILE = "netd.json", "netd-state.json", "tokens.json"
STOP_TIMEOUT = 5.0


@dataclass(frozen=True)
class NetdState:
    """netd's own process and the one that holds the namespaces, each with its start time. `user_namespace`: the network
    belongs to a user namespace, which an instance joins first."""

    pid: int
    start: int
    holder_pid: int
    holder_start: int
    user_namespace: bool


class ClusterNetwork:
    """The network of one cluster, known by its folder (private to the agent)."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)

    def ensure(
        self, members: list[str], forwards: dict[str, str], isolated: bool, egress_allow: list[str] | None = None
    ) -> Addresses:
        """Make the network, or find it running, and return its addresses.

        `members`: host names in rank order (algo-1 first). `forwards`: name → target URL as reached from this machine's
        own network, e.g. {"api": "http://127.0.0.1:8080", "gateway": …}. `isolated`: members reach each other alone.
        `egress_allow`: "host:port" targets of the egress proxy that may be private (a package mirror of the house).
        Changed targets are taken up by the running network; where members, isolation or names of forwards differ it is
        replaced, so no instance may be in it then. Raises SandboxError where the machine cannot do it.
        """
        current = read_json(self.directory / PLAN_FILE)
        secret = str(current["secret"]) if current is not None else secrets.token_hex(16)
        wanted = make_plan(members, forwards, isolated, egress_allow or [], secret)
        if current is not None and self.is_alive():
            if current["layout"] == json.loads(json.dumps(wanted.layout())):
                if current != json.loads(json.dumps(wanted.to_dict())):
                    write_atomic(self.directory / PLAN_FILE, json.dumps(wanted.to_dict()))
                return wanted.addresses()
            self._stop()
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(self.directory / PLAN_FILE, json.dumps(wanted.to_dict()))
        spawn("netd", self.directory, "netd.log")
        return wanted.addresses()

    def set_credentials(self, token: str, file: str | Path) -> None:
        """Let GET /creds with `Authorization: <token>` answer with this JSON file (AccessKeyId, SecretAccessKey, Token,
        Expiration), read anew at each request: the agent keeps it fresh. One token per instance."""
        tokens = self._tokens()
        tokens[token] = str(file)
        write_atomic(self.directory / TOKENS_FILE, json.dumps(tokens))

    def drop_credentials(self, token: str) -> None:
        """Make the token worthless at once."""
        tokens = self._tokens()
        if tokens.pop(token, None) is not None:
            write_atomic(self.directory / TOKENS_FILE, json.dumps(tokens))

    def is_alive(self) -> bool:
        """True while netd and the holder of its namespaces run."""
        state = self.state()
        return (
            state is not None
            and procs.is_alive(state.pid, state.start)
            and procs.is_alive(state.holder_pid, state.holder_start)
        )

    def state(self) -> NetdState | None:
        raw = read_json(self.directory / STATE_FILE)
        return NetdState(**raw) if raw is not None else None

    def plan(self) -> NetPlan:
        """The plan that the running network follows."""
        raw = read_json(self.directory / PLAN_FILE)
        if raw is None:
            raise SandboxError(f"{self.directory} holds no cluster network; call ensure() first")
        return NetPlan.from_dict(raw)

    def remove(self) -> None:
        """End netd, and with it the namespaces, and delete the folder. Nothing happens where it is gone."""
        self._stop()
        if self.directory.exists():
            shutil.rmtree(self.directory)

    def _tokens(self) -> dict[str, Any]:
        return read_json(self.directory / TOKENS_FILE) or {}

    def _stop(self) -> None:
        state = self.state()
        if state is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            procs.send_signal(state.pid, state.start, number)
            if procs.wait_gone(state.pid, state.start, STOP_TIMEOUT):
                break
        procs.send_signal(state.holder_pid, state.holder_start, signal.SIGKILL)
        if not procs.wait_gone(state.holder_pid, state.holder_start, STOP_TIMEOUT):
            raise SandboxError(f"process {state.holder_pid} of {self.directory} does not end after SIGKILL")
        (self.directory / STATE_FILE).unlink(missing_ok=True)
