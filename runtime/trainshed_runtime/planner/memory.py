"""Bytes of device memory that one rank needs at its peak, by what they are for.

Model states are sharded over the partition group; the rest is the rank's own. Mixed precision keeps one fp32 master of
each parameter, from which 16-bit copies are gathered a layer at a time: 4 + 4 + 8 bytes per parameter with Adam stay
sharded. A process that holds the whole model needs its 16-bit parameters and gradients besides: 20 bytes in all, the
usual figure (10 B parameters: 200 GB). Activations follow the published count of what a transformer layer saves:
sequence · batch · hidden · 34 bytes in 16 bits, and heads · sequence² · 5 bytes where attention scores are kept.
"""

import math
from dataclasses import dataclass
from typing import Literal

from trainshed_runtime.planner.shape import Shape

Precision = Literal["bf16", "fp16", "fp32"]
OPTIMIZERS = {"adam": 8, "momentum": 4, "sgd": 0}
"""Bytes of state per parameter, in fp32."""
USABLE = 0.9
"""Of a device's memory; the rest is for the driver's context, the libraries' buffers and fragmentation."""
_GATHERED_LAYERS = 2
"""The layer at work and the one that is fetched ahead."""


@dataclass(frozen=True)
class Settings:
    """What the memory of a rank depends on besides model and degree.

    `checkpointing`: layers per checkpoint, 0 for none; `horizon`: layers whose checkpoint may be on the device while
    the others are offloaded to the host.
    """

    precision: Precision = "bf16"
    optimizer: str = "adam"
    micro_batch: int = 1
    checkpointing: int = 1
    offload: bool = False
    horizon: int = 4
    flash_attention: bool = False
    dropout: bool = True
    fp32_reduce: bool = True
    max_live: int = 1_000_000_000
    """Parameters that stay gathered from their first use in an optimizer step to its end (sdp_max_live_parameters)."""

    @property
    def width(self) -> int:
        """Bytes of an element of a gathered parameter and of an activation."""
        return 4 if self.precision == "fp32" else 2

    @property
    def reduce_width(self) -> int:
        """Bytes of an element of a gradient on the wire and in the partial sums of several micro-steps."""
        return 4 if self.fp32_reduce else self.width


@dataclass(frozen=True)
class Memory:
    """Bytes on the device, and what is offloaded to the host's memory."""

    parameters: int
    gradients: int
    optimizer: int
    gathered: int
    activations: int
    host: int = 0
    update: int = 0
    """What the optimizer's step takes besides, when nothing is gathered and no activation is left."""

    @property
    def states(self) -> int:
        return self.parameters + self.gradients + self.optimizer

    @property
    def total(self) -> int:
        return self.states + max(self.gathered + self.activations, self.update)


def model_states(parameters: int, settings: Settings) -> int:
    """What one process that holds the whole model would need for it: parameters, gradients and optimizer state."""
    mixed = 0 if settings.precision == "fp32" else 2 * settings.width
    return parameters * (4 + 4 + OPTIMIZERS[settings.optimizer] + mixed)


def rank_memory(shape: Shape, degree: int, settings: Settings) -> Memory:
    """The peak of one rank of a partition group of `degree`."""
    shard = math.ceil(shape.parameters / degree)
    activations, host = _activations(shape, degree, settings)
    return Memory(
        parameters=4 * shard,
        gradients=4 * shard,
        optimizer=OPTIMIZERS[settings.optimizer] * shard,
        gathered=_gathered(shape, degree, settings),
        activations=activations,
        host=host,
        update=4 * shard if OPTIMIZERS[settings.optimizer] else 0,
    )


def _gathered(shape: Shape, degree: int, settings: Settings) -> int:
    """Whole parameters of the layers at work and of those that are kept, and the root's whole gradient.

    None where each rank has the model whole in fp32.
    """
    if degree == 1 and settings.precision == "fp32":
        return 0
    at_work = min(_GATHERED_LAYERS, shape.layers) * shape.layer_parameters
    kept = kept_parameters(shape, settings.max_live)
    parameters = settings.width * min(max(kept, shape.root_parameters) + at_work, shape.parameters)
    # The root's gradient is there from the head's backward to the end.
    return round(parameters + settings.width * shape.root_parameters)


def kept_parameters(shape: Shape, max_live: int) -> float:
    """How many parameters stay gathered between their uses in an optimizer step: whole layers, so many that they and
    those at work are at most `max_live`."""
    if shape.parameters <= max_live:
        return shape.parameters
    if shape.layer_parameters < 1:
        return 0
    return max(0, max_live // shape.layer_parameters - _GATHERED_LAYERS) * shape.layer_parameters


def _activations(shape: Shape, degree: int, settings: Settings) -> tuple[int, int]:
    """(device, host): what is kept for the backward pass, and the most that is at work at once: the head's logits, or
    a layer's recomputed activations with its gradients before they are reduced."""
    rows = settings.micro_batch * shape.sequence
    layer = _layer_activations(shape, settings, rows)
    logits = rows * shape.vocabulary * (2 * settings.width + 4)
    sharded = degree > 1 or settings.precision != "fp32"
    unreduced = (settings.width + settings.reduce_width) * shape.layer_parameters if sharded else 0
    if settings.checkpointing < 1:
        return round(shape.layers * layer + max(logits, unreduced)), 0
    kept = rows * shape.hidden * settings.width
    checkpoints = math.ceil(shape.layers / settings.checkpointing)
    on_device = min(checkpoints, settings.horizon) if settings.offload else checkpoints
    # The logits are gone before the first layer is computed again.
    work = max(settings.checkpointing * layer + unreduced, logits)
    return round(on_device * kept + work), (checkpoints - on_device) * kept


def _layer_activations(shape: Shape, settings: Settings, rows: int) -> float:
    width, dropout = settings.width, 1 if settings.dropout else 0
    linear = rows * shape.hidden * (16 * width + 2 * dropout)
    if settings.flash_attention:
        return linear
    scores = shape.heads * shape.sequence * rows
    return linear + scores * (width * (1 + dropout) + dropout)
