"""What the ranks run: the engine's training beside the same training in one process, and how far they are apart."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from trainshed_runtime.engine import Engine, EngineConfig
from trainshed_runtime.mesh import MicsMesh

VOCABULARY, LENGTH = 19, 5
_DEVICE = "cuda" if os.environ.get("TRAINSHED_TEST_CUDA") == "1" else "cpu"


@dataclass(frozen=True)
class Case:
    """One training. `clip` 0: none. `conditional`: odd ranks use a parameter that even ranks do not."""

    degree: int = 1
    accumulation: int = 1
    steps: int = 3
    hidden: int = 16
    layers: int = 2
    clip: float = 0.0
    optimizer: str = "adamw"
    tied: bool = False
    frozen: bool = False
    twice: bool = False
    conditional: bool = False
    live: int = 1 << 30
    persistence: int = 0
    bucket: int = 1 << 29
    overlap: bool = True
    attached: bool = True
    dtype: str = "float64"


class Block(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.first = nn.Linear(hidden, 3 * hidden + 1)
        self.second = nn.Linear(3 * hidden + 1, hidden)
        self.extra = nn.Parameter(torch.randn(hidden) / 10)

    def forward(self, x: torch.Tensor, extra: bool = False) -> torch.Tensor:
        y = self.second(torch.tanh(self.first(self.norm(x))))
        return x + (y + self.extra if extra else y)


class Tiny(nn.Module):
    """Uneven shapes, a scalar, a module that is never used, and on request tied and frozen weights."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        self.embedding = nn.Embedding(VOCABULARY, case.hidden)
        self.blocks = nn.ModuleList(Block(case.hidden) for _ in range(case.layers))
        self.head = nn.Linear(case.hidden, VOCABULARY, bias=False)
        self.temperature = nn.Parameter(torch.tensor(1.5))
        self.spare = nn.Linear(3, 3)
        if case.tied:
            self.head.weight = self.embedding.weight
        if case.frozen:
            self.blocks[0].first.weight.requires_grad_(False)

    def forward(self, tokens: torch.Tensor, extra: bool = False) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, extra)
        if self.case.twice:
            x = self.blocks[0](x, extra)
        logits = self.head(x) * self.temperature
        return nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), tokens.roll(-1, 1).reshape(-1))


def make_model(case: Case) -> Tiny:
    torch.manual_seed(11)
    return Tiny(case).to(getattr(torch, case.dtype))


def make_optimizer(case: Case, parameters: Any) -> torch.optim.Optimizer:
    if case.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)
    return torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1)


def tokens(step: int, micro: int, rank: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1_000_003 * step + 1009 * micro + rank)
    return torch.randint(0, VOCABULARY, (2, LENGTH), generator=generator).to(_DEVICE)


def uses_extra(case: Case, rank: int) -> bool:
    return case.conditional and rank % 2 == 1


def make_engine(case: Case, model: nn.Module | None = None) -> Engine:
    config = EngineConfig(
        accumulation=case.accumulation,
        max_live_parameters=case.live,
        persistence_threshold=case.persistence,
        reduce_bucket_size=case.bucket,
        overlap=case.overlap,
    )
    return Engine(model or make_model(case), MicsMesh.create(case.degree), config)


