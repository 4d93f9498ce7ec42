"""What of an instance's layout its processes see, as binds of the sandbox.

Invariant: the channels' directory, whose files may be links into the node's cache, is never shown but through an
overlay; where none can be mounted, the cache has given the job copies of its own.
"""

from trainshed_worker.contract.layout import INPUT_DATA, ML, InstanceLayout
from trainshed_worker.sandbox.spec import Bind

OVERLAY = "overlay"
"""The feature of a machine that can mount overlays (MachineFacts.features)."""


def ml_binds(layout: InstanceLayout, *, layered: bool) -> list[Bind]:
    """/opt/ml and the channels in it. `layered`: the machine has OVERLAY."""
    source = layout.input if layered else layout.input_data
    return [
        Bind(str(layout.ml), str(ML), writable=True, give=True),
        Bind(str(source), str(INPUT_DATA), writable=True, give=True, layered=layered),
    ]
