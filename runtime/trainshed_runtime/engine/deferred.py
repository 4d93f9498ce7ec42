"""Delayed initialization: modules are made without memory, and each weight is computed when only its shard is kept.

While `recording()`, tensors are made on torch's meta device and what is done to them goes on a tape. `Plan.fill` runs
the tape later, on the CPU, in its order: one whole tensor at a time where layers initialize theirs one after the other.
Invariants: every rank runs the same tape, so weights do not depend on the degree. `replay` draws from the generator as
it stood when recording began, also what is overwritten afterwards: weights equal those of the module made without
delay after the same `manual_seed`. `per_parameter` seeds each draw by the parameter's name, and leaves out what is
overwritten: weights do not depend on other modules, either.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Literal

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from trainshed_runtime.engine.fsdp2 import like

Mode = Literal["replay", "per_parameter"]
_META = torch.device("meta")
_CPU = torch.device("cpu")
_OVERWRITES = {"normal_", "uniform_", "zero_", "fill_", "copy_", "exponential_", "log_normal_", "cauchy_", "geometric_"}
_IS_META = torch.Tensor.is_meta.__get__  # type: ignore[attr-defined]
_CONSTANTS = (torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy)


@dataclass(frozen=True)
class _Ref:
    """A tensor on the tape: where it lies in which storage."""

    storage: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    whole: bool


@dataclass
class _Op:
    run: Callable[..., Any]
    args: Any
    kwargs: Any
    creates: list[tuple[int, int]]
    """Storages that begin with it, and the places of its results that hold them."""
    reads: set[int]
    writes: set[int]
    overwrites: bool
    random: bool


@dataclass
class Tape:
    """What happened in one `recording()`."""

    rng_state: torch.Tensor
    mode: Mode
    seed: int
    ops: list[_Op] = field(default_factory=list)
    open: bool = False
    kept: dict[int, torch.Tensor] = field(default_factory=dict)
    """Storages' first tensors; they keep the storages' identities from being used again."""

    def ref(self, tensor: torch.Tensor) -> _Ref:
        storage = tensor.untyped_storage()
        key = storage._cdata
        whole = tensor.storage_offset() == 0 and tensor.is_contiguous()
        whole = whole and tensor.numel() * tensor.element_size() == storage.nbytes()
        return _Ref(key, tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset(), tensor.dtype, whole)


_tapes: list[Tape] = []


class _Recorder(TorchDispatchMode):
    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        leaves = tree_leaves((args, kwargs, result))
        if not any(isinstance(leaf, torch.Tensor) and leaf.device == _META for leaf in leaves):
            return result
        tape = self._tape
        creates = []
        for place, leaf in enumerate(tree_leaves(result)):
            if isinstance(leaf, torch.Tensor) and leaf.untyped_storage()._cdata not in tape.kept:
                tape.kept[leaf.untyped_storage()._cdata] = leaf
                creates.append((leaf.untyped_storage()._cdata, place))
        reads: set[int] = set()
        writes: set[int] = set()
        for place, argument in enumerate(func._schema.arguments):
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            written = argument.alias_info is not None and argument.alias_info.is_write
            for leaf in tree_leaves(value):
                if isinstance(leaf, torch.Tensor) and leaf.device == _META:
                    (writes if written else reads).add(leaf.untyped_storage()._cdata)
        if not creates and not writes:
            return result  # a view
        name = func._schema.name.split("::")[-1]
        first = args[0] if args and isinstance(args[0], torch.Tensor) else None
        overwrites = name in _OVERWRITES and first is not None and tape.ref(first).whole
        tape.ops.append(
            _Op(
                run=func,
                args=tree_map(self._noted, args),
                kwargs=tree_map(self._noted, kwargs),
                creates=creates,
                reads=reads,
                writes=writes,
                overwrites=overwrites,
                random=torch.Tag.nondeterministic_seeded in func.tags,
            )
        )
        return result

    def _noted(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tape.ref(value) if value.device == _META else value.detach().clone()
        return _CPU if value == _META and isinstance(value, torch.device) else value


class _Calls(TorchFunctionMode):
    """What the dispatcher does not show: tensors made of Python's numbers or numpy's, whose values the meta device
    would lose, and those functions of torch.nn.init that do nothing to a tensor once they see it is on it."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func == _IS_META:
            self._note_skipped(args[0], sys._getframe(1))
        if func not in _CONSTANTS or isinstance(args[0] if args else None, torch.Tensor):
            return func(*args, **kwargs)
        if func is not torch.from_numpy:
            kwargs = {**kwargs, "device": _CPU}
        value = func(*args, **kwargs)
        standing = torch.empty(value.shape, dtype=value.dtype, device=_META)
        key = standing.untyped_storage()._cdata
        kept = value.detach().clone()
        self._tape.ops[-1] = _Op(lambda: kept.clone(), (), {}, [(key, 0)], set(), set(), False, False)
        return standing.requires_grad_(value.requires_grad)

    def _note_skipped(self, tensor: torch.Tensor, caller: FrameType) -> None:
        """`caller` is about to skip the tensor; its arguments are what it would have worked with."""
        code = caller.f_code
        if caller.f_globals.get("__name__") != "torch.nn.init" or caller.f_locals.get("tensor") is not tensor:
            return
        given = {
            name: caller.f_locals[name] for name in code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
        }
        ref = self._tape.ref(tensor)
        key = {ref.storage}
        run = getattr(nn.init, code.co_name)
        self._tape.ops.append(_Op(run, (ref,), given, [], set() if ref.whole else key, key, ref.whole, True))


