"""State dicts of Hugging Face models."""

from smdistributed.modelparallel.torch.nn.huggingface import gpt2

__all__ = ["gpt2"]
