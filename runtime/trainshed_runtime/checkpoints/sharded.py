"""Sharded checkpoints over torch.distributed.checkpoint: saved by all ranks, at once or behind training; loaded under
any degree and world size.

Invariant: a save is finished by `Commit`, so the newest checkpoint is always whole. An asynchronous save has copied
everything when `save` returns; what training does afterwards is not in it. One save is under way at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint import DefaultLoadPlanner, DefaultSavePlanner, FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from trainshed_runtime.checkpoints import durable
from trainshed_runtime.checkpoints.commit import CheckpointFailed, Commit
from trainshed_runtime.checkpoints.names import named_groups, parameters_of
from trainshed_runtime.checkpoints.states import GROUPS, MODEL, STATE, apply_optimizer, check_groups, staged, state_of

SUFFIX = "_sharded"
_EXTRA = "extra"


class PendingSave:
    """An asynchronous save. `wait()` returns when it is finished, or raises what made it fail."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(work,), name="checkpoint", daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised by wait()
            self._error = error

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> None:
        """`timeout` in seconds; TimeoutError where the save is not finished by then."""
        self._thread.join(timeout)
        if not self.done:
            raise TimeoutError(f"the checkpoint was not finished within {timeout} s")
        error, self._error = self._error, None
        if error is not None:
            raise error


class Checkpointer:
    """Saves and loads one module and its optimizer. Made by every rank of the world: a collective call.

    `timeout`: seconds after which a save fails on the ranks that are left when one is gone. `ready`: says whether the
    state is whole (not in the middle of an accumulation, whose gradients no checkpoint holds).
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        timeout: float = 600.0,
        ready: Callable[[], bool] | None = None,
    ) -> None:
        self.module = module
        self.optimizer = optimizer
        self._ready = ready
        self._pending: PendingSave | None = None
        self._group = control_group(timeout)

    def save(
        self, root: Path | str, tag: str, extra: Any = None, wait: bool = True, kept: int | None = None
    ) -> PendingSave:
        """Save as `root/{tag}_sharded`; `extra`: anything that pickles, the first rank's is kept.

        `kept`: how many finished sharded checkpoints stay. With `wait=False` it returns when all is copied.
        CheckpointFailed where a rank could not write.
        """
        if self._ready is not None and not self._ready():
            raise CheckpointFailed(
                f"checkpoint {tag} was not saved: an accumulation is under way, whose gradients no checkpoint holds; "
                "save after optimizer.step()"
            )
        self.wait()
        state = {**staged(state_of(self.module, self.optimizer)), _EXTRA: extra}
        self._pending = PendingSave(lambda: self._write(Path(root), checked_tag(tag) + SUFFIX, state, kept))
        if wait:
            self.wait()
        return self._pending or PendingSave(lambda: None)

    def wait(self) -> None:
        """Until no save is under way; raises what made the last one fail, once."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.wait()

    def _write(self, root: Path, name: str, state: dict[str, Any], kept: int | None) -> None:
        commit = Commit(root, name, self._group)
        commit.begin()
        commit.write(lambda folder: self._write_part(folder, state))
        prune = (lambda: durable.prune(root, SUFFIX, max(1, kept), name)) if kept is not None else None
        commit.finish(prune)

    def _write_part(self, folder: Path, state: dict[str, Any]) -> None:
        try:
            dcp.save(
                state,
                storage_writer=FileSystemWriter(folder, sync_files=True, overwrite=True),
                planner=DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False),
                process_group=self._group,
                no_dist=self._group is None,
            )
        except dcp.CheckpointException as error:  # torch derives it from BaseException
            reasons = (f"{type(cause).__name__}: {cause} on rank {rank}" for rank, (cause, _) in error.failures.items())
            raise RuntimeError("; ".join(reasons)) from error

    def load(self, root: Path | str, tag: str | None = None, strict: bool = True) -> Any:
        """Load `tag`, or the newest; gives back `extra`. Every rank must see the checkpoint's folder.

        FileNotFoundError where there is none; ValueError where names (if `strict`), shapes or groups differ.
        """
        self.wait()
        folder = find(Path(root), tag, SUFFIX, self._group)
        reader = FileSystemReader(folder)
        metadata = reader.read_metadata()
        target = state_of(self.module, None)
        missing = [name for name in target if name not in metadata.state_dict_metadata]
        unknown = [name for name in metadata.state_dict_metadata if name.startswith(MODEL) and name not in target]
        if strict and (missing or unknown):
            raise ValueError(names_differ(folder, missing, unknown))
        for name in missing:
            del target[name]
        check_shapes(folder, metadata, target)
        optimizer_tensors: dict[str, torch.Tensor] = {}
        if self.optimizer is not None and GROUPS in metadata.state_dict_metadata:
            optimizer_tensors = self._optimizer_target(metadata)
            target.update({STATE + name: value for name, value in optimizer_tensors.items()})
            target[GROUPS] = None
        if _EXTRA in metadata.state_dict_metadata:
            target[_EXTRA] = None
        with torch.no_grad():
            planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
            alone = self._group is None
            dcp.load(target, storage_reader=reader, planner=planner, process_group=self._group, no_dist=alone)
        if self.optimizer is not None and GROUPS in target:
            check_groups(self.module, self.optimizer, target[GROUPS])
            apply_optimizer(self.module, self.optimizer, optimizer_tensors, target[GROUPS])
        return target.get(_EXTRA)

    def _optimizer_target(self, metadata: Metadata) -> dict[str, torch.Tensor]:
        """Room for the saved optimizer tensors of this optimizer's parameters, laid out as the parameters are."""
        assert self.optimizer is not None
        known = parameters_of(self.module)
        held = {name for _, named in named_groups(self.module, self.optimizer) for name, _ in named}
        found = {}
        for full, stored in metadata.state_dict_metadata.items():
            if not full.startswith(STATE) or not isinstance(stored, TensorStorageMetadata):
                continue
            name = full.removeprefix(STATE)
            parameter = name.rpartition(".")[0]
            if parameter not in held:
                continue
            found[name] = room_for(known[parameter], stored.size, stored.properties.dtype)
        return found