@contextmanager
def recording(mode: Mode = "replay", seed: int | None = None) -> Iterator[Tape]:
    """Modules that are made inside have parameters without memory. `seed` is for `per_parameter`: by default, the
    generator's own."""
    tape = Tape(torch.get_rng_state(), mode, torch.initial_seed() if seed is None else seed)
    _tapes.append(tape)
    tape.open = True
    try:
        with _META, _Recorder(tape), _Calls(tape):
            yield tape
    finally:
        tape.open = False


def is_recording() -> bool:
    """Whether the caller is inside of `recording()`."""
    return any(tape.open for tape in _tapes)


def plan_of(module: nn.Module) -> Plan:
    """What will fill the module, which must not have been changed since it was made. ValueError where its tensors were
    made on the meta device by somebody else."""
    names = {}
    tensors = [*module.named_parameters(), *module.named_buffers()]
    for name, tensor in tensors:
        if tensor.device != _META:
            continue
        owner = next((tape for tape in _tapes if tensor.untyped_storage()._cdata in tape.kept), None)
        if owner is None:
            raise ValueError(
                f"{name} is on the meta device, but was not made under delayed initialization: make the module inside "
                "of smp.model_creation() with delayed_parameter_initialization, or on a real device"
            )
        names[name] = (owner, owner.ref(tensor))
    return Plan(names)


class Plan:
    """Which storage each of a module's tensors is, by name."""

    def __init__(self, names: dict[str, tuple[Tape, _Ref]]) -> None:
        self._names = names

    def fill(self, module: nn.Module, device: torch.device) -> None:
        """Compute the tensors and put them, or this rank's shards of them, into the module, sharded since or not."""
        parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
        for tape in list(_tapes):
            own = {name: ref for name, (owner, ref) in self._names.items() if owner is tape}
            if not own:
                continue
            labels = {ref.storage: name for name, ref in own.items()}

            def keep(storage: int, whole: torch.Tensor, own: dict[str, _Ref] = own) -> None:
                for name, ref in own.items():
                    if ref.storage != storage:
                        continue
                    value = _seen(whole, ref)
                    if name in parameters:
                        _put(parameters[name], value, device)
                    else:
                        _put_buffer(module, name, value, buffers[name], device)

            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                _run(tape, labels, keep)
            _tapes.remove(tape)


