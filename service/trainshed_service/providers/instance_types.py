"""Instance types as rows of data: what a job that names one may expect to find.

A family is a row of sizes; every size is (vCPUs, memory in GiB, accelerators). A slot without named types becomes
whatever type of this table a job asks for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

_GIB = 1024**3


class _Row(BaseModel):
    """A type in the file of an installation."""

    model_config = ConfigDict(extra="forbid")
    vcpus: int = Field(ge=1)
    memory_gib: float = Field(gt=0, alias="memoryGiB")
    accelerators: int = Field(default=0, ge=0)


_TypeName = Annotated[str, StringConstraints(pattern=r"^ml\.[a-z0-9-]+\.[a-z0-9-]+$", max_length=64)]
_TYPES_FILE = TypeAdapter(dict[_TypeName, _Row])


@dataclass(frozen=True)
class InstanceType:
    """One type. `accelerators` are the devices that the real machine of that name has."""

    name: str
    vcpus: int
    memory_bytes: int
    accelerators: int = 0


_ADDED: dict[str, tuple[int, int, int]] = {}

_VCPUS = {
    "medium": 1, "large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32, "9xlarge": 36, "10xlarge": 40,
    "12xlarge": 48, "16xlarge": 64, "18xlarge": 72, "24xlarge": 96, "32xlarge": 128, "48xlarge": 192,
    "96xlarge": 384,
}  # fmt: skip

_STANDARD = ("large", "xlarge", "2xlarge", "4xlarge", "8xlarge", "12xlarge", "16xlarge", "24xlarge")
_FLEX = _STANDARD[:-1]
_EIGHTH = (*_STANDARD, "32xlarge", "48xlarge", "96xlarge")

# family: (GiB of memory per vCPU, sizes)
_CPU_FAMILIES: dict[str, tuple[float, tuple[str, ...]]] = {
    "t3": (2, ("medium", "large", "xlarge", "2xlarge")),
    "m4": (4, ("xlarge", "2xlarge", "4xlarge", "10xlarge", "16xlarge")),
    "m5": (4, ("large", "xlarge", "2xlarge", "4xlarge", "12xlarge", "24xlarge")),
    "m5d": (4, _STANDARD),
    "m6i": (4, (*_STANDARD, "32xlarge")),
    "m6id": (4, (*_STANDARD, "32xlarge")),
    "m7i": (4, (*_STANDARD, "48xlarge")),
    "c4": (1.875, ("xlarge", "2xlarge", "4xlarge", "8xlarge")),
    "c5": (2, ("large", "xlarge", "2xlarge", "4xlarge", "9xlarge", "18xlarge")),
    "c5n": (2.625, ("xlarge", "2xlarge", "4xlarge", "9xlarge", "18xlarge")),
    "c6i": (2, ("xlarge", *_STANDARD[2:], "32xlarge")),
    "c7i": (2, (*_STANDARD, "48xlarge")),
    "r5": (8, _STANDARD),
    "r5d": (8, _STANDARD),
    "r6i": (8, (*_STANDARD, "32xlarge")),
    "r7i": (8, (*_STANDARD, "48xlarge")),
    "m7i-flex": (4, _FLEX),
    "c7i-flex": (2, _FLEX),
    "m8i-flex": (4, _FLEX),
    "c8i-flex": (2, _FLEX),
    "r8i-flex": (8, _FLEX),
    "m8i": (4, _EIGHTH),
    "c8i": (2, _EIGHTH),
    "r8i": (8, _EIGHTH),
}

# type: (vCPUs, GiB of memory, accelerators)
_ACCELERATED: dict[str, tuple[int, int, int]] = {
    "ml.p2.xlarge": (4, 61, 1),
    "ml.p2.8xlarge": (32, 488, 8),
    "ml.p2.16xlarge": (64, 732, 16),
    "ml.p3.2xlarge": (8, 61, 1),
    "ml.p3.8xlarge": (32, 244, 4),
    "ml.p3.16xlarge": (64, 488, 8),
    "ml.p3dn.24xlarge": (96, 768, 8),
    "ml.p4d.24xlarge": (96, 1152, 8),
    "ml.p4de.24xlarge": (96, 1152, 8),
    "ml.p5.4xlarge": (16, 256, 1),
    "ml.p5.48xlarge": (192, 2048, 8),
    "ml.p5e.48xlarge": (192, 2048, 8),
    "ml.p5en.48xlarge": (192, 2048, 8),
    "ml.p6-b200.48xlarge": (192, 2048, 8),
    "ml.trn1.2xlarge": (8, 32, 1),
    "ml.trn1.32xlarge": (128, 512, 16),
    "ml.trn1n.32xlarge": (128, 512, 16),
    "ml.trn2.48xlarge": (192, 2048, 16),
}

_GPU_FAMILIES: dict[str, tuple[float, dict[str, int]]] = {
    "g4dn": (4, {"xlarge": 1, "2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "12xlarge": 4, "16xlarge": 1}),
    "g5": (4, {"xlarge": 1, "2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "12xlarge": 4, "16xlarge": 1, "24xlarge": 4,
               "48xlarge": 8}),
    "g6": (4, {"xlarge": 1, "2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "12xlarge": 4, "16xlarge": 1, "24xlarge": 4,
               "48xlarge": 8}),
    "g6e": (8, {"xlarge": 1, "2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "12xlarge": 4, "16xlarge": 1, "24xlarge": 4,
                "48xlarge": 8}),
}  # fmt: skip


@cache
def _table() -> dict[str, InstanceType]:
    rows: dict[str, InstanceType] = {}
    for family, (ratio, sizes) in _CPU_FAMILIES.items():
        for size in sizes:
            name, vcpus = f"ml.{family}.{size}", _VCPUS[size]
            rows[name] = InstanceType(name, vcpus, int(vcpus * ratio * _GIB))
    rows["ml.t3.medium"] = InstanceType("ml.t3.medium", 2, 4 * _GIB)
    for family, (ratio, devices) in _GPU_FAMILIES.items():
        for size, count in devices.items():
            name, vcpus = f"ml.{family}.{size}", _VCPUS[size]
            rows[name] = InstanceType(name, vcpus, int(vcpus * ratio * _GIB), count)
    for name, (vcpus, gib, count) in _ACCELERATED.items():
        rows[name] = InstanceType(name, vcpus, gib * _GIB, count)
    return rows


def load_types(path: Path) -> list[str]:
    """Add the types of a JSON file (`{"ml.x1.large": {"vcpus": 2, "memoryGiB": 8, "accelerators": 0}}`) to the table.

    Returns their names; none where there is no such file. Raises ValueError, with the file's name, for a bad one.
    """
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    try:
        added = _TYPES_FILE.validate_json(text)
    except ValidationError as error:
        raise ValueError(f"{path} does not list instance types: {error}") from None
    add_types({name: (row.vcpus, int(row.memory_gib * _GIB), row.accelerators) for name, row in added.items()})
    return sorted(added)


def add_types(types: Mapping[str, Sequence[int]]) -> None:
    """Add types to the table, or replace them: name → (vCPUs, bytes of memory, accelerators)."""
    for name, (vcpus, memory, accelerators) in types.items():
        _ADDED[name] = (vcpus, memory, accelerators)
        _table()[name] = InstanceType(name, vcpus, memory, accelerators)


def added_types() -> dict[str, tuple[int, int, int]]:
    """What was added to the table, as `add_types` takes it."""
    return dict(_ADDED)


def known_type(name: str) -> InstanceType | None:
    """The row of `name`, or None where no such type is known."""
    return _table().get(name)


def is_stand_in(name: str, accelerators: int) -> bool:
    """Whether a machine with so many accelerators can only stand in for the type on its CPU."""
    known = known_type(name)
    return known is not None and known.accelerators > 0 and accelerators == 0
