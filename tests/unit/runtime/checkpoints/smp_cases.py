"""What the ranks run: scripts that save and resume by the functions of smdistributed.modelparallel."""

from __future__ import annotations

import struct
from json import loads
from math import ceil
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import smdistributed.modelparallel.torch as smp
from tests.unit.runtime.checkpoints.cases import SLOTS
from tests.unit.runtime.engine.training import Case, Tiny, make_optimizer, tokens
from trainshed_runtime.checkpoints.export import export_safetensors
from trainshed_runtime.checkpoints.full import stream


def start(degree: int, seed: int = 11, **settings: Any) -> tuple[Any, Any]:
    """A model with uneven rows, a scalar, tied and frozen weights and a buffer, and its optimizer of two groups."""
    smp.init({"ddp": True, "sharded_data_parallel_degree": degree, **settings})
    torch.manual_seed(seed)
    case = Case(hidden=10, tied=True, frozen=True)
    module = Tiny(case)
    module.register_buffer("counted", torch.full((3,), float(seed)))
    model = smp.DistributedModel(module if settings else module.to(torch.float64))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = make_optimizer(case, [{"params": trained[::2]}, {"params": trained[1::2], "lr": 0.02}])
    scales = {"dynamic_loss_scale": True, "dynamic_loss_args": {"init_scale": 64.0}} if settings else {}
    return model, smp.DistributedOptimizer(optimizer, **scales)


def step(model: Any, optimizer: Any, number: int) -> float:
    mine = range(dist.get_rank(), SLOTS, dist.get_world_size())
    loss = torch.stack([model(tokens(number, 0, slot)).double() for slot in mine]).mean()
    model.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    value = loss.detach().clone()
    dist.all_reduce(value, op=dist.ReduceOp.AVG)
    return float(value)


def save(degree: int, root: str) -> dict[str, Any]:
    """Two steps, every kind of checkpoint, two more steps."""
    model, optimizer = start(degree)
    for number in range(2):
        step(model, optimizer, number)
    whole = model.state_dict()
    content = {"total_steps": 2, "note": "mine"}
    smp.save_checkpoint(root, "old", partial=True, model=model, optimizer=optimizer)
    smp.save_checkpoint(root, "steps2", True, model, optimizer, user_content=content, num_kept_partial_checkpoints=1)
    smp.save_checkpoint(f"{root}/full", "full.pt", partial=False, model=model, user_content={"whole": True})
    smp.save({"rank": dist.get_rank()}, f"{root}/own.pt")
    dist.barrier()
    files = export_safetensors(model.module, f"{root}/export", file_bytes=4000)
    halves = export_safetensors(model.module, f"{root}/half", dtype=torch.bfloat16)
    held = [value is not None for _, value in stream(model.module)]
    dist.barrier()
    found: dict[str, Any] = {
        "held": held,
        "files": files,
        "own": smp.load(f"{root}/own.pt")["rank"],
        "listed": sorted(entry.name for entry in Path(root).iterdir()),
    }
    if dist.get_rank() == 0:
        names = [name for name, _ in model.module.named_parameters()]
        found["merged"] = _equal(_merged(Path(root)), whole)
        found["exported"] = _equal(_exported(Path(root) / "export", files), {n: whole[n] for n in [*names, "counted"]})
        half = {name: whole[name].bfloat16() for name in [*names, "counted"]}
        found["halves"] = _equal(_exported(Path(root) / "half", halves), half)
    found["losses"] = [step(model, optimizer, number) for number in range(2, 4)]
    return found


def resume(degree: int, root: str) -> dict[str, Any]:
    """The losses that follow, by the partial checkpoint."""
    model, optimizer = start(degree, seed=3)
    content = smp.resume_from_checkpoint(root, partial=True)
    buffer = float(model.module.counted[0])
    rate = [group["lr"] for group in optimizer.param_groups]
    losses = [step(model, optimizer, number) for number in range(content["total_steps"], 4)]
    refused = []
    for keywords in ({"tag": "absent"}, {"partial": False}):
        try:
            smp.resume_from_checkpoint(root, **keywords)
        except FileNotFoundError as error:
            refused.append(str(error))
    whole = smp.resume_from_checkpoint(f"{root}/full", tag="full.pt", partial=False)
    after_full = _equal(_merged(Path(root)), model.state_dict())
    return {"losses": losses, "note": content["note"], "buffer": buffer, "lr": rate, "refused": refused,
            "whole": whole, "full": after_full}  # fmt: skip


def scaled(degree: int, root: str) -> list[float]:
    """fp16: the loss scale comes back with `load_sharded_optimizer_state=False`, and the optimizer's states do not."""
    model, optimizer = start(degree, fp16=True)
    step(model, optimizer, 0)
    optimizer._scale.scale = 32.0
    smp.save_checkpoint(root, "half", True, model, optimizer)
    optimizer._scale.scale = 1.0
    optimizer.optimizer.state.clear()
    smp.resume_from_checkpoint(root, load_sharded_optimizer_state=False)
    without = [optimizer.loss_scale, float(len(optimizer.state))]
    smp.resume_from_checkpoint(root)
    return [*without, float(len(optimizer.state))]


def _merged(root: Path) -> dict[str, torch.Tensor]:
    """As AWS's helper does it: flat pieces of each file, parameter by parameter in the order of `param_shapes`."""
    folder = root / (root / "newest").read_text()
    content = torch.load(folder / "user_content.pt")
    files = [torch.load(folder / f"optimizer_{i}.pt") for i in range(len(list(folder.glob("optimizer_*.pt"))))]
    assert files[0]["partition_count"] == len(files)
    flat = [torch.cat(file["fp32_flat_groups"]) for file in files]
    found = {
        name: value
        for name, value in torch.load(folder / "model_0.pt")["module"].items()
        if name in content["buffer_names"]
    }
    offset = 0
    for name, shape in {name: shape for group in content["param_shapes"] for name, shape in group.items()}.items():
        size = ceil(shape.numel() / len(files))
        whole = torch.cat([piece[offset : offset + size] for piece in flat])
        found[name] = whole[: shape.numel()].view(shape)
        offset += size
    assert offset == flat[0].numel(), "nothing is left over"
    return found


def _exported(folder: Path, files: list[str]) -> dict[str, torch.Tensor]:
    kinds = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16}
    found = {}
    for name in files:
        data = (folder / name).read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        for tensor, entry in loads(data[8 : 8 + length]).items():
            if tensor != "__metadata__":
                first, last = entry["data_offsets"]
                part = bytearray(data[8 + length + first : 8 + length + last])
                found[tensor] = torch.frombuffer(part, dtype=kinds[entry["dtype"]]).view(entry["shape"])
    if len(files) > 1:
        index = loads((folder / "model.safetensors.index.json").read_text())
        assert set(index["weight_map"]) == set(found)
    return found


def _equal(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> list[str]:
    """The names that are wrong: absent, or not bit-equal."""
    return [name for name, value in found.items() if name not in wanted or not torch.equal(value, wanted[name])] + [
        name for name in wanted if name not in found and name not in ("head.weight", "blocks.0.first.weight")
    ]