def _run(tape: Tape, labels: dict[int, str], keep: Callable[[int, torch.Tensor], None]) -> None:
    torch.set_rng_state(tape.rng_state)
    live = _live(tape, set(labels))
    last: dict[int, int] = {}
    for index in live:
        op = tape.ops[index]
        for storage in (*(key for key, _ in op.creates), *op.reads, *op.writes):
            last[storage] = index
    real: dict[int, torch.Tensor] = {}
    draws: dict[str, int] = {}
    for index, op in enumerate(tape.ops):
        if index not in live:
            if op.random and tape.mode == "replay":  # overwritten later; the generator goes on
                op.run(*tree_map(_room, op.args), **tree_map(_room, op.kwargs))
            continue
        if op.random and tape.mode == "per_parameter":
            label = next((labels[key] for key in op.writes if key in labels), f"#{index}")
            draws[label] = draws.get(label, 0) + 1
            torch.manual_seed(_seed(tape.seed, label, draws[label]))
        result = op.run(*tree_map(lambda v: _real(v, real), op.args), **tree_map(lambda v: _real(v, real), op.kwargs))
        leaves = tree_leaves(result)
        for key, place in op.creates:
            real[key] = leaves[place]
        for key in (*(key for key, _ in op.creates), *op.reads, *op.writes):
            if last[key] == index and key in real:
                if key in labels:
                    keep(key, real[key])
                del real[key]
    for key in labels.keys() - last.keys():  # made by torch.empty, and by nothing else
        first = tape.kept[key]
        keep(key, torch.empty_strided(first.shape, first.stride(), dtype=first.dtype))


def _live(tape: Tape, wanted: set[int]) -> set[int]:
    """The operations that what is wanted at the end depends on."""
    needed, live = set(wanted), set()
    for index in range(len(tape.ops) - 1, -1, -1):
        op = tape.ops[index]
        made = {key for key, _ in op.creates} & needed
        if not made and not op.writes & needed:
            continue
        if made and not op.writes & needed and _makes_nothing(op):
            needed -= made
            continue
        live.add(index)
        needed -= made
        if op.overwrites:
            needed -= op.writes
        needed |= op.reads
    return live


def _makes_nothing(op: _Op) -> bool:
    name = getattr(op.run, "__name__", "")
    return name.startswith(("empty.", "empty_strided", "empty_like", "new_empty"))


def _seed(seed: int, label: str, draw: int) -> int:
    digest = hashlib.blake2b(f"{seed}/{label}/{draw}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _room(value: Any) -> Any:
    if isinstance(value, _Ref):
        return torch.empty_strided(value.size, value.stride, dtype=value.dtype)
    return value


def _real(value: Any, real: dict[int, torch.Tensor]) -> Any:
    if not isinstance(value, _Ref):
        return value
    if value.storage not in real:  # its content is about to be overwritten, or was never anything
        length = sum((size - 1) * step for size, step in zip(value.size, value.stride, strict=True)) + 1
        count = value.offset + (length if all(value.size) else 0)
        real[value.storage] = torch.empty(count, dtype=value.dtype)
    return _seen(real[value.storage], value)


def _seen(whole: torch.Tensor, ref: _Ref) -> torch.Tensor:
    base = whole if whole.dtype == ref.dtype else whole.view(ref.dtype)
    return base.as_strided(ref.size, ref.stride, ref.offset)


def _put(parameter: nn.Parameter, value: torch.Tensor, device: torch.device) -> None:
    """Give the parameter memory and its value; the object stays the same."""
    if isinstance(parameter, DTensor):
        parts = value.chunk(parameter.device_mesh.size(), 0)
        place = parameter.device_mesh.get_local_rank()
        value = parts[place] if place < len(parts) else value[:0]
    own = value.to(device=device, dtype=parameter.dtype, copy=True).contiguous()
    filled = like(parameter, own) if isinstance(parameter, DTensor) else own
    attributes = {name: item for name, item in vars(parameter).items() if name not in ("_local_tensor", "_spec")}
    torch.utils.swap_tensors(parameter, nn.Parameter(filled, requires_grad=parameter.requires_grad))
    vars(parameter).update(attributes)


def _put_buffer(module: nn.Module, name: str, value: torch.Tensor, before: torch.Tensor, device: torch.device) -> None:
    path, _, last = name.rpartition(".")
    module.get_submodule(path)._buffers[last] = value.to(device=device, dtype=before.dtype, copy=True)
