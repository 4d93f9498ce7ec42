"""The stand-in shim: lets a script that was written for GPUs run on an instance whose accelerators are absent.

It is on where a job's instance type has accelerators that the node lacks, and off where the job's Environment sets
TRAINSHED_STANDIN=0. Exactly this is mapped, and nothing else:

* `torch.distributed`: backend `nccl` (alone, or `cuda:nccl` in a list) → `gloo` in init_process_group and new_group; a
  CUDA `device_id` is dropped; `init_device_mesh("cuda", …)` → `"cpu"`.
* `DistributedDataParallel`: `device_ids` and `output_device` are dropped.
* A CUDA device asked for by name, number or torch.device means the CPU in: `Tensor.to/.cuda`, `Module.to/.cuda`,
  torch's tensor factories (`zeros`, `tensor`, `randn`, …, `Tensor.new_*`), `torch.Generator`,
  `torch.set_default_device`, and `torch.load(map_location=…)`, where a missing map_location means the CPU, too.
* `torch.cuda.set_device` keeps the number that `torch.cuda.current_device` answers; `torch.cuda.synchronize` returns at
  once; `Tensor.pin_memory` returns the tensor.

Not mapped, on purpose: `torch.cuda.is_available()` stays False and `torch.cuda.device_count()` stays 0, so scripts and
libraries that ask first take their own CPU path; autocast and GradScaler switch themselves off. `torch.device("cuda")`
is an ordinary device object. Streams, events, graphs and memory figures fail as they do on any machine without CUDA.

The module runs in user processes only, by `standin_hook/sitecustomize.py`; torch is imported already when it loads.
"""

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import device_mesh, distributed_c10d
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel import distributed as ddp_module

_CPU = torch.device("cpu")
_active = False
_current = 0


def activate() -> None:
    """Applies the shim, once per process. The launcher has said in the job's log that it is on."""
    global _active
    if _active or _is_launcher():
        return
    _active = True
    _patch_distributed()
    _patch_placement()
    _patch_factories()
    _patch_cuda()


def is_cuda(device: object) -> bool:
    """Whether a device as scripts write it (name, torch.device) is a CUDA device."""
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, str) and (device == "cuda" or device.startswith("cuda:"))


def cpu_backend(backend: object) -> object:
    """`nccl` → `gloo`; in a list such as `cpu:gloo,cuda:nccl` the CUDA entries are dropped. Others stay."""
    if not isinstance(backend, str):
        return backend
    name = backend.lower()
    if name == "nccl":
        return "gloo"
    if ":" not in name:
        return backend
    kept = [entry for entry in name.split(",") if not entry.strip().startswith("cuda:")]
    return ",".join(kept) if kept else "gloo"


def _is_launcher() -> bool:
    """torchrun's own process, which only starts others."""
    return "torch.distributed.run" in sys.orig_argv or os.path.basename(sys.argv[0] if sys.argv else "") == "torchrun"


def _mapped(value: Any) -> Any:
    return _CPU if is_cuda(value) else value


