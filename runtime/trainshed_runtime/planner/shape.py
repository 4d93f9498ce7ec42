"""The shape of a decoder-only transformer, from what is known of it.

Invariant: the number of parameters is the given one; where hidden size, layers or heads are not given they are derived
from it, and `assumed` names them, so that no figure rests on a silent guess.
"""

from dataclasses import dataclass

_ASPECT = 128
"""Hidden size per layer of the large published models (12,288 / 96); only used where no shape is given."""
VOCABULARY = 50_257


@dataclass(frozen=True)
class Shape:
    """`parameters` in all; sizes in elements, `sequence` in tokens. `assumed`: the names that were derived."""

    parameters: int
    hidden: int
    layers: int
    heads: int
    vocabulary: int
    sequence: int
    assumed: tuple[str, ...] = ()

    @property
    def root_parameters(self) -> int:
        """Token and position embeddings (the head is tied to the first); gathered from forward to backward."""
        return min(self.parameters, (self.vocabulary + self.sequence) * self.hidden)

    @property
    def layer_parameters(self) -> float:
        """Of one transformer layer, the unit that is gathered and reduced at once."""
        return (self.parameters - self.root_parameters) / self.layers

    def flops(self, micro_batch: int, recompute: bool) -> float:
        """Operations of one micro-step: 2 per parameter and token forward, twice that backward, attention's products of
        sequence by sequence, and the forward pass again where activations are recomputed."""
        tokens = micro_batch * self.sequence
        forward = 2 * self.parameters * tokens + 4 * self.layers * self.hidden * self.sequence * tokens
        return forward * (4 if recompute else 3)


def shape_of(
    parameters: int,
    sequence: int,
    hidden: int | None = None,
    layers: int | None = None,
    heads: int | None = None,
    vocabulary: int | None = None,
) -> Shape:
    """The shape with `parameters` in all. ValueError where the given sizes cannot have so many."""
    words = vocabulary or VOCABULARY
    sizes = {"hidden": hidden, "layers": layers, "heads": heads, "vocabulary": vocabulary}
    if hidden is None and layers is not None:
        hidden = _rounded((parameters / (12 * layers)) ** 0.5, 64)
    elif hidden is None:
        hidden = _rounded((parameters * _ASPECT / 12) ** (1 / 3), 128 if parameters > 1e9 else 64)
    inner = parameters - (words + sequence) * hidden
    if layers is None:
        layers = max(1, round(max(inner, 0) / (12 * hidden * hidden)))
    if heads is None:
        heads = max(1, hidden // 128 if hidden >= 1024 else hidden // 64)
    if vocabulary is not None and inner <= 0:
        raise ValueError(
            f"{parameters} parameters are fewer than the embeddings of {words} words and {sequence} positions of "
            f"{hidden} have; give the sizes of the model"
        )
    return Shape(
        parameters, hidden, layers, heads, words, sequence, tuple(name for name, size in sizes.items() if size is None)
    )


def _rounded(number: float, step: int) -> int:
    return max(step, round(number / step) * step)
