"""Sandbox: an instance (`algo-N`) as namespaces, a supervisor that outlives the agent, and its cluster's network.

Blocking calls; an asyncio caller uses `asyncio.to_thread`. All that runs is found again from its folder, so an agent
that was killed takes up where it stood: `attach(dir)`, `ClusterNetwork(dir).ensure(…)`.

Use, per instance:
    net = ClusterNetwork(cluster_dir).ensure(members, forwards, isolated=False)
    spec = SandboxSpec(directory=…, hostname="algo-1", hosts=net.hosts, network="cluster", network_dir=…, commands=[…])
    handle = start(spec)             # returns when all commands have been started
    handle = attach(directory)       # after a restart of the agent; None: never started
    handle.exit_record()             # None while it runs; on disk (fsync) before anyone learns of it
    handle.stop(grace); handle.kill(); handle.prove_empty(); handle.usage()
Lines are in `<directory>/spool/lines.jsonl` (see `spool`).
"""

from trainshed_worker.sandbox.environment import python_binds
from trainshed_worker.sandbox.handle import InstanceHandle, OnceResult, attach, prove_empty, run_once, start
from trainshed_worker.sandbox.netplan import Addresses
from trainshed_worker.sandbox.network import ClusterNetwork
from trainshed_worker.sandbox.probe import Finding, isolation, overlay, probe
from trainshed_worker.sandbox.removal import remove_tree
from trainshed_worker.sandbox.spare import SpareSandbox
from trainshed_worker.sandbox.spawn import Parent, warm_up
from trainshed_worker.sandbox.spec import (
    FIRST_JOB_UID,
    Bind,
    Command,
    CommandExit,
    ExitRecord,
    InstanceState,
    SandboxError,
    SandboxSpec,
    Usage,
)
from trainshed_worker.sandbox.spool import SpoolWriter

__all__ = [
    "FIRST_JOB_UID",
    "Addresses",
    "Bind",
    "ClusterNetwork",
    "Command",
    "CommandExit",
    "ExitRecord",
    "Finding",
    "InstanceHandle",
    "InstanceState",
    "OnceResult",
    "Parent",
    "SandboxError",
    "SandboxSpec",
    "SpareSandbox",
    "SpoolWriter",
    "Usage",
    "attach",
    "isolation",
    "overlay",
    "probe",
    "prove_empty",
    "python_binds",
    "remove_tree",
    "run_once",
    "start",
    "warm_up",
]
