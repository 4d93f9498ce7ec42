"""Settings of one agent process and where its files lie."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class AgentOptions:
    home: Path
    """The home directory; the agent's own files are below `node`."""
    server: str
    """URL of the API as reached from this machine."""
    token_file: Path
    """File with the enrollment token."""
    slots: int = 1
    instance_types: tuple[str, ...] = ()
    """Types that each slot can be; empty: whatever known type is asked."""
    name: str | None = None
    """Stable name; default: one is made up at the first start and kept."""
    advertise: str | None = None
    """Address of this machine that other machines' instances can reach; None: not part of multi-machine clusters."""
    environments_file: Path | None = None
    """Table of Python environments (see trainshed_worker.environments.table); None: the agent's own for all images."""
    egress_allow: tuple[str, ...] = field(default=())
    """`host:port` of private package indexes that dependency installation may reach."""

    preload: bool = False
    """Start scripts as forks of a process that has torch imported, where that makes no difference."""
    cache_limit: int | None = None
    """Bytes for the cache of channels and source archives, and as many for installed requirements; 0: none is kept;
    None: a tenth of the disk each, at most 50 GB."""

    @property
    def node(self) -> Path:
        return self.home / "node"

    @property
    def identity_file(self) -> Path:
        return self.node / "identity.json"

    @property
    def desired_file(self) -> Path:
        return self.node / "desired.json"

    @property
    def lock_file(self) -> Path:
        return self.node / "agent.lock"

    @property
    def assignments(self) -> Path:
        return self.node / "assignments"

    @property
    def clusters(self) -> Path:
        return self.node / "clusters"

    @property
    def environments(self) -> Path:
        return self.node / "envs"

    @property
    def spares(self) -> Path:
        return self.node / "spares"

    @property
    def skeletons(self) -> Path:
        return self.node / "skeletons"

    @property
    def cache(self) -> Path:
        return self.node / "cache"

    @property
    def pool_caches(self) -> Path:
        return self.node / "pools"

    @property
    def parents(self) -> Path:
        return self.node / "parents"

    @property
    def quarantine_file(self) -> Path:
        return self.node / "quarantine.json"