def control_group(timeout: float) -> dist.ProcessGroup | None:
    """A gloo group of the world for the saves' own agreement, apart from training's; None where there is no world."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return None
    return dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout))


def room_for(parameter: torch.Tensor, size: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """Zeros of a saved state's size: laid out as the parameter where it has its shape, else whole on every rank."""
    if size == parameter.shape:
        return torch.zeros_like(parameter, dtype=dtype, requires_grad=False)
    device = parameter.device if size else torch.device("cpu")  # optimizers keep their step counts on the host
    return torch.zeros(size, dtype=dtype, device=device)


def find(root: Path, tag: str | None, suffix: str, group: dist.ProcessGroup | None) -> Path:
    """The folder of `tag`, or of the newest checkpoint as the first rank sees it; the same on every rank."""
    name: str | None = None
    error: str | None = None
    if group is None or dist.get_rank(group) == 0:
        try:
            name = checked_tag(tag) + suffix if tag is not None else durable.newest_name(root)
            if tag is not None and not (root / name).exists():
                raise FileNotFoundError(f"{root / name} is not there")
        except (FileNotFoundError, ValueError) as failed:
            error = str(failed)
    if group is not None:
        box: list[Any] = [(name, error)]
        dist.broadcast_object_list(box, group=group, group_src=0)
        name, error = box[0]
    if error is not None or name is None:
        raise FileNotFoundError(error)
    if not name.endswith(suffix):
        raise FileNotFoundError(f"the newest checkpoint of {root} is {name}, which is of another kind than *{suffix}")
    return root / name


def checked_tag(tag: str) -> str:
    """ValueError where the tag cannot be the name of a file."""
    if not tag or "/" in tag or tag.startswith(".") or "\0" in tag or len(tag) > 200:
        raise ValueError(f"a checkpoint's tag is the name of a file without '/', not {tag!r}")
    return tag


def names_differ(folder: Path, missing: list[str], unknown: list[str]) -> str:
    parts = [
        f"{what} {', '.join(names[:5])}" for what, names in (("lacks", missing), ("has besides", unknown)) if names
    ]
    return f"{folder} does not fit the module: it {' and '.join(parts)}".replace(MODEL, "")


def check_shapes(folder: Path, metadata: Metadata, target: dict[str, Any]) -> None:
    """ValueError for the first tensor that was saved in another shape."""
    for name, value in target.items():
        stored = metadata.state_dict_metadata[name]
        if isinstance(stored, TensorStorageMetadata) and stored.size != value.shape:
            shown = name.removeprefix(MODEL)
            raise ValueError(f"{folder} holds {shown} as {tuple(stored.size)}, the module as {tuple(value.shape)}")
