"""The processes of the runtime's benchmark: ranks on the nodes of a network, and what they answer.

Invariant: no rank outlives the process that started it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.netns import Network, end_with_parent

_PATIENCE = 900.0  # seconds for one order; a step over a slow link may take long


class RankFailed(Exception):
    """A rank ended or did not answer; the text has its last lines."""


@dataclass(frozen=True)
class Measured:
    """One call on all ranks: the slowest rank's seconds, processor seconds of all, bytes of the busiest node."""

    seconds: float
    cpu: float
    sent: int
    received: int
    value: Any


class Ranks:
    """`per_node` ranks on each of a network's nodes; enter it to start them."""

    def __init__(self, network: Network, per_node: int, python: str = sys.executable, port: int = 29500) -> None:
        self.network, self.per_node, self.python, self.port = network, per_node, python, port
        self.world = network.nodes * per_node
        self._processes: list[subprocess.Popen[str]] = []
        self._errors = tempfile.TemporaryDirectory(prefix="bench-runtime-")

    def __enter__(self) -> Ranks:
        try:
            for rank in range(self.world):
                self._processes.append(self._start(rank))
            for rank in range(self.world):
                self._answer(rank)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.communicate()
        self._processes.clear()
        self._errors.cleanup()

    def order(self, **order: Any) -> Measured:
        """The same order to all ranks; waits for every answer."""
        line = json.dumps(order) + "\n"
        for rank, process in enumerate(self._processes):
            assert process.stdin is not None
            try:
                process.stdin.write(line)
                process.stdin.flush()
            except OSError:
                raise self._failed(rank) from None
        answers = [self._answer(rank) for rank in range(self.world)]
        firsts = answers[:: self.per_node]
        return Measured(
            max(answer.get("seconds", 0.0) for answer in answers),
            sum(answer.get("cpu", 0.0) for answer in answers),
            max(answer.get("sent", 0) for answer in firsts),
            max(answer.get("received", 0) for answer in firsts),
            answers[0].get("value"),
        )

    def _start(self, rank: int) -> subprocess.Popen[str]:
        node, local = divmod(rank, self.per_node)
        numbers = {
            "RANK": rank,
            "WORLD_SIZE": self.world,
            "LOCAL_RANK": local,
            "LOCAL_WORLD_SIZE": self.per_node,
            "MASTER_PORT": self.port,
            "OMP_NUM_THREADS": 1,
            "OPENBLAS_NUM_THREADS": 1,
            "MKL_NUM_THREADS": 1,
        }
        fixed = {"MASTER_ADDR": self.network.address(0), "GLOO_SOCKET_IFNAME": "eth0", "PYTHONWARNINGS": "ignore"}
        environment = {**os.environ, **{name: str(number) for name, number in numbers.items()}, **fixed}
        with open(Path(self._errors.name) / f"rank-{rank}", "w") as errors:
            return subprocess.Popen(
                self.network.command(node, [self.python, "-m", "benchmarks.runtime_ranks"]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
                env=environment,
                cwd=Path(__file__).resolve().parents[1],
                preexec_fn=end_with_parent,
            )

    def _answer(self, rank: int) -> dict[str, Any]:
        stream = self._processes[rank].stdout
        assert stream is not None
        late = threading.Timer(_PATIENCE, self._processes[rank].kill)
        late.start()
        try:
            line = stream.readline()
        finally:
            late.cancel()
        if not line:
            raise self._failed(rank)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _failed(self, rank: int) -> RankFailed:
        process = self._processes[rank]
        process.kill()
        process.wait()
        said = (Path(self._errors.name) / f"rank-{rank}").read_text(errors="replace")
        return RankFailed(f"rank {rank} ended with {process.returncode}:\n{said[-3000:]}")
