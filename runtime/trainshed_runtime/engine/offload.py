"""Inputs of checkpointed layers wait for their backward pass in host memory.

Invariants: a layer's inputs are copied to the host right after they were saved, and are on the device again before the
layer's backward pass needs them; then the inputs of at most `horizon` layers are there at once. On CUDA both copies run
on a stream of their own, out of and into pinned buffers that are used again; on a CPU they are done when they return,
with the same order of loads. What belongs to a graph that is dropped is dropped with it.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_SMALL = 256  # elements below which a copy costs more than it frees


class ActivationOffload:
    """One for a process. `horizon`: layers whose inputs may be on the device during the backward pass, at least 1."""

    def __init__(self, horizon: int, device: torch.device) -> None:
        if horizon < 1:
            raise ValueError(f"activation_loading_horizon is {horizon}; it must be at least 1")
        self._horizon = horizon
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._pool: defaultdict[tuple[torch.dtype, int], list[torch.Tensor]] = defaultdict(list)
        self._layers: list[list[weakref.ref[_Saved]]] = []
        self.most_loaded = 0
        """The most layers that were on the device at once during a backward pass."""

    @contextmanager
    def layer(self) -> Iterator[None]:
        """What a layer saves inside belongs to it."""
        self._layers = [layer for layer in self._layers if any(saved() is not None for saved in layer)]
        own: list[weakref.ref[_Saved]] = []
        self._layers.append(own)

        def pack(tensor: torch.Tensor) -> object:
            if not tensor.requires_grad or tensor.numel() < _SMALL or tensor.is_leaf:
                return tensor
            saved = _Saved(own, self._to_host(tensor), tensor)
            own.append(weakref.ref(saved))
            return saved

        with torch.autograd.graph.saved_tensors_hooks(pack, self._unpack):
            yield

    def _unpack(self, saved: object) -> torch.Tensor:
        if not isinstance(saved, _Saved):
            assert isinstance(saved, torch.Tensor)
            return saved
        place = next(index for index, layer in enumerate(self._layers) if layer is saved.layer)
        del self._layers[place + 1 :]  # their backward passes are over
        for layer in self._layers[max(0, place + 1 - self._horizon) : place + 1]:
            for reference in layer:
                found = reference()
                if found is not None and found.loaded is None:
                    self._load(found)
        loaded = sum(any(self._is_loaded(reference) for reference in layer) for layer in self._layers)
        self.most_loaded = max(self.most_loaded, loaded)
        assert saved.loaded is not None
        if saved.event is not None:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(saved.event)
            saved.loaded.record_stream(stream)
        return saved.loaded

    @staticmethod
    def _is_loaded(reference: weakref.ref[_Saved]) -> bool:
        saved = reference()
        return saved is not None and saved.loaded is not None

    def _to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        free = self._pool[tensor.dtype, tensor.numel()]
        if free:
            host = free.pop()
        else:
            host = torch.empty(tensor.numel(), dtype=tensor.dtype, pin_memory=self._stream is not None)
        source = tensor.detach()
        if self._stream is None:
            host.view(source.shape).copy_(source)
            return host
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            host.view(source.shape).copy_(source, non_blocking=True)
        source.record_stream(self._stream)
        return host

    def _load(self, saved: _Saved) -> None:
        host, saved.host = saved.host, None
        assert host is not None
        if self._stream is None:
            saved.loaded = host.view(saved.shape).clone()
        else:
            with torch.cuda.stream(self._stream):
                saved.loaded = host.view(saved.shape).to(self._device, non_blocking=True)
                saved.event = self._stream.record_event()
        self._pool[host.dtype, host.numel()].append(host)  # what is written to it next is ordered after this load


class _Saved:
    """One tensor: in `host` until it is loaded."""

    def __init__(self, layer: list[weakref.ref[_Saved]], host: torch.Tensor, tensor: torch.Tensor) -> None:
        self.layer = layer
        self.host: torch.Tensor | None = host
        self.shape = tensor.shape
        self.loaded: torch.Tensor | None = None
        self.event: torch.cuda.Event | None = None
