"""The GPT that the runtime's benchmarks train, and compute that is emulated by waiting, which leaves the cores free."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.runtime_shape import Shape


class Block(nn.Module):
    """Attention and a feed-forward net with residual connections."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.norm_1, self.norm_2 = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.qkv, self.out = nn.Linear(shape.width, 3 * shape.width), nn.Linear(shape.width, shape.width)
        self.up, self.down = nn.Linear(shape.width, 4 * shape.width), nn.Linear(4 * shape.width, shape.width)
        self.seconds = shape.forward_ms / 1000

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.seconds:
            x = _Waiting.apply(x, self.seconds)
        size = x.shape[:2]
        q, k, v = (part.view(*size, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm_1(x)).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(*size, -1))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))


class Gpt(nn.Module):
    """Tied embeddings; forward gives the loss of predicting the next token."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.places = nn.Embedding(shape.sequence, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.norm(x), self.tokens.weight)
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())


class _Waiting(torch.autograd.Function):
    """Takes the time of a block without using a core."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, seconds: float) -> torch.Tensor:
        context.seconds = seconds
        time.sleep(seconds)
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        time.sleep(2 * context.seconds)
        return gradient, None


class Layer(nn.Module):
    """A linear layer with a residual connection."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.linear = nn.Linear(shape.width, shape.width)
        self.seconds = shape.forward_ms / 1000

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.seconds:
            x = _Waiting.apply(x, self.seconds)
        return x + functional.relu(self.linear(x))


class Mlp(nn.Module):
    """Square layers; forward gives the mean square of what comes out."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Layer(shape) for _ in range(shape.layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.requires_grad_()  # so that the first layer's waiting counts in backward, too
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


def make(shape: Shape) -> Any:
    """The same weights on every rank."""
    torch.manual_seed(0)
    return Mlp(shape) if shape.mlp else Gpt(shape)


def batches(shape: Shape, count: int, rank: int) -> list[torch.Tensor]:
    """A rank's micro-batches of one optimizer step."""
    generator = torch.Generator().manual_seed(rank + 1)
    if shape.mlp:
        return [torch.randn(shape.batch, shape.width, generator=generator) for _ in range(count)]
    size = (shape.batch, shape.sequence)
    return [torch.randint(0, shape.vocabulary, size, generator=generator) for _ in range(count)]


def parameter_bytes(shape: Shape) -> int:
    """In float32."""
    return sum(parameter.numel() * 4 for parameter in make(shape).parameters())
