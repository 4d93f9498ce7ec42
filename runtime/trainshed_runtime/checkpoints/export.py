"""Export to safetensors, streaming: the header is known before the data, so one tensor at a time is in memory.

Written here since the format's own package takes the whole model as a dictionary. A file is eight bytes of length, a
JSON header of that length (dtype, shape and place of each tensor) and the tensors' bytes, little-endian, in order.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

import torch
import torch.distributed as dist
from torch import nn

from trainshed_runtime.checkpoints.durable import write_file, write_text
from trainshed_runtime.checkpoints.full import shapes_of, stream

INDEX = "model.safetensors.index.json"
_TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_ALIGNMENT = 8

Shapes = Mapping[str, tuple[torch.Size, torch.dtype]]


def export_safetensors(
    module: nn.Module, folder: Path | str, dtype: torch.dtype | None = None, file_bytes: int = 5_000_000_000
) -> list[str]:
    """Write the whole model to `folder` from rank 0; a collective call. The names of the files, on every rank.

    `dtype`: what floating-point tensors are converted to; `file_bytes`: a file holds no more tensors once it is that
    large. Of several names of one tensor the first is written, as the format has no way to share.
    """
    place = Path(folder)
    shapes = {name: (size, _converted(kind, dtype)) for name, (size, kind) in shapes_of(module).items()}
    files = _divided(shapes, file_bytes)
    writes = not dist.is_initialized() or dist.get_rank() == 0
    tensors = stream(module)
    names = [_file_name(number, len(files)) for number in range(len(files))]
    for file_name, part in zip(names, files, strict=True):
        if writes:
            place.mkdir(parents=True, exist_ok=True)
            write_file(place / file_name, lambda file, part=part: _write(file, part, tensors, dtype))  # type: ignore[misc]
        else:
            for _ in part:
                next(tensors)
    if writes and len(files) > 1:
        where = {name: file_name for file_name, part in zip(names, files, strict=True) for name in part}
        total = sum(_bytes(size, kind) for size, kind in shapes.values())
        write_text(place / INDEX, json.dumps({"metadata": {"total_size": total}, "weight_map": where}, indent=2))
    return names


def _write(
    file: IO[bytes], part: Shapes, tensors: Iterator[tuple[str, torch.Tensor | None]], dtype: torch.dtype | None
) -> None:
    file.write(header(part))
    for expected in part:
        name, tensor = next(tensors)
        assert name == expected and tensor is not None
        kind = _converted(tensor.dtype, dtype)
        flat = tensor.to(kind).contiguous().reshape(-1)
        file.write(memoryview(flat.view(torch.uint8).numpy()) if flat.numel() else b"")


def header(part: Shapes) -> bytes:
    """The length and the JSON of a file that holds these tensors."""
    described: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (size, kind) in part.items():
        end = offset + _bytes(size, kind)
        described[name] = {"dtype": _TYPES[kind], "shape": list(size), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(described, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return struct.pack("<Q", len(text)) + text


def _divided(shapes: Shapes, limit: int) -> list[dict[str, tuple[torch.Size, torch.dtype]]]:
    files: list[dict[str, tuple[torch.Size, torch.dtype]]] = [{}]
    held = 0
    for name, (size, kind) in shapes.items():
        if kind not in _TYPES:
            raise ValueError(f"{name} is of {kind}, which safetensors has no name for")
        more = _bytes(size, kind)
        if held and held + more > limit:
            files.append({})
            held = 0
        files[-1][name] = (size, kind)
        held += more
    return files


def _bytes(size: Iterable[int], kind: torch.dtype) -> int:
    return torch.Size(size).numel() * kind.itemsize


def _converted(kind: torch.dtype, wanted: torch.dtype | None) -> torch.dtype:
    return wanted if wanted is not None and kind.is_floating_point else kind


def _file_name(number: int, count: int) -> str:
    return "model.safetensors" if count == 1 else f"model-{number + 1:05d}-of-{count:05d}.safetensors"
