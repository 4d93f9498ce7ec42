"""One rank of the runtime's benchmark: obeys the lines on its standard input, and answers each with a line.

    {"do": "build", "mode": …, "shape": {…}, "accumulation": …}      makes the model and takes a step to warm up
    {"do": "step", "mode": …}                                         one optimizer step
    {"do": "collective", "what": …, "by": …, "mbytes": …, "group": n} one collective over the first n ranks
    {"do": "drop", "mode": …}

All ranks get the same lines. The answer has the seconds between two barriers, and the bytes that the node's interface
has sent and received between them; a node's first rank counts for all of it. Everything is of one process per rank, so
modes can take turns in one run. Standard output is for answers alone.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.netns import sent_and_received
from benchmarks.runtime_modes import build
from benchmarks.runtime_shape import Shape


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries that print do it elsewhere
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=600))
    rank = _Rank()
    answers.write(json.dumps({"ready": dist.get_rank()}) + "\n")
    for line in sys.stdin:
        answers.write(json.dumps(rank.obey(json.loads(line))) + "\n")
    os._exit(0)  # a goodbye over gloo may wait for ranks that have gone


class _Rank:
    def __init__(self) -> None:
        self.per_node = int(os.environ["LOCAL_WORLD_SIZE"])
        self.steps: dict[str, Callable[[], float]] = {}
        self.groups: dict[tuple[str, int], Any] = {}

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        if order["do"] == "build":
            self.steps[order["mode"]] = build(
                order["mode"], Shape(**order["shape"]), order["accumulation"], self.per_node
            )
            return self._timed(self.steps[order["mode"]])
        if order["do"] == "step":
            return self._timed(self.steps[order["mode"]])
        if order["do"] == "drop":
            del self.steps[order["mode"]]
            gc.collect()
            return {}
        return self._timed(self._collective(order))

    def _timed(self, call: Callable[[], Any]) -> dict[str, Any]:
        dist.barrier()
        before, cpu, began = sent_and_received(), time.process_time(), time.perf_counter()
        value = call()
        own = time.perf_counter() - began
        cpu = time.process_time() - cpu
        dist.barrier()
        after = sent_and_received()
        return {
            "seconds": own,
            "cpu": cpu,
            "sent": after[0] - before[0],
            "received": after[1] - before[1],
            "value": value,
        }

    def _collective(self, order: dict[str, Any]) -> Callable[[], Any]:
        what, by, size = order["what"], order["by"], order["group"]
        group = self._group(by, size)
        elements = int(order["mbytes"] * 1e6 / 4) // (2 * size) * 2 * size
        if dist.get_rank() >= size:
            return lambda: None
        whole = torch.ones(elements)
        own = torch.ones(elements // size)
        native = by in {"gloo", "smddp"}
        if what == "all_reduce":
            return lambda: dist.all_reduce(whole, group=group) if native else group.all_reduce(whole)

        def gather_and_scatter() -> None:
            if native:
                dist.all_gather_single(whole, own, group=group)
                dist.reduce_scatter_single(own, whole, group=group)
            else:
                group.all_gather(whole, own)
                group.reduce_scatter(own, whole)

        def scatter() -> None:
            dist.reduce_scatter_single(own, whole, group=group) if native else group.reduce_scatter(own, whole)

        def gather() -> None:
            dist.all_gather_single(whole, own, group=group) if native else group.all_gather(whole, own)

        return {"gather_and_scatter": gather_and_scatter, "reduce_scatter": scatter, "all_gather": gather}[what]

    def _group(self, by: str, size: int) -> Any:
        """A gloo or smddp group, or a communicator that is hierarchical or a ring, of the first `size` ranks."""
        if (by, size) not in self.groups:
            if by == "smddp":
                import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401
            backend = "smddp" if by == "smddp" else "gloo"
            made: Any = dist.new_group(list(range(size)), backend=backend)
            if by in {"ring", "hierarchical"} and dist.get_rank() < size:
                from trainshed_runtime.collectives import Communicator

                made = Communicator.of_group(made, flat=by == "ring")
            self.groups[by, size] = made
        return self.groups[by, size]


if __name__ == "__main__":
    main()
