"""Which processes make up an installation on one machine: their commands, variables and order. Pure.

A command is a module whose `main` the process runs, and arguments.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from trainshed_service.embedded.home import Home, HomeConfig

# In the order of their start; they are ended in the reverse order, so that the agent goes before what it talks to.
SERVICE_PARTS = ("gateway", "ingest", "api")
PARTS = ("agent", "api", "ingest", "gateway", "store")  # in the order of their end
_AGENT = "trainshed_worker.agent.__main__"
_MODULES = {
    "gateway": "trainshed_service.s3.__main__",
    "ingest": "trainshed_service.logs.__main__",
    "api": "trainshed_service.api",
}
BOOTSTRAP = "trainshed_service.embedded.bootstrap"
DEFAULT_BUCKET = "trainshed_service.embedded.default_bucket"
SERVICE_MODULES = (*_MODULES.values(), BOOTSTRAP, DEFAULT_BUCKET)
MODULES = (*SERVICE_MODULES, _AGENT)
PORT_OF = {"gateway": "gateway", "ingest": "ingest", "api": "main"}
# Would change what our own processes load, or whom they talk to, or make each of them compile its sources anew.
_DROPPED = ("AWS_", "TRAINSHED_", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONDONTWRITEBYTECODE", "LD_PRELOAD")


def local_hosts_without_proxy(environment: Mapping[str, str]) -> str:
    """The value of NO_PROXY, extended by this machine's own names."""
    present = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    names = [name for name in present.replace(" ", "").split(",") if name]
    return ",".join(names + [name for name in ("127.0.0.1", "localhost") if name not in names])


def base_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The user's environment without what must not reach our processes."""
    given = os.environ if environment is None else environment
    kept = {name: value for name, value in given.items() if not name.startswith(_DROPPED)}
    without_proxy = local_hosts_without_proxy(given)
    return kept | {"NO_PROXY": without_proxy, "no_proxy": without_proxy, "PYTHONUNBUFFERED": "1"}


def _tuned() -> dict[str, str]:
    """The TRAINSHED_* variables by which the user tunes the service."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("TRAINSHED_") and name not in ("TRAINSHED_HOME", "TRAINSHED_TOKEN")
    }


def preparing_environment() -> dict[str, str]:
    """Variables of BOOTSTRAP and DEFAULT_BUCKET."""
    return base_environment() | _tuned()


_ADDRESSES = ("TRAINSHED_HOST", "TRAINSHED_PUBLIC_URL", "TRAINSHED_GATEWAY_URL", "TRAINSHED_INGEST_URL")


def service_environment(
    home: Home, config: HomeConfig, store: Mapping[str, str], *, for_others: bool = False
) -> dict[str, str]:
    """Variables of the gateway, the ingest and the api. `store`: how the gateway reaches the object store.

    TRAINSHED_* variables that the user set and that are not decided here (lease, grace …) are passed on; `for_others`:
    those that say where it listens and how others reach it, too.
    """
    tuned = _tuned()
    addresses = {name: tuned[name] for name in _ADDRESSES if name in tuned} if for_others else {}
    return (
        base_environment()
        | {"TRAINSHED_ROLES": "known" if for_others else "open"}
        | tuned
        | {
            "TRAINSHED_HOME": str(home.folder),
            "TRAINSHED_HOST": "127.0.0.1",
            "TRAINSHED_PORT": str(config.ports["main"]),
            "TRAINSHED_GATEWAY_PORT": str(config.ports["gateway"]),
            "TRAINSHED_INGEST_PORT": str(config.ports["ingest"]),
            "TRAINSHED_PUBLIC_URL": config.main_url,
            "TRAINSHED_GATEWAY_URL": config.gateway_url,
            "TRAINSHED_INGEST_URL": config.ingest_url,
            "TRAINSHED_ACCOUNT_ID": config.account_id,
            "TRAINSHED_REGION": config.region,
        }
        | addresses
        | dict(store)
    )


_OF_THE_NODE = ("TRAINSHED_PRELOAD", "TRAINSHED_NODE_CACHE_LIMIT")


def agent_environment() -> dict[str, str]:
    """Variables of this machine's agent: the user's, with those that tune a node."""
    return base_environment() | {name: os.environ[name] for name in _OF_THE_NODE if name in os.environ}


def service_command(part: str) -> list[str]:
    return [_MODULES[part]]


def agent_command(home: Home, config: HomeConfig) -> list[str]:
    command = [_AGENT, "--home", str(home.folder)]
    command += ["--server", config.main_url, "--token-file", str(home.enrollment_path)]
    command += ["--slots", str(config.nodes)]
    for name in config.instance_types:
        command += ["--instance-type", name]
    return command


def sweep_command(home: Home) -> list[str]:
    """Ends what the agent left running."""
    return [sys.executable, "-m", "trainshed_worker.sweep", "--home", str(home.folder)]
