"""What a preloaded parent is told when it is started, and the surroundings in which it and a fresh process start alike.

Invariant: `SURROUNDINGS` are the variables with which every training process starts and that act at its start; a
command whose own differ from them is never forked from a parent.
"""

import json
from dataclasses import asdict, dataclass

VARIABLE = "TRAINSHED_PRELOAD_PARENT"
"""Holds ParentFacts for the parent; no training process sees it."""

SURROUNDINGS = {
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}

MODULES = (
    "numpy",
    "torch",
    "torch.distributed",
    "torch.multiprocessing",
    "torch.nn.parallel",
    "torch.optim",
    "torch.utils.data",
    "torch._dynamo",
)
"""What a parent imports: what nearly every training script does, torch._dynamo by its first optimizer."""


@dataclass(frozen=True)
class ParentFacts:
    """`prefix`: the parent's own environment; `below`: the site directories that its `.pth` file names; `niceness`:
    what it runs with once it is ready; `channel`, `log`: descriptors."""

    channel: int
    log: int
    prefix: str
    below: list[str]
    modules: list[str]
    niceness: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "ParentFacts":
        return ParentFacts(**json.loads(text))