def full(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def state_of(engine: Engine) -> dict[str, torch.Tensor]:
    return {name: full(value.detach()).clone() for name, value in engine.module.named_parameters()}


def train(case: Case) -> dict[str, Any]:
    """Losses, gradient norms, the first boundary's gradients and the last weights."""
    engine = make_engine(case)
    optimizer = make_optimizer(case, engine.module.parameters())
    if case.attached:
        engine.attach(optimizer)
    rank = dist.get_rank()
    losses, norms, first = [], [], {}
    for step in range(case.steps):
        for micro in range(case.accumulation):
            loss = engine.module(tokens(step, micro, rank), uses_extra(case, rank))
            loss.backward()
            value = loss.detach().clone()
            dist.all_reduce(value, op=dist.ReduceOp.AVG)
            losses.append(float(value))
        if case.clip:
            norms.append(engine.clip(case.clip))
        if step == 0:
            named = engine.module.named_parameters()
            first = {name: None if p.grad is None else full(p.grad).clone() for name, p in named}
        optimizer.step()
        optimizer.zero_grad()
    found = {"losses": losses, "norms": norms, "gradients": first, "weights": state_of(engine)}
    engine.close()
    return found


def train_alone(case: Case, world: int) -> dict[str, Any]:
    """The same in one process, which sees all ranks' data."""
    model = make_model(case).to(_DEVICE)
    optimizer = make_optimizer(case, model.parameters())
    losses, norms, first = [], [], {}
    for step in range(case.steps):
        for micro in range(case.accumulation):
            parts = [model(tokens(step, micro, rank), uses_extra(case, rank)) for rank in range(world)]
            loss = torch.stack(parts).mean()
            loss.backward()
            losses.append(float(loss))
        if case.clip:
            norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), case.clip)))
        if step == 0:
            first = {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}
        optimizer.step()
        optimizer.zero_grad()
    weights = {name: value.detach().clone() for name, value in model.named_parameters()}
    return {"losses": losses, "norms": norms, "gradients": first, "weights": weights}


def difference(found: dict[str, Any], wanted: dict[str, Any]) -> float:
    """The largest relative difference of anything; infinite where a gradient is there on one side only."""
    worst = 0.0
    for name in ("losses", "norms"):
        for one, other in zip(found[name], wanted[name], strict=True):
            worst = max(worst, abs(one - other) / max(abs(other), 1e-12))
    for name in ("gradients", "weights"):
        assert found[name].keys() == wanted[name].keys()
        for key, other in wanted[name].items():
            one = found[name][key]
            if (one is None) != (other is None):
                return float("inf")
            if other is not None:
                scale = max(float(other.abs().max()), 1e-12)
                worst = max(worst, float((one.to(other.device) - other).abs().max()) / scale)
    return worst


