"""Which modules become wrap units: what is gathered together before its forward and scattered together afterwards.

Invariant: a parameter that several modules share ends up in one unit: the smallest that holds all its users; so no two
units ever hold the same parameter. The root module is always a unit and holds what is left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from torch import nn

_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
_MIN_ELEMENTS = 1024  # a block below this is not worth a collective of its own


def choose_units(root: nn.Module, limit: int, blocks: Sequence[type[nn.Module]] = ()) -> list[nn.Module]:
    """The modules to wrap, children before their parents, the root last.

    The members of lists and sequences are blocks (or, where given, the modules of the types `blocks`); a block of more
    than `limit` elements is divided into its children, where they have parameters of their own.
    """
    found = [module for module in _blocks(root, blocks) if module is not root]
    divided = [part for block in found for part in _divide(block, limit)]
    chosen = [module for module in divided if _elements(module) >= _MIN_ELEMENTS]
    sharing = _sharing(root, chosen)
    return [*(module for module in chosen if module not in sharing), root]


def _blocks(root: nn.Module, types: Sequence[type[nn.Module]]) -> list[nn.Module]:
    if types:
        return [module for module in root.modules() if isinstance(module, tuple(types))]
    found: list[nn.Module] = []
    for name, child in root.named_children():
        del name
        if isinstance(child, _CONTAINERS):
            members = list(child.children())
            if len(members) > 1 and any(_is_compound(member) for member in members):
                found.extend(member for member in members if next(member.parameters(), None) is not None)
                continue
        found.extend(_blocks(child, types))
    return found


def _is_compound(module: nn.Module) -> bool:
    return next(module.children(), None) is not None


def _divide(block: nn.Module, limit: int) -> list[nn.Module]:
    if _elements(block) <= limit:
        return [block]
    parts = [part for child in block.children() if _elements(child) for part in _divide(child, limit)]
    within = {id(parameter) for part in parts for parameter in part.parameters()}
    rest = any(id(parameter) not in within for parameter in block.parameters())
    # A container is never called, so it would gather nothing; what is left of one falls to the root.
    return [*parts, block] if rest and not isinstance(block, _CONTAINERS) else parts


def _elements(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _sharing(root: nn.Module, chosen: Sequence[nn.Module]) -> set[nn.Module]:
    """Those of `chosen` that may not be units, since a parameter of theirs is used outside of them, too."""
    users: dict[int, set[int]] = defaultdict(set)
    for module in root.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                users[id(parameter)].add(id(module))
    found = set()
    for candidate in chosen:
        inside = {id(module) for module in candidate.modules()}
        if any(users[id(parameter)] - inside for parameter in candidate.parameters()):
            found.add(candidate)
    return found
