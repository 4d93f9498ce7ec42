"""End everything that an agent's home still runs: for `trainshed down`, and for an operator who gives a node up."""

import logging
import shutil

from trainshed_worker.agent.options import AgentOptions
from trainshed_worker.sandbox import ClusterNetwork, SandboxError, attach, prove_empty

WAIT_SECONDS = 15.0
_log = logging.getLogger(__name__)


def purge(options: AgentOptions) -> int:
    """Kill all instances, remove all networks and their files. Returns 0, or 1 where something is not proven ended."""
    failures = 0
    assignments = list(options.assignments.iterdir()) if options.assignments.is_dir() else []
    builds = list(options.environments.glob(".build-*"))
    for directory, instance in [(d, d / "instance") for d in assignments] + [(d, d / "sandbox") for d in builds]:
        try:
            handle = attach(instance)
            if handle is not None and handle.is_alive():
                handle.kill()
                handle.wait(WAIT_SECONDS)
            emptiness = prove_empty(instance)
        except (SandboxError, OSError) as error:
            _log.error("%s: %s", directory, error)
            failures += 1
            continue
        if not emptiness:
            _log.error("%s: %s", directory, emptiness.reason)
            failures += 1
            continue
        shutil.rmtree(directory)
    for directory in list(options.clusters.iterdir()) if options.clusters.is_dir() else []:
        try:
            ClusterNetwork(directory).remove()
        except (SandboxError, OSError) as error:
            _log.error("%s: %s", directory, error)
            failures += 1
    return 1 if failures else 0