def compare(cases: list[Case]) -> list[float]:
    """For each case, this rank's difference from the training in one process (computed by rank 0, told to all)."""
    worst = []
    for case in cases:
        found = train(case)
        wanted = [train_alone(case, dist.get_world_size()) if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(wanted)
        assert wanted[0] is not None
        worst.append(difference(found, wanted[0]))
    return worst


def compare_on_cuda(cases: list[Case]) -> list[float]:
    """As `compare`, over NCCL on one device for each rank (with TRAINSHED_TEST_CUDA=1)."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    return compare(cases)


def losses(case: Case) -> list[float]:
    """Means over the ranks."""
    found: list[float] = train(case)["losses"]
    return found


def alone_losses(case: Case, world: int) -> list[float]:
    found: list[float] = train_alone(case, world)["losses"]
    return found


def fingerprint(case: Case) -> str:
    """Of every bit that training made."""
    found = train(case)
    digest = hashlib.sha256(repr((found["losses"], found["norms"])).encode())
    for value in found["weights"].values():
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()


def step_early(case: Case) -> float:
    """`step` after two of three micro-steps ends the accumulation there; then two whole ones."""
    engine = make_engine(replace(case, accumulation=3))
    optimizer = make_optimizer(case, engine.module.parameters())
    engine.attach(optimizer)
    rank, world = dist.get_rank(), dist.get_world_size()
    model = make_model(case)
    alone = make_optimizer(case, model.parameters())
    for step, count in enumerate((2, 3, 1, 3)):
        for micro in range(count):
            engine.module(tokens(step, micro, rank)).backward()
            torch.stack([model(tokens(step, micro, other)) for other in range(world)]).mean().backward()
        for one in (optimizer, alone):
            one.step()
            one.zero_grad()
    wanted = {name: value.detach() for name, value in model.named_parameters()}
    return difference(
        {"losses": [], "norms": [], "gradients": {}, "weights": state_of(engine)},
        {"losses": [], "norms": [], "gradients": {}, "weights": wanted},
    )


def zero_in_the_middle(case: Case) -> float:
    """What was summed before `zero_grad` is gone; the rest of the accumulation counts."""
    engine = make_engine(replace(case, accumulation=3))
    optimizer = make_optimizer(case, engine.module.parameters())
    rank, world = dist.get_rank(), dist.get_world_size()
    model = make_model(case)
    alone = make_optimizer(case, model.parameters())
    for micro in range(3):
        engine.module(tokens(0, micro, rank), uses_extra(case, rank) and micro == 0).backward()
        used = [uses_extra(case, other) and micro == 0 for other in range(world)]
        torch.stack([model(tokens(0, micro, other), used[other]) for other in range(world)]).mean().backward()
        if micro == 0:
            optimizer.zero_grad()
            alone.zero_grad()
    gradients = {name: None if p.grad is None else full(p.grad) for name, p in engine.module.named_parameters()}
    wanted = {name: p.grad for name, p in model.named_parameters()}
    return difference(
        {"losses": [], "norms": [], "gradients": gradients, "weights": {}},
        {"losses": [], "norms": [], "gradients": wanted, "weights": {}},
    )


def parts_and_errors(case: Case) -> float:
    """A pass that raises is forgotten; a loss of a part of the module, past its output, counts in the next step."""
    engine = make_engine(case)
    optimizer = make_optimizer(case, engine.module.parameters())
    engine.attach(optimizer)
    rank, world = dist.get_rank(), dist.get_world_size()
    model = make_model(case)
    alone = make_optimizer(case, model.parameters())

    def break_it(*_: Any) -> None:
        raise ArithmeticError

    for step in range(3):
        if step == 1:
            handle = engine.module.blocks[1].second.register_forward_hook(break_it)
            try:
                engine.module(tokens(8, 0, rank)).backward()
            except ArithmeticError:
                engine.reset()
            handle.remove()
            loss = engine.module(tokens(8, 0, rank))
            handle = loss.register_hook(break_it)
            try:
                loss.backward()
            except ArithmeticError:
                engine.reset()
        engine.module(tokens(step, 0, rank)).backward()
        torch.stack([model(tokens(step, 0, other)) for other in range(world)]).mean().backward()
        if step == 2:
            x = torch.randn(2, case.hidden, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
            for one, share in ((engine.module, rank + 1.0), (model, (world + 1) / 2)):
                (one.blocks[0](x) ** 2).mean().mul(share).backward()
        for one in (optimizer, alone):
            one.step()
            one.zero_grad()
    wanted = {name: value.detach() for name, value in model.named_parameters()}
    return difference(
        {"losses": [], "norms": [], "gradients": {}, "weights": state_of(engine)},
        {"losses": [], "norms": [], "gradients": {}, "weights": wanted},
    )


def ask_in_the_middle(case: Case) -> str:
    engine = make_engine(replace(case, accumulation=2))
    engine.module(tokens(0, 0, dist.get_rank())).backward()
    try:
        engine.clip(1.0)
    except RuntimeError as error:
        return str(error)
    return "nothing was said"


def evaluate_between(case: Case) -> float:
    """Evaluation before a step and in the middle of an accumulation, and weights that are set from outside."""
    engine = make_engine(replace(case, accumulation=2))
    model = make_model(case)
    rank, world = dist.get_rank(), dist.get_world_size()
    worst = 0.0
    for micro in range(2):
        with torch.no_grad():
            worst = max(worst, abs(float(engine.module(tokens(9, 9, 0)) - model(tokens(9, 9, 0)))))
            if micro == 0:  # no accumulation has begun
                for parameter in [*engine.module.parameters(), *model.parameters()]:
                    parameter.mul_(0.9)
        engine.module(tokens(0, micro, rank)).backward()
        assert {id(parameter) for parameter in engine.module.parameters()} == {id(p) for p in engine.parameters()}
        torch.stack([model(tokens(0, micro, other)) for other in range(world)]).mean().backward()
    gradients = {name: None if p.grad is None else full(p.grad) for name, p in engine.module.named_parameters()}
    wanted = {name: p.grad for name, p in model.named_parameters()}
    found = difference(
        {"losses": [], "norms": [], "gradients": gradients, "weights": {}},
        {"losses": [], "norms": [], "gradients": wanted, "weights": {}},
    )
    return max(worst, found)