def _on_cpu(function: Callable[..., Any], positional: bool = False) -> Callable[..., Any]:
    """Maps a CUDA `device=` (and, if `positional`, the first argument after self) to the CPU."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs and is_cuda(kwargs.get("device")):
            kwargs["device"] = _CPU
        if positional and len(args) > 1 and is_cuda(args[1]):
            args = (args[0], _CPU, *args[2:])
        return function(*args, **kwargs)

    return call


def _patch_distributed() -> None:
    init, new_group, mesh = dist.init_process_group, dist.new_group, dist.init_device_mesh

    @functools.wraps(init)
    def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        if is_cuda(kwargs.get("device_id")) or isinstance(kwargs.get("device_id"), int):
            kwargs.pop("device_id")
        return init(cpu_backend(backend), *args, **kwargs)

    @functools.wraps(new_group)
    def group(ranks: Any = None, timeout: Any = None, backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        return new_group(ranks, timeout, cpu_backend(backend), *args, **kwargs)

    @functools.wraps(mesh)
    def init_device_mesh(device_type: str, *args: Any, **kwargs: Any) -> Any:
        return mesh("cpu" if is_cuda(device_type) else device_type, *args, **kwargs)

    dist.init_process_group = distributed_c10d.init_process_group = init_process_group
    dist.new_group = distributed_c10d.new_group = group
    dist.init_device_mesh = device_mesh.init_device_mesh = init_device_mesh

    original = DistributedDataParallel.__init__

    @functools.wraps(original)
    def ddp(
        self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        original(self, module, None, None, *args, **kwargs)

    ddp_module.DistributedDataParallel.__init__ = ddp  # type: ignore[method-assign]


def _patch_placement() -> None:
    module_to, load = torch.nn.Module.to, torch.load

    def tensor_cuda(self: torch.Tensor, device: Any = None, non_blocking: bool = False, **kwargs: Any) -> torch.Tensor:
        """The tensor itself: it is on the CPU already."""
        return self

    def module_cuda(self: torch.nn.Module, device: Any = None) -> torch.nn.Module:
        """The module itself: it is on the CPU already."""
        return module_to(self, _CPU)

    def number_is_cuda(function: Callable[..., Any]) -> Callable[..., Any]:
        """`.to(0)` means the CUDA device 0."""
        mapped = _on_cpu(function, positional=True)

        @functools.wraps(function)
        def to(self: Any, *args: Any, **kwargs: Any) -> Any:
            if args and type(args[0]) is int:
                args = (_CPU, *args[1:])
            if type(kwargs.get("device")) is int:
                kwargs["device"] = _CPU
            return mapped(self, *args, **kwargs)

        return to

    @functools.wraps(load)
    def load_on_cpu(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if map_location is None or is_cuda(map_location):
            map_location = _CPU
        elif isinstance(map_location, dict):
            map_location = {source: "cpu" if is_cuda(target) else target for source, target in map_location.items()}
        return load(f, map_location, *args, **kwargs)

    torch.Tensor.to = number_is_cuda(torch.Tensor.to)  # type: ignore[method-assign]
    torch.Tensor.cuda = tensor_cuda  # type: ignore[method-assign,assignment]
    torch.Tensor.pin_memory = lambda self, device=None: self  # type: ignore[method-assign,assignment,misc]
    torch.nn.Module.to = number_is_cuda(module_to)  # type: ignore[method-assign]
    torch.nn.Module.cuda = module_cuda  # type: ignore[method-assign,assignment]
    torch.load = load_on_cpu


_FACTORIES = (
    *("arange", "as_tensor", "asarray", "empty", "empty_like", "empty_strided", "eye", "full", "full_like", "linspace"),
    *("logspace", "normal", "ones", "ones_like", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like"),
    *("randperm", "scalar_tensor", "tensor", "tril_indices", "triu_indices", "zeros", "zeros_like"),
    *("bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"),
)
_NEW = ("new_empty", "new_full", "new_ones", "new_tensor", "new_zeros")


def _patch_factories() -> None:
    for name in _FACTORIES:
        setattr(torch, name, _on_cpu(getattr(torch, name)))
    for name in _NEW:
        setattr(torch.Tensor, name, _on_cpu(getattr(torch.Tensor, name)))
    original = torch.Generator
    default_device = torch.set_default_device

    class GeneratorType(type(original)):  # type: ignore[misc]
        """Generators that torch made itself count as generators, too."""

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

    class Generator(original, metaclass=GeneratorType):  # type: ignore[misc,valid-type]
        """torch.Generator; a CUDA device means the CPU."""

        def __new__(cls, device: Any = "cpu") -> Any:
            return original.__new__(cls, device=_mapped(device))

    torch.Generator = Generator  # type: ignore[misc]
    torch.set_default_device = lambda device: default_device(_mapped(device))


def _patch_cuda() -> None:
    def set_device(device: Any) -> None:
        """Keeps the device's number."""
        global _current
        index = device if isinstance(device, int) else torch.device(device).index
        _current = index if index is not None else _current

    torch.cuda.set_device = set_device
    torch.cuda.current_device = lambda: _current
    torch.cuda.synchronize = lambda device=None: None
