"""AWS's layout of a sharded checkpoint, written and read: the folder `{tag}_partial` with, for each place i of a
partition group, `model_{i}.pt` (buffers, and parameters that no optimizer holds) and `optimizer_{i}.pt` (master weights
of each optimizer group as one flat tensor, and the states); `fp16_states_{i}.pt` where losses are scaled, and
`user_content.pt`. `newest` holds the folder's name.

Invariants: pieces are flat, of ceil(numel / partition_count) elements, in the optimizer's order, so AWS's merge helper
reads the folder; it is loaded under any degree and world size by ranges of elements; one copy of the model writes it.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from trainshed_runtime.checkpoints import durable
from trainshed_runtime.checkpoints.commit import Commit
from trainshed_runtime.checkpoints.flat import Place, Read, fill, flat_piece, piece_size, place_of, reader
from trainshed_runtime.checkpoints.names import buffers_of, named_groups, parameters_of
from trainshed_runtime.checkpoints.states import apply_optimizer

logger = logging.getLogger("trainshed.checkpoints")
USER_CONTENT = "user_content.pt"
_PREFIX = "module."


def save_partial(
    root: Path,
    tag: str,
    module: nn.Module,
    optimizer: torch.optim.Optimizer | None,
    user_content: Any,
    scales: Mapping[str, Any] | None,
    group: dist.ProcessGroup | None,
    kept: int | None = None,
) -> None:
    """Save as `root/{tag}_partial` and make it the newest; a collective call. CheckpointFailed where a rank could not.

    `scales`: the loss scale's state under fp16; `kept`: how many partial checkpoints stay.
    """
    place = place_of(module)
    files = _files(module, optimizer, scales, place) if place.first else {}
    if not dist.is_initialized() or dist.get_rank() == 0:
        files[USER_CONTENT] = _with_shapes(user_content, module, optimizer)
    name = tag + durable.PARTIAL
    commit = Commit(root, name, group)
    commit.begin()

    def write(folder: Path) -> None:
        for file_name, content in files.items():
            durable.write_file(folder / file_name, lambda file, content=content: torch.save(content, file))  # type: ignore[misc]

    commit.write(write)
    prune = (lambda: durable.prune(root, durable.PARTIAL, max(1, kept), name)) if kept is not None else None
    commit.finish(prune)


def _files(
    module: nn.Module, optimizer: torch.optim.Optimizer | None, scales: Mapping[str, Any] | None, place: Place
) -> dict[str, Any]:
    """This place's files by name."""
    files: dict[str, Any] = {}
    held: set[str] = set()
    if optimizer is not None:
        content = _optimizer_file(module, optimizer, place)
        held = {name for names in content["names"] for name in names}
        files[f"optimizer_{place.index}.pt"] = content
    others = {name: value for name, value in parameters_of(module).items() if name not in held}
    files[f"model_{place.index}.pt"] = {
        "module": {name: buffer.detach().cpu() for name, buffer in buffers_of(module).items()},
        "partition_count": place.count,
        "parameters": {name: flat_piece(value, place) for name, value in others.items()},
        "shapes": {name: tuple(value.shape) for name, value in others.items()},
    }
    if scales is not None:
        files[f"fp16_states_{place.index}.pt"] = {"loss_scale": dict(scales)}
    return files


def _optimizer_file(module: nn.Module, optimizer: torch.optim.Optimizer, place: Place) -> dict[str, Any]:
    groups, names, shapes, options_of = [], [], [], []
    sharded: dict[str, dict[str, torch.Tensor]] = {}
    plain: dict[str, dict[str, Any]] = {}
    for options, named in named_groups(module, optimizer):
        pieces = [flat_piece(parameter, place) for _, parameter in named]
        groups.append(torch.cat(pieces) if pieces else torch.empty(0))
        names.append([name for name, _ in named])
        shapes.append([tuple(parameter.shape) for _, parameter in named])
        options_of.append(options)
        for name, parameter in named:
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor) and value.shape == parameter.shape and value.dim():
                    sharded.setdefault(name, {})[key] = flat_piece(value, place)
                else:
                    plain.setdefault(name, {})[key] = value.detach().cpu() if isinstance(value, torch.Tensor) else value
    return {
        "partition_count": place.count,
        "fp32_flat_groups": groups,
        "names": names,
        "shapes": shapes,
        "param_groups": options_of,
        "state": sharded,
        "plain_state": plain,
    }


