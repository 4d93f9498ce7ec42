"""Modules of the library: a layer norm and an attention layer. Tensor-parallel modules are refused by name."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch.nn import huggingface

__all__ = ["FlashAttentionLayer", "FusedLayerNorm", "huggingface"]


class FusedLayerNorm(nn.LayerNorm):
    """torch's layer norm, which is one kernel."""


class FlashAttentionLayer(nn.Module):
    """Scaled dot-product attention over (batch, heads, sequence, head size), by the fastest kernel for the device."""

    def __init__(
        self,
        attention_dropout_prob: float = 0.1,
        scale_attention_scores: bool = True,
        scale_attn_by_layer_idx: bool = False,
        layer_idx: int | None = None,
        scale: float | None = None,
        **other: Any,
    ) -> None:
        super().__init__()
        if other:
            raise TypeError(f"FlashAttentionLayer does not know {', '.join(sorted(other))}")
        self.dropout = attention_dropout_prob
        self.scale = scale if scale_attention_scores else 1.0
        self.divisor = float((layer_idx or 0) + 1) if scale_attn_by_layer_idx else 1.0

    def forward(
        self,
        query_layer: torch.Tensor,
        key_layer: torch.Tensor,
        value_layer: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        causal: bool = False,
    ) -> torch.Tensor:
        """`attention_mask` is added to the scores (or says, as booleans, what takes part)."""
        scale = (self.scale if self.scale is not None else query_layer.size(-1) ** -0.5) / self.divisor
        return nn.functional.scaled_dot_product_attention(
            query_layer,
            key_layer,
            value_layer,
            attention_mask,
            self.dropout if self.training else 0.0,
            is_causal=causal and attention_mask is None,
            scale=scale,
        )


def __getattr__(name: str) -> Any:
    if name.startswith("Distributed"):
        raise AttributeError(
            f"smp.nn.{name} divides a layer over tensor-parallel ranks, which this library does not do. Use the plain "
            "torch or transformers module: sharded_data_parallel_degree divides its states over ranks."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
