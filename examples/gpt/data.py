"""Batches of bytes from the files of a channel."""

from pathlib import Path

import torch
from torch import Tensor


def read_channel(folder: Path, stem: str) -> Tensor:
    """All files of the channel whose name starts with `stem`, in name order, as one tensor of bytes."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name.startswith(stem))
    if not files:
        present = ", ".join(sorted(path.name for path in folder.iterdir())) or "nothing"
        raise FileNotFoundError(f"no file named {stem}* in {folder}, which holds {present}")
    text = b"".join(path.read_bytes() for path in files)
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


def batch(text: Tensor, size: int, context: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """`size` random windows: inputs and the bytes that follow each of them, both (size, context) of int64."""
    if len(text) <= context:
        raise ValueError(f"{len(text)} bytes of text are too few for a context of {context}")
    starts = torch.randint(len(text) - context, (size,), generator=generator)
    windows = torch.stack([text[start : start + context + 1] for start in starts.tolist()]).long()
    return windows[:, :-1], windows[:, 1:]
