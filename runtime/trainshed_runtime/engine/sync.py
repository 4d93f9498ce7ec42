"""The second hop: gradients that each partition group has summed up meet across the replicas, once per optimizer step.

Invariant: the collectives of a boundary are issued in one fixed order on every rank, whatever order backward passes
finish in and whatever a rank's data made it use, so ranks that skip a module never wait for another's different call.
A gradient that no rank of the world has computed is None afterwards, as on one process.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn

from trainshed_runtime.engine.buckets import Bucket, join_small
from trainshed_runtime.engine.fsdp2 import Unit, local
from trainshed_runtime.mesh import MicsMesh


class ReplicaSync:
    """Averages the gradients of sharded units over the replication group, those of `plain` tensors over the world."""

    def __init__(
        self, units: Sequence[Unit], plain: Sequence[nn.Parameter], mesh: MicsMesh, limit: int, overlap: bool
    ) -> None:
        self._mesh = mesh
        self._plain = list(plain)
        self._limit = limit
        self._overlap = overlap
        self._units = list(reversed(units))  # about the order in which backward passes finish them
        self._used = [0] * (sum(len(unit.parameters) for unit in units) + len(self._plain))
        self._offsets: dict[str, int] = {}
        position = 0
        for unit in self._units:
            self._offsets[unit.name] = position
            position += len(unit.parameters)
        self._hooked: set[int] = set()
        self._buckets: list[Bucket] = []
        self._members: list[list[Unit]] = []
        self._arrived: dict[str, set[int]] = {}
        self._started = 0
        self._active = False
        self._in_pass = False
        self.unseen = False
        """Whether gradients came from a backward pass that did not go through the module's own output."""
        self._hook()

    def watch(self) -> None:
        """Learn which gradients autograd makes; called after each forward pass, since units gather when first used."""
        for unit in self._units:
            offset = self._offsets[unit.name]
            unit.on_full_gradient(lambda index, start=offset: self._use(start + index))

    def begin(self, boundary: bool) -> None:
        """A backward pass begins. A gradient that somebody has set to None counts as never made."""
        self._hook()
        self._in_pass = True
        for index, parameter in enumerate(self._all()):
            if parameter.grad is None:
                self._used[index] = 0
        self._active = boundary
        if boundary:
            self._prepare()

    def end_pass(self) -> None:
        """A backward pass has ended."""
        self._in_pass = False

    def finish(self) -> None:
        """At the end of the boundary's backward pass: all gradients are averaged, or None where nobody has one."""
        if not self._active:
            self._prepare()
        self._active = False
        self.unseen = False
        flags, agreed = None, None
        if self._mesh.world_size > 1 and self._used:
            flags = torch.tensor(self._used, dtype=torch.uint8, device=self._mesh.device)
            agreed = dist.all_reduce(flags, op=dist.ReduceOp.MAX, async_op=True)
        while self._started < len(self._buckets):
            self._start_next()
        for bucket in self._buckets:
            bucket.finish()
        self._buckets = []
        if agreed is not None and flags is not None:
            agreed.wait()
            self._used = flags.tolist()
        for parameter, used in zip(self._all(), self._used, strict=True):
            if not used:
                parameter.grad = None
        # What has been averaged counts as made by everybody: a further backward pass adds to it.
        self._used = [int(parameter.grad is not None) for parameter in self._all()]

    def _all(self) -> list[nn.Parameter]:
        return [*(parameter for unit in self._units for parameter in unit.parameters), *self._plain]

    def _hook(self) -> None:
        """Each parameter once, when it is trainable: it may be frozen now and not later."""
        for unit in self._units:
            for index, parameter in enumerate(unit.parameters):
                if parameter.requires_grad and id(parameter) not in self._hooked:
                    self._hooked.add(id(parameter))
                    parameter.register_post_accumulate_grad_hook(lambda _, u=unit, i=index: self._sharded(u, i))
        first = len(self._used) - len(self._plain)
        for index, parameter in enumerate(self._plain):
            if parameter.requires_grad and id(parameter) not in self._hooked:
                self._hooked.add(id(parameter))
                parameter.register_post_accumulate_grad_hook(lambda _, i=first + index: self._use(i))

    def _use(self, index: int) -> None:
        self._used[index] = 1

    def _prepare(self) -> None:
        """Buckets of what is trainable now."""
        self._arrived = {unit.name: set() for unit in self._units}
        self._started = 0
        self._buckets, self._members = [], []
        if self._mesh.replicas > 1:
            trainable = [[param for param in unit.parameters if param.requires_grad] for unit in self._units]
            sizes = [sum(local(parameter).numel() for parameter in found) for found in trainable]
            for indices in join_small(sizes):
                parameters = [parameter for index in indices for parameter in trainable[index]]
                for some in _of_one_type(parameters):
                    self._buckets.append(Bucket(some, self._mesh.replication_group, self._limit))
                    self._members.append([self._units[index] for index in indices])
        world = dist.group.WORLD
        if self._mesh.world_size > 1 and world is not None:
            for some in _of_one_type([parameter for parameter in self._plain if parameter.requires_grad]):
                self._buckets.append(Bucket(some, world, self._limit))
                self._members.append([])

    def _sharded(self, unit: Unit, index: int) -> None:
        """A reduce-scatter has left a parameter's sharded gradient."""
        if not self._in_pass:
            self.unseen = True
        if not (self._active and self._overlap):
            return
        self._arrived[unit.name].add(index)
        while self._started < len(self._buckets) and self._is_ready(self._started):
            self._start_next()

    def _is_ready(self, bucket: int) -> bool:
        members = self._members[bucket]
        return bool(members) and all(self._is_complete(unit) for unit in members)

    def _is_complete(self, unit: Unit) -> bool:
        """Whether nothing more will be added: a unit that ran forward more than once is scattered more than once."""
        if unit.calls > 1:
            return False
        needed = {index for index, parameter in enumerate(unit.parameters) if parameter.requires_grad}
        return needed <= self._arrived[unit.name]

    def _start_next(self) -> None:
        self._buckets[self._started].start()
        self._started += 1


def _of_one_type(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Divided by dtype, in order of first appearance; no empty parts."""
    found: dict[torch.dtype, list[nn.Parameter]] = {}
    for parameter in parameters:
        found.setdefault(parameter.dtype, []).append(parameter)
    return list(found.values())
