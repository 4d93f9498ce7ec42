"""What the ranks run: small scripts that use smp as SageMaker's do."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

import smdistributed.modelparallel.torch as smp
from trainshed_runtime.degrees import InvalidDegree


class Net(nn.Module):
    def __init__(self, hidden: int = 64, layers: int = 3) -> None:
        super().__init__()
        self.inner = nn.Linear(6, hidden)
        self.layers = nn.Sequential(
            *(nn.Sequential(nn.Linear(hidden, 60), nn.Tanh(), nn.Linear(60, hidden)) for _ in range(layers))
        )
        self.register_buffer("shift", torch.full((hidden,), 0.5))
        self.outer = nn.Linear(hidden, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.outer(self.layers(self.inner(x) + self.shift))
        return {"loss": nn.functional.cross_entropy(logits.float(), y), "logits": logits}


def batch(step: int, rank: int, size: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(size, 6, generator=generator), torch.randint(0, 4, (size,), generator=generator)


@smp.step
def train_step(model: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
    output = model(x, y)
    model.backward(output["loss"])
    return output


def train(
    config: dict[str, Any], steps: int = 4, passes: int = 1, options: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Losses (means over the ranks), the last weights by name, and what the optimizer says of itself."""
    options = options or {}
    smp.init(config)
    torch.manual_seed(3)
    with smp.model_creation(dtype=options.get("dtype")):
        net = Net()
    assert next(net.parameters()).is_meta == bool(config.get("delayed_parameter_initialization"))
    model = smp.DistributedModel(net, backward_passes_per_step=passes)
    if options.get("checkpointing"):
        smp.set_activation_checkpointing(model.get_module().layers, strategy=options["checkpointing"])
    optimizer = smp.DistributedOptimizer(
        torch.optim.AdamW(model.parameters(), lr=0.02),
        static_loss_scale=None,
        dynamic_loss_scale=True,
        dynamic_loss_args=options.get("loss_scale", {"init_scale": 2.0**10, "scale_window": 2}),
    )
    losses, scales, overflows = [], [], []
    for step in range(steps):
        for part in range(passes):
            x, y = batch(step * passes + part, smp.rank())
            if step == options.get("poison") and smp.rank() == smp.size() - 1:
                x = x * float("inf")
            output = train_step(model, x, y)
            loss = output["loss"].reduce_mean()
            assert torch.cat(tuple(output["logits"].outputs)).shape == (4, 4)
            dist.all_reduce(loss, group=smp.get_dp_process_group())
            losses.append(float(loss) / smp.dp_size())
        if options.get("clip_master"):
            optimizer.clip_master_grads(options["clip_master"])
        optimizer.step()
        overflows.append(optimizer.overflow)
        scales.append(optimizer.loss_scale)
        optimizer.zero_grad(set_to_none=True)
    state = {name: value.tolist() for name, value in model.state_dict().items()}
    offload = model.offload.most_loaded if model.offload is not None else 0
    return {"losses": losses, "state": state, "scales": scales, "overflows": overflows, "offload": offload}


def train_alone(
    world: int, steps: int = 4, passes: int = 1, microbatches: int = 1, clip: float = 0.0
) -> dict[str, Any]:
    """Plain torch in float32, on all ranks' batches."""
    torch.manual_seed(3)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    losses = []
    for step in range(steps):
        for part in range(passes):
            found = []
            for rank in range(world):
                x, y = batch(step * passes + part, rank)
                parts = zip(x.chunk(microbatches), y.chunk(microbatches), strict=True)
                found.append(torch.stack([model(a, b)["loss"] for a, b in parts]).mean())
            loss = torch.stack(found).mean()
            loss.backward()
            losses.append(float(loss))
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
    return {"losses": losses, "state": {name: value.tolist() for name, value in model.state_dict().items()}}


def numbers() -> dict[str, Any]:
    smp.init({"sharded_data_parallel_degree": 2, "ddp": True})
    names = ("rank", "size", "local_rank", "local_size")
    kinds = ("dp", "rdp", "tp", "pp", "mp")
    found: dict[str, Any] = {name: getattr(smp, name)() for name in names}
    for kind in kinds:
        found[kind] = [getattr(smp, f"{kind}_rank")(), getattr(smp, f"{kind}_size")()]
        found[f"{kind}_group"] = getattr(smp, f"get_{kind}_group")()
        assert getattr(smp, f"get_{kind}_process_group")().size() == len(found[f"{kind}_group"])
        getattr(smp, f"{kind}_barrier")()
    return found


def messages() -> list[Any]:
    smp.init()
    if smp.rank() == 0:
        smp.broadcast({"all": 1}, smp.WORLD)
        smp.send([1, 2], 1)
        smp.send("second", 1, smp.RankType.DP_RANK)
        found = [smp.recv_from(1)]
    elif smp.rank() == 1:
        found = [smp.recv_from(0), smp.recv_from(0, smp.RankType.WORLD_RANK), smp.recv_from(0)]
        smp.send(smp.rank(), 0)
    else:
        found = [smp.recv_from(0)]
    smp.broadcast("alone", smp.PP_GROUP)
    found.append(smp.allgather(smp.rank() * 10, smp.DP_GROUP))
    smp.barrier()
    return found


def refused_degree(degree: int) -> str:
    try:
        smp.init({"sharded_data_parallel_degree": degree})
    except InvalidDegree as error:
        return str(error)
    return "it was taken"


def autocast(poison: int) -> dict[str, Any]:
    """The script's own autocast and GradScaler; the batch of the last rank overflows at step `poison`."""
    smp.init({"sharded_data_parallel_degree": 2, "sdp_gradient_clipping": 0})
    torch.manual_seed(3)
    model = smp.DistributedModel(Net())
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.02))
    scaler = smp.amp.GradScaler(init_scale=8.0, growth_interval=100)

    @smp.step
    def scaled_step(model: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(x, y)["loss"]
        model.backward(scaler.scale(loss))
        return loss

    scales, weights = [], []
    for step in range(3):
        x, y = batch(step, smp.rank())
        scaled_step(model, x * float("inf") if step == poison and smp.rank() == smp.size() - 1 else x, y)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        scales.append(scaler.get_scale())
        weights.append(model.state_dict()["outer.bias"].tolist())
    return {"scales": scales, "weights": weights}


def user_content(path: str) -> tuple[int, float, list[int], str]:
    """Written by one script and read as a merge tool does it."""
    content = {
        "num_params": np.int64(7),
        "lr": np.float32(0.5),
        "shape": np.array([1, 2]),
        "cli_args": argparse.Namespace(size="tiny"),
    }
    torch.save(content, path)
    read = torch.load(path, map_location="cpu")
    return int(read["num_params"]), float(read["lr"]), read["shape"].tolist(), read["cli_args"].size
