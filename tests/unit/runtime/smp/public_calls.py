"""The calls of the public examples that other tests do not make, in the order in which those scripts make them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import smdistributed.modelparallel
import smdistributed.modelparallel.torch as smp
from smdistributed.modelparallel.torch.nn import FusedLayerNorm
from smdistributed.modelparallel.torch.nn.huggingface.gpt2 import (
    translate_hf_state_dict_to_smdistributed_gpt2,
    translate_state_dict_to_hf_gpt2,
)
from tests.unit.runtime.smp.scripts import Net, batch


class Normed(Net):
    def __init__(self) -> None:
        super().__init__(hidden=16, layers=2)
        self.norm = FusedLayerNorm(4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        output = super().forward(x, y)
        logits = self.norm(output["logits"])
        return {"loss": nn.functional.cross_entropy(logits, y), "logits": logits}


@smp.step
def train_step(model: Any, optimizer: Any, x: torch.Tensor, y: torch.Tensor, options: Any) -> Any:
    assert isinstance(optimizer, smp.DistributedOptimizer) and options == ["not", "a tensor"]
    loss = model(x, y)["loss"]
    model.backward(loss)
    return loss


@smp.step
def test_step(model: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
    return model(x, y)["loss"]


def groups_of(module: nn.Module) -> list[dict[str, Any]]:
    """Weight decay for what is neither a bias nor a norm, as the examples divide parameters."""
    decayed, plain = [], []
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                (plain if name == "bias" or isinstance(part, FusedLayerNorm) else decayed).append(parameter)
    return [{"params": decayed}, {"params": plain, "weight_decay": 0.0}]


def make(accumulation: int) -> tuple[Any, Any]:
    torch.manual_seed(1)
    with smp.model_creation(
        tensor_parallelism=smp.tp_size() > 1,
        dtype=torch.get_default_dtype(),
        attention_in_fp32=False,
        query_key_layer_scaling=True,
        fused_softmax=True,
        fused_dropout=False,
        fused_bias_gelu=True,
    ):
        net = Normed()
    model = smp.DistributedModel(net, trace_device="gpu", backward_passes_per_step=accumulation)
    layers = model.get_module().layers
    for layer in layers.children():
        smp.set_partition(layer, 0)
        smp.set_activation_checkpointing(layer)
    adam = torch.optim.AdamW(groups_of(model.get_module()), betas=(0.9, 0.95), lr=0.02, weight_decay=0.01)
    arguments = {"scale_window": 1000, "min_scale": 1, "delayed_shift": 2}
    optimizer = smp.DistributedOptimizer(
        adam, static_loss_scale=None, dynamic_loss_scale=True, dynamic_loss_args=arguments
    )
    return model, optimizer


def evaluate(model: Any) -> float:
    model = model.eval()
    total: Any = 0.0
    with torch.no_grad():
        for number in range(2):
            total += test_step(model, *batch(900 + number, smp.rank())).reduce_mean()
    dist.all_reduce(total, group=smp.get_dp_process_group())  # in place, as the examples do
    model.train()
    return float(total / smp.dp_size() / 2)


def run(folder: str, steps: int, resume: bool) -> dict[str, Any]:
    """Train to `steps`, from a checkpoint where asked, save at the middle, and tell what a script would look at."""
    smp.init({"ddp": True, "microbatches": 2, "fp16": False, "sharded_data_parallel_degree": 2})
    assert smdistributed.modelparallel.__version__.split(".")[0] == "1"
    model, optimizer = make(accumulation=2)
    hooked: list[Any] = []
    model.register_post_partition_hook(lambda one, other: hooked.append((one is model, other is optimizer)))
    start = 0
    if resume:
        content = smp.resume_from_checkpoint(folder, tag=None, partial=True)
        start = content["total_steps"]
    losses = []
    for step in range(start, steps):
        if step % 2 == 0:
            optimizer.zero_grad(set_to_none=True)
        loss = train_step(model, optimizer, *batch(step, smp.rank()), ["not", "a tensor"]).reduce_mean()
        losses.append(loss.item())
        if step % 2 == 1:
            for group in optimizer.param_groups:
                group["lr"] = 0.02 / (step + 1)
            optimizer.step()
            assert not optimizer.overflow
        if step == 3 and not resume:
            user_content = {"total_steps": step + 1, "names": [name for name, _ in model.module.named_parameters()]}
            smp.save_checkpoint(
                folder,
                tag=f"total_steps{step + 1}",
                partial=True,
                model=model,
                optimizer=optimizer,
                user_content=user_content,
                num_kept_partial_checkpoints=5,
            )
    smp.broadcast(7, smp.PP_GROUP)
    parameters = {parameter: name for name, parameter in model.module.named_parameters()}
    shapes = {parameters[item]: list(item.ds_shape) for group in optimizer.fp16_groups for item in group}
    counts = {parameters[item]: item.ds_numel for group in optimizer.fp16_groups for item in group}
    state = translate_state_dict_to_hf_gpt2(model.state_dict(), max_seq_len=16)
    assert translate_hf_state_dict_to_smdistributed_gpt2(state, 16).keys() == state.keys()
    found = {
        **{"losses": losses, "hooked": hooked, "shapes": shapes, "counts": counts, "evaluated": evaluate(model)},
        "newest": (Path(folder) / "newest").read_text().strip(),
    }
    smp.barrier()
    return found
