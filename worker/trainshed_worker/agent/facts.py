"""What this machine is: cores, memory, accelerators, isolation."""

import os
import shutil
import socket
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from trainshed_worker.protocol import MachineFacts
from trainshed_worker.sandbox import isolation, overlay, probe

NVIDIA_TIMEOUT = 20.0


def usable_cpus() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def usable_memory() -> int:
    """Bytes of memory, or the container's limit where that is lower."""
    total = int(psutil.virtual_memory().total)
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            total = min(total, int(text))
    return total


def count_accelerators() -> int:
    """GPUs as the driver's own tool lists them; 0 where there is no tool or it fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return 0
    try:
        listed = subprocess.run(
            [tool, "--list-gpus"],
            capture_output=True,
            text=True,
            timeout=NVIDIA_TIMEOUT,
            check=True,
        )
    except (subprocess.SubprocessError, OSError):
        return 0
    return sum(1 for line in listed.stdout.splitlines() if line.startswith("GPU "))


def product_version() -> str:
    try:
        return version("trainshed")
    except PackageNotFoundError:
        return "0"


def machine_facts(folder: Path) -> MachineFacts:
    """Blocking: tries out what the sandbox needs, in `folder` where that matters (the agent's own)."""
    findings = probe()
    found = isolation()
    if found == "full":
        findings.append(overlay(folder))
    features = [finding.name for finding in findings if finding.ok]
    if shutil.which("mpirun"):
        features.append("mpirun")
    return MachineFacts(
        hostname=socket.gethostname(),
        cpus=usable_cpus(),
        memory_bytes=usable_memory(),
        accelerators=count_accelerators(),
        isolation=found,
        features=features,
        version=product_version(),
    )
