"""How long one optimizer step takes, as two bounds between which it lies, from rates and bytes alone.

`least`: arithmetic at the device's rate with all communication behind it, both kinds of link at work at once. `most`:
nothing overlaps. There is no latency term and nothing fitted; a step that waits for many small messages, or for the
slowest of many ranks, takes longer than `most` says.
"""

from dataclasses import dataclass

from trainshed_runtime.planner.traffic import Traffic


@dataclass(frozen=True)
class Step:
    """Seconds. `compute`: arithmetic; `node_wire` and `rank_wire`: the bytes over a node's and a device's link."""

    compute: float
    node_wire: float
    rank_wire: float

    @property
    def least(self) -> float:
        return max(self.compute, self.node_wire, self.rank_wire)

    @property
    def most(self) -> float:
        return self.compute + self.node_wire + self.rank_wire


def step_time(
    traffic: Traffic,
    compute_seconds: float,
    node_link: float | None,
    device_link: float | None,
) -> Step | None:
    """`compute_seconds` of the whole step; links in bytes per second. None where a link that is used is unknown."""
    total = traffic.total
    if (total.node and not node_link) or (total.rank and not device_link):
        return None
    return Step(
        compute_seconds,
        total.node / node_link if node_link and total.node else 0.0,
        total.rank / device_link if device_link and total.rank else 0.0,
    )
