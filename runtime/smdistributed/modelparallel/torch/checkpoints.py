"""`smp.save`, `load`, `save_checkpoint`, `resume_from_checkpoint`: names and rules of the API over
`trainshed_runtime.checkpoints`.

Invariant: what `newest` names is whole. Partial checkpoints hold everything, sharded; full ones the whole model in one
file, written by rank 0, without optimizer states.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from smdistributed.modelparallel.torch.model import DistributedModel
from smdistributed.modelparallel.torch.optimizer import DistributedOptimizer
from smdistributed.modelparallel.torch.state import State, current
from trainshed_runtime.checkpoints import durable
from trainshed_runtime.checkpoints.commit import Commit
from trainshed_runtime.checkpoints.flat import Place
from trainshed_runtime.checkpoints.full import full_state_dict, load_full, read_full_file
from trainshed_runtime.checkpoints.partial import PartialCheckpoint, load_partial, save_partial
from trainshed_runtime.checkpoints.sharded import checked_tag, control_group, find

logger = logging.getLogger("smdistributed.modelparallel")
_TIMEOUT = 1800.0
_GROUP = "checkpoints"


def save(obj: Any, f: str | Path, partial: bool = True, v3: bool = False) -> None:
    """torch.save of `obj`, durably. `partial`: each rank of one copy of the model saves its own, as `{f}_{place}`; else
    rank 0 saves `obj` as `f`. Not a collective call."""
    del v3  # an older layout of the library's own
    path = Path(f)
    if partial:
        place = _place()
        if not place.first:
            return
        path = path.with_name(f"{path.name}_{place.index}")
    elif dist.get_rank() != 0:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    durable.write_file(path, lambda file: torch.save(obj, file))


def load(f: str | Path, map_location: Any = "cpu", partial: bool = True, **options: Any) -> Any:
    """What `save` wrote: this rank's own with `partial`, else the same on every rank. Trusted as the script itself is.

    FileNotFoundError where there is none; a partial file of another degree is another rank's, use
    `resume_from_checkpoint` for that.
    """
    path = Path(f)
    if partial:
        path = path.with_name(f"{path.name}_{_place().index}")
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there" + (", pass partial=False for a full file" if partial else ""))
    options.setdefault("weights_only", False)
    return torch.load(path, map_location=map_location, **options)


def save_checkpoint(
    path: str | Path,
    tag: str,
    partial: bool = True,
    model: DistributedModel | None = None,
    optimizer: DistributedOptimizer | None = None,
    user_content: Any = None,
    translate_if_full: bool = True,
    num_kept_partial_checkpoints: int | None = None,
) -> None:
    """Save model, optimizer and `user_content`; a collective call. CheckpointFailed where a rank could not write.

    Partial: the folder `{tag}_partial`, of which the newest `num_kept_partial_checkpoints` stay. Full: the files
    `{tag}` and `user_content_{tag}`. `translate_if_full` changes nothing: weights keep the names of the script's.
    """
    state = current()
    model = model or state.model
    if model is None:
        raise RuntimeError("save_checkpoint needs a DistributedModel; make it first")
    if not model.engine.synchronized and state.mesh.rank == 0:
        logger.warning(
            "%s is saved in the middle of a gradient accumulation: who resumes from it begins the accumulation anew",
            tag,
        )
    if num_kept_partial_checkpoints is not None and num_kept_partial_checkpoints < 1:
        raise ValueError(f"num_kept_partial_checkpoints is {num_kept_partial_checkpoints}; it must be at least 1")
    root, name = Path(path), checked_tag(str(tag))
    if not partial:
        if optimizer is not None and state.mesh.rank == 0:
            logger.warning("a full checkpoint holds the model alone; optimizer states are in partial checkpoints")
        _save_full(state, root, name, model.module, user_content)
        return
    scales = optimizer._scale.state_dict() if optimizer is not None and optimizer.scales else None
    inner = optimizer.optimizer if isinstance(optimizer, DistributedOptimizer) else optimizer
    group = _control(state)
    save_partial(root, name, model.module, inner, user_content, scales, group, num_kept_partial_checkpoints)


def resume_from_checkpoint(
    path: str | Path,
    tag: str | None = None,
    partial: bool = True,
    strict: bool = True,
    load_optimizer: bool = True,
    load_sharded_optimizer_state: bool = True,
    translate_function: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> Any:
    """Load the newest checkpoint, or `tag`, into the DistributedModel and DistributedOptimizer; the user's content.

    Partial ones may come from another degree and another world size. With `load_sharded_optimizer_state=False` only
    weights and the loss scale are loaded. `translate_function` changes a full state_dict before it is loaded.
    """
    state = current()
    if state.model is None:
        raise RuntimeError("resume_from_checkpoint needs a DistributedModel; make it first")
    module, root = state.model.module, Path(path)
    state.model.engine.discard()
    if not partial:
        return _resume_full(state, root, tag, module, strict, translate_function)
    optimizer = state.optimizer if load_optimizer else None
    folder = find(root, tag, durable.PARTIAL, _control(state))
    inner = optimizer.optimizer if optimizer is not None else None
    checkpoint = load_partial(folder, module, inner, strict, load_sharded_optimizer_state)
    _restore_scale(checkpoint, optimizer)
    if optimizer is not None and not checkpoint.has_optimizer:
        logger.warning("%s holds no optimizer; the optimizer's states stay as they are", folder)
    return checkpoint.user_content()


def _restore_scale(checkpoint: PartialCheckpoint, optimizer: DistributedOptimizer | None) -> None:
    scale = checkpoint.loss_scale()
    if scale is not None and optimizer is not None and optimizer.scales:
        optimizer._scale.load_state_dict(scale)


def _save_full(state: State, root: Path, name: str, module: nn.Module, user_content: Any) -> None:
    whole = full_state_dict(module)
    first = state.mesh.rank == 0
    commit = Commit(root, name, _control(state))

    def write() -> None:
        if not first:
            return
        root.mkdir(parents=True, exist_ok=True)
        if user_content is not None:
            durable.write_file(root / f"user_content_{name}", lambda file: torch.save(user_content, file))
        durable.write_file(root / name, lambda file: torch.save(whole, file))
        newest = root / durable.NEWEST
        if not newest.exists() or not newest.read_text().strip().endswith(durable.PARTIAL):
            durable.point_to(root, name)

    commit.together("cannot write the full model", write)


def _resume_full(
    state: State,
    root: Path,
    tag: str | None,
    module: nn.Module,
    strict: bool,
    translate: Callable[[dict[str, Any]], dict[str, Any]] | None,
) -> Any:
    file = find(root, tag, "", _control(state))
    if not file.is_file():
        raise FileNotFoundError(f"{file} is no full checkpoint; pass its tag, or partial=True for a folder *_partial")
    whole: dict[str, Any] = read_full_file(file)
    load_full(module, translate(whole) if translate is not None else whole, strict)
    content = file.with_name(f"user_content_{file.name}")
    return torch.load(content, map_location="cpu", weights_only=False) if content.exists() else None


def _place() -> Place:
    """Of this rank in its copy of the model, as the mesh has it: every rank has a part, whatever the model."""
    mesh = current().mesh
    return Place(mesh.shard, mesh.degree, mesh.replica == 0)


def _control(state: State) -> dist.ProcessGroup | None:
    """One group for all checkpoints of this process, made by the first of them."""
    if _GROUP not in state.alone:
        group = control_group(_TIMEOUT)
        if group is None:
            return None
        state.alone[_GROUP] = group
    return state.alone[_GROUP]