def _with_shapes(user_content: Any, module: nn.Module, optimizer: torch.optim.Optimizer | None) -> Any:
    """With what the merge helper needs, where the user's content is a mapping that lacks it."""
    if user_content is None:
        user_content = {}
    if not isinstance(user_content, dict):
        return user_content
    known = dict(user_content)
    known.setdefault("buffer_names", list(buffers_of(module)))
    if optimizer is not None:
        known.setdefault(
            "param_shapes",
            [
                OrderedDict((name, parameter.shape) for name, parameter in named)
                for _, named in named_groups(module, optimizer)
            ],
        )
    return known


class PartialCheckpoint:
    """A folder of that layout, mapped file by file as it is read. FileNotFoundError where one is missing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no checkpoint {folder}")
        self._opened: dict[str, Any] = {}
        self.count = self._partition_count()
        present = {path.name for path in folder.iterdir()}
        kinds = ["model", *(["optimizer"] if self.has_optimizer else [])]
        for kind in kinds:
            missing = [name for name in (f"{kind}_{i}.pt" for i in range(self.count)) if name not in present]
            if missing:
                raise FileNotFoundError(
                    f"{folder} was saved by {self.count} ranks, but lacks {', '.join(missing[:5])}; a checkpoint that "
                    "was written on several hosts has to be brought together first"
                )

    @property
    def has_optimizer(self) -> bool:
        return (self.folder / "optimizer_0.pt").exists()

    def _partition_count(self) -> int:
        first = "optimizer_0.pt" if self.has_optimizer else "model_0.pt"
        count = self._open(first).get("partition_count", 1)
        return int(max(count) if isinstance(count, list) else count)

    def _open(self, name: str) -> Any:
        if name not in self._opened:
            path = self.folder / name
            if not path.exists():
                raise FileNotFoundError(f"{self.folder} has no {name}")
            self._opened[name] = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        return self._opened[name]

    def user_content(self) -> Any:
        """What the user gave, whatever classes it holds: a checkpoint is trusted as the script itself is."""
        path = self.folder / USER_CONTENT
        return torch.load(path, map_location="cpu", weights_only=False) if path.exists() else None

    def loss_scale(self) -> dict[str, Any] | None:
        states = self.folder / "fp16_states_0.pt"
        return self._open(states.name)["loss_scale"] if states.exists() else None

    def buffers(self) -> dict[str, torch.Tensor]:
        return {_stripped(name): value for name, value in self._open("model_0.pt").get("module", {}).items()}

    def parameters(self) -> dict[str, tuple[torch.Size, Read]]:
        """Every parameter that is in the checkpoint: its shape and how to read it."""
        found: dict[str, tuple[torch.Size, Read]] = {}
        first = self._open("model_0.pt")
        for name, shape in first.get("shapes", {}).items():
            found[name] = (
                torch.Size(shape),
                self._reader("model", torch.Size(shape), lambda file, n=name: file["parameters"][n]),
            )
        if self.has_optimizer:
            for group, (names, shapes) in enumerate(self._layout()):
                offset = 0
                for name, shape in zip(names, shapes, strict=True):
                    size = piece_size(shape.numel(), self.count)
                    place = slice(offset, offset + size)
                    found[name] = (
                        shape,
                        self._reader("optimizer", shape, lambda file, g=group, p=place: file["fp32_flat_groups"][g][p]),
                    )
                    offset += size
        return found

    def states(self) -> dict[str, Read]:
        """`name.key` of each sharded optimizer state → how to read it."""
        first = self._open("optimizer_0.pt")
        shapes = {name: shape for names, sizes in self._layout() for name, shape in zip(names, sizes, strict=True)}
        return {
            f"{name}.{key}": self._reader("optimizer", shapes[name], lambda file, n=name, k=key: file["state"][n][k])
            for name, values in first.get("state", {}).items()
            for key in values
        }

    def groups(self) -> list[dict[str, Any]] | None:
        """The optimizer's groups as `apply_optimizer` takes them; None where another writer left none."""
        first = self._open("optimizer_0.pt")
        if "param_groups" not in first or "names" not in first:
            return None
        return [
            {"options": options, "names": names, "plain": {n: first["plain_state"].get(n, {}) for n in names}}
            for options, names in zip(first["param_groups"], first["names"], strict=True)
        ]

    def _layout(self) -> list[tuple[list[str], list[torch.Size]]]:
        """Names and shapes of each group, from the file itself or, of another writer, from the user's content."""
        first = self._open("optimizer_0.pt")
        if "names" in first:
            pairs = zip(first["names"], first["shapes"], strict=True)
            return [(list(names), [torch.Size(shape) for shape in shapes]) for names, shapes in pairs]
        content = self.user_content()
        if not isinstance(content, dict) or "param_shapes" not in content:
            raise ValueError(
                f"{self.folder} does not say which parameters it holds: its user content has no param_shapes"
            )
        return [([_stripped(name) for name in group], list(group.values())) for group in content["param_shapes"]]

    def _reader(self, kind: str, shape: torch.Size, piece: Any) -> Read:
        size = piece_size(shape.numel(), self.count)

        def read(first: int, last: int) -> torch.Tensor:
            parts = []
            for index in range(first // size, (last - 1) // size + 1):
                flat = piece(self._open(f"{kind}_{index}.pt"))
                parts.append(flat[max(first - index * size, 0) : last - index * size])
            return parts[0] if len(parts) == 1 else torch.cat(parts)

        return read


def load_partial(
    folder: Path,
    module: nn.Module,
    optimizer: torch.optim.Optimizer | None,
    strict: bool = True,
    load_states: bool = True,
) -> PartialCheckpoint:
    """Fill the module, and the optimizer where it is given, from a checkpoint of any degree; each rank reads its part.

    `load_states=False` leaves the optimizer's own states as they are. ValueError where names or shapes differ.
    """
    checkpoint = PartialCheckpoint(folder)
    here, there = parameters_of(module), checkpoint.parameters()
    buffers, stored = buffers_of(module), checkpoint.buffers()
    missing = [name for name in here if name not in there] + [name for name in buffers if name not in stored]
    unknown = [name for name in there if name not in here]
    if strict and (missing or unknown):
        raise ValueError(f"{folder} does not fit the module: missing {missing[:5]}, unexpected {unknown[:5]}")
    for name, target in here.items():
        if name in there:
            shape, read = there[name]
            if shape != target.shape:
                raise ValueError(f"{folder} holds {name} as {tuple(shape)}, the module as {tuple(target.shape)}")
            fill(target, read)
    for name, target in buffers.items():
        if name in stored:
            fill(target, reader(stored[name]))
    if optimizer is not None and load_states and checkpoint.has_optimizer:
        _load_states(checkpoint, module, optimizer)
    return checkpoint


def _load_states(checkpoint: PartialCheckpoint, module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    groups = checkpoint.groups()
    if groups is None:
        logger.warning(
            "%s was written by another library: its weights are loaded, its optimizer states are not", checkpoint.folder
        )
        return
    known = parameters_of(module)
    tensors = {}
    for name, read in checkpoint.states().items():
        parameter = known.get(name.rpartition(".")[0])
        if parameter is None:
            continue
        tensors[name] = torch.zeros_like(parameter, requires_grad=False)
        fill(tensors[name], read)
    apply_optimizer(module, optimizer, tensors, groups)


def _stripped(name: str) -> str:
    """Without the prefix that the model's wrapper gives names in AWS's files."""
    return name.removeprefix(_PREFIX)
