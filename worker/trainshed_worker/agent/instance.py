"""From an assignment, its plan and its network to the sandbox's spec. Pure but for looking at the machine's devices."""

from dataclasses import replace
from glob import glob
from pathlib import Path

from trainshed_worker.agent.networks import InstanceNetwork
from trainshed_worker.contract import OVERLAY, WARM_POOL_CACHE, InstanceLayout, ml_binds, process_environment
from trainshed_worker.environments import INSIDE, PythonEnvironment
from trainshed_worker.launchers import LaunchEnvironment, LaunchPlan, plan, support_paths
from trainshed_worker.protocol import Assignment, MachineFacts
from trainshed_worker.sandbox import Bind, Command, SandboxSpec, python_binds

FAIL_SAFE_SECONDS = 30.0
"""How much later than the agent the supervisor enforces the deadline by itself."""
GANG_GRACE = 5.0
"""Seconds that the other processes of an instance get when one has failed."""


def launch_plan(
    assignment: Assignment,
    layout: InstanceLayout,
    environment: PythonEnvironment,
    network: InstanceNetwork,
    facts: MachineFacts,
) -> LaunchPlan:
    """What this host starts. LaunchRefused where the job cannot be started as asked."""
    variables = process_environment(assignment, network.facts, search_path=environment.search_path)
    launch = LaunchEnvironment(
        python=environment.python,
        variables=variables,
        cpus=facts.cpus,
        mounts={INSIDE: environment.files},
    )
    return plan(assignment, layout, launch)


def environment_binds(environment: PythonEnvironment) -> list[Bind]:
    """Read-only binds of the base, its sources and the job's requirements."""
    binds = python_binds(environment.prefix, list(environment.sources))
    shown = [bind.source for bind in binds]
    for path in support_paths():
        if not any(path.is_relative_to(source) for source in shown):
            binds.append(Bind(str(path), str(path)))
    binds = [replace(bind, common=True) for bind in binds]
    return binds + [Bind(str(source), str(inside)) for source, inside in environment.mounts]


def instance_binds(
    layout: InstanceLayout, environment: PythonEnvironment, pool_cache: Path, *, layered: bool
) -> list[Bind]:
    """All that the instance sees besides the system. `layered`: whether overlays can be mounted here."""
    binds = [
        *ml_binds(layout, layered=layered),
        Bind(str(pool_cache), str(WARM_POOL_CACHE), writable=True),
        Bind(str(environment.host_directory), str(INSIDE), writable=True, give=True, layered=environment.layered),
        *environment_binds(environment),
    ]
    if layout.checkpoints_outside_ml:
        binds.append(Bind(str(layout.checkpoints), str(layout.checkpoint_path), writable=True, give=True))
    return binds


def device_files(assignment: Assignment) -> list[str]:
    """Device files of the accelerators, none for a stand-in."""
    if assignment.stand_in or assignment.accelerators == 0:
        return []
    return sorted([*glob("/dev/nvidia[0-9]*"), *glob("/dev/nvidiactl"), *glob("/dev/nvidia-uvm*")])


def sandbox_spec(
    assignment: Assignment,
    layout: InstanceLayout,
    environment: PythonEnvironment,
    network: InstanceNetwork,
    launch: LaunchPlan,
    slot: int,
    facts: MachineFacts,
    pool_cache: Path,
) -> SandboxSpec:
    """The instance as the supervisor runs it."""
    deadline = assignment.deadline
    return SandboxSpec(
        directory=str(layout.instance),
        hostname=assignment.host.name,
        commands=[
            Command(
                argv=list(command.argv),
                env=dict(command.env),
                cwd=command.cwd,
                tag=str(command.local_rank) if command.local_rank is not None else "0",
                stream=command.stream,
                prefix=command.prefix,
                fresh=command.fresh,
            )
            for command in launch.commands
        ],
        hosts=network.hosts,
        binds=instance_binds(layout, environment, pool_cache, layered=OVERLAY in facts.features),
        slot=slot,
        network="cluster" if network.mode == "cluster" else "host",
        network_dir=str(network.directory) if network.directory else "",
        isolation="full" if facts.isolation == "full" else "none",
        memory_bytes=assignment.memory_bytes if 0 < assignment.memory_bytes < facts.memory_bytes else 0,
        devices=device_files(assignment),
        grace=GANG_GRACE,
        deadline=deadline + assignment.grace_seconds + FAIL_SAFE_SECONDS if deadline is not None else None,
        instance_id=assignment.id,
    )
