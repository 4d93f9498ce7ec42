"""Modules with all kinds of initialization, made at once and with delay, whole and sharded."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.unit.runtime.engine.training import full
from trainshed_runtime.engine import Engine, EngineConfig
from trainshed_runtime.engine.deferred import plan_of, recording
from trainshed_runtime.mesh import MicsMesh


class Varied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 6, padding_idx=3)
        self.places = nn.Embedding(5, 6)
        self.norm = nn.LayerNorm(6)
        self.layers = nn.ModuleList(nn.Linear(6, 7) for _ in range(2))
        self.inner = nn.Linear(7, 6, bias=False)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.words.weight
        self.mixed = nn.Parameter(torch.randn(6) / 10 + torch.arange(6))
        self.never = nn.Parameter(torch.zeros(2, 3))
        self.register_buffer("mask", torch.tril(torch.ones(4, 4, dtype=torch.bool)))
        self.register_buffer("table", torch.tensor([[1.5, 2.5], [3.5, 4.5]]))
        nn.init.trunc_normal_(self.places.weight, std=0.02)
        nn.init.orthogonal_(self.inner.weight)
        self.apply(self._once_more)
        with torch.no_grad():
            self.layers[1].weight.mul_(0.5)[2].fill_(0.25)

    def _once_more(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.normal_(module.weight, std=0.3)
            nn.init.zeros_(module.bias)


def _values(module: nn.Module) -> dict[str, list[Any]]:
    return {name: full(value).tolist() for name, value in module.state_dict().items()}


def _delayed(mode: str) -> nn.Module:
    torch.manual_seed(5)
    with recording(mode):  # type: ignore[arg-type]
        module = Varied()
    torch.manual_seed(77)  # what is drawn between counts for nothing
    assert all(parameter.device.type == "meta" for parameter in module.parameters())
    return module


def whole(mode: str) -> dict[str, list[Any]]:
    """Made with delay (or with mode `at once` without), not sharded."""
    if mode == "at once":
        torch.manual_seed(5)
        return _values(Varied())
    module = _delayed(mode)
    plan_of(module).fill(module, torch.device("cpu"))
    return _values(module)


def sharded(mode: str, degrees: list[int]) -> list[dict[str, list[Any]]]:
    """For each degree."""
    found = []
    for degree in degrees:
        module = _delayed(mode)
        plan = plan_of(module)
        engine = Engine(module, MicsMesh.create(degree), EngineConfig())
        plan.fill(module, engine.mesh.device)
        assert module.head.weight is module.words.weight
        found.append(_values(module))
        engine.close()
    return found
