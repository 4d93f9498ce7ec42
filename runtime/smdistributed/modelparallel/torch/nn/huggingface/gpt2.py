"""GPT-2's state dict in Hugging Face's names, which models keep here: nothing is renamed.

Only a model whose layers were exchanged for tensor-parallel ones has other names; such a state dict is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FOREIGN = ".seq_layers."


def translate_hf_state_dict_to_smdistributed_gpt2(
    state_dict: Mapping[str, Any], *args: Any, **more: Any
) -> dict[str, Any]:
    """A copy of the mapping."""
    return _same(state_dict)


def translate_state_dict_to_hf_gpt2(state_dict: Mapping[str, Any], max_seq_len: int | None = None) -> dict[str, Any]:
    """A copy of the mapping."""
    del max_seq_len
    return _same(state_dict)


def _same(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    foreign = next((name for name in state_dict if _FOREIGN in name), None)
    if foreign is not None:
        raise ValueError(
            f"{foreign} belongs to a tensor-parallel transformer, whose weights this library does not read. Save the "
            "model with use_distributed_transformer=0, in Hugging Face's names."
        )
    return dict(state_dict)
