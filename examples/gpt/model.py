"""A small GPT over bytes: token = one byte, so any text trains it and no tokenizer has to travel with the model."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY = 256


@dataclass(frozen=True)
class Config:
    """`context` is the longest sequence in bytes, `width` the size of a position's vector."""

    context: int = 64
    width: int = 96
    depth: int = 3
    heads: int = 4


class Block(nn.Module):
    """Pre-norm causal attention and a 4x MLP."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.before_attention = nn.LayerNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.project = nn.Linear(config.width, config.width, bias=False)
        self.before_mlp = nn.LayerNorm(config.width)
        self.mlp = nn.Sequential(
            nn.Linear(config.width, 4 * config.width), nn.GELU(), nn.Linear(4 * config.width, config.width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, time, width) → the same shape."""
        batch, time, width = x.shape
        q, k, v = self.qkv(self.before_attention(x)).split(width, dim=2)
        shape = (batch, time, self.heads, width // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in (q, k, v))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, time, width))
        return x + self.mlp(self.before_mlp(x))


class GPT(nn.Module):
    """Decoder-only transformer; input and output embeddings are one matrix."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        if config.width % config.heads:
            raise ValueError(f"width {config.width} is not a multiple of heads {config.heads}")
        self.config = config
        self.tokens = nn.Embedding(VOCABULARY, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.width)
        self.apply(_initialise)
        scale = (2 * config.depth) ** -0.5
        with torch.no_grad():
            for block in self.blocks:
                block.project.weight.mul_(scale)
                block.mlp[2].weight.mul_(scale)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens: (batch, time) of byte values → logits (batch, time, 256); time is at most `context`."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.norm(x), self.tokens.weight)

    @torch.no_grad()
    def generate(self, prompt: bytes, length: int, temperature: float = 0.8, seed: int = 0) -> bytes:
        """`length` bytes that follow the prompt (at least one byte)."""
        if not prompt:
            raise ValueError("the prompt must have at least one byte")
        generator = torch.Generator().manual_seed(seed)
        text = list(prompt)
        for _ in range(length):
            window = torch.tensor([text[-self.config.context :]])
            logits = self(window)[0, -1].float() / temperature
            text.append(int(torch.multinomial(logits.softmax(0), 1, generator=generator)))
        return bytes(text[len(prompt) :])


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy in nats per byte."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def save(state_dict: dict[str, Tensor], config: Config, folder: Path) -> None:
    """Writes model.pt (state dict) and config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(state_dict, folder / "model.pt")
    (folder / "config.json").write_text(json.dumps(asdict(config), indent=2) + "\n")


def load(folder: Path) -> GPT:
    """The model that `save` wrote, ready to evaluate."""
    model = GPT(Config(**json.loads((folder / "config.json").read_text())))
    model.load_state_dict(torch.load(folder / "model.pt", map_location="cpu", weights_only=True))
    return model.eval()


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
