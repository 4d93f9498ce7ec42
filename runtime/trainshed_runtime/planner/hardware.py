"""What the makers publish of machines with accelerators: memory, arithmetic rates and link speeds; nothing measured.

Rates are dense peak rates per device (bf16 or fp16 with tensor cores; fp32 without). A device's link is its NVLink, in
one direction, or PCIe where it has none; a node's link is the instance's whole network, in one direction. Instances
that share a bigger machine's network are listed with the rate that their maker calls "up to".
"""

from dataclasses import dataclass

_GIB = 2**30


@dataclass(frozen=True)
class Device:
    """One accelerator. `half` and `single`: operations per second; `link`: bytes per second, one direction."""

    name: str
    memory_bytes: int
    half: float | None
    single: float | None
    link: float | None


@dataclass(frozen=True)
class Machine:
    """One instance: `devices` of a kind and its network (`link`: bytes per second, one direction, None: unknown)."""

    name: str
    device: Device
    devices: int
    link: float | None


def _device(name: str, gib: float, half: float, single: float, link_gb: float) -> Device:
    return Device(name, int(gib * _GIB), half * 1e12, single * 1e12, link_gb * 1e9)


V100 = _device("V100 16 GB", 16, 125, 15.7, 150)
V100_32 = _device("V100 32 GB", 32, 125, 15.7, 150)
A100 = _device("A100 40 GB", 40, 312, 19.5, 300)
A100_80 = _device("A100 80 GB", 80, 312, 19.5, 300)
H100 = _device("H100 80 GB", 80, 989, 67, 450)
H200 = _device("H200 141 GB", 131, 989, 67, 450)
B200 = _device("B200 180 GB", 167, 2250, 75, 900)
T4 = _device("T4 16 GB", 16, 65, 8.1, 15.75)
A10G = _device("A10G 24 GB", 24, 70, 31.5, 31.5)
L4 = _device("L4 24 GB", 24, 121, 30.3, 31.5)
L40S = _device("L40S 48 GB", 48, 362, 91.6, 31.5)

# instance type: (device, how many, network in Gbit/s)
_MACHINES: dict[str, tuple[Device, int, float]] = {
    "ml.p3.2xlarge": (V100, 1, 10),
    "ml.p3.8xlarge": (V100, 4, 10),
    "ml.p3.16xlarge": (V100, 8, 25),
    "ml.p3dn.24xlarge": (V100_32, 8, 100),
    "ml.p4d.24xlarge": (A100, 8, 400),
    "ml.p4de.24xlarge": (A100_80, 8, 400),
    "ml.p5.4xlarge": (H100, 1, 100),
    "ml.p5.48xlarge": (H100, 8, 3200),
    "ml.p5e.48xlarge": (H200, 8, 3200),
    "ml.p5en.48xlarge": (H200, 8, 3200),
    "ml.p6-b200.48xlarge": (B200, 8, 3200),
}
_SIZES = {  # family: device, then size: (how many, network in Gbit/s)
    "g4dn": (T4, {"xlarge": (1, 25), "2xlarge": (1, 25), "4xlarge": (1, 25), "8xlarge": (1, 50), "12xlarge": (4, 50),
                  "16xlarge": (1, 50)}),
    "g5": (A10G, {"xlarge": (1, 10), "2xlarge": (1, 10), "4xlarge": (1, 25), "8xlarge": (1, 25), "12xlarge": (4, 40),
                  "16xlarge": (1, 25), "24xlarge": (4, 50), "48xlarge": (8, 100)}),
    "g6": (L4, {"xlarge": (1, 10), "2xlarge": (1, 10), "4xlarge": (1, 25), "8xlarge": (1, 25), "12xlarge": (4, 40),
                "16xlarge": (1, 25), "24xlarge": (4, 50), "48xlarge": (8, 100)}),
    "g6e": (L40S, {"xlarge": (1, 20), "2xlarge": (1, 20), "4xlarge": (1, 20), "8xlarge": (1, 25), "12xlarge": (4, 100),
                   "16xlarge": (1, 35), "24xlarge": (4, 200), "48xlarge": (8, 400)}),
}  # fmt: skip


def _table() -> dict[str, Machine]:
    rows = dict(_MACHINES)
    for family, (device, sizes) in _SIZES.items():
        rows.update({f"ml.{family}.{size}": (device, many, gbit) for size, (many, gbit) in sizes.items()})
    return {name: Machine(name, device, many, gbit * 125e6) for name, (device, many, gbit) in rows.items()}


MACHINES = _table()


def machine(name: str) -> Machine | None:
    """The row of an instance type, or None where its maker's figures are not in the table."""
    return MACHINES.get(name)


def plain_machine(name: str, memory_bytes: int, processes: int) -> Machine:
    """A machine of which only the memory is known, such as one without accelerators: its processes share the memory;
    rates and links are unknown, so no time is predicted unless they are given."""
    device = Device(f"1/{processes} of {name}", memory_bytes // processes, None, None, None)
    return Machine(name, device, processes, None)
