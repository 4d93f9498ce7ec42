"""Plans run in real sandboxes here; the sandbox's own fixtures clean up after them."""

from tests.integration.sandbox.conftest import make_network, start_instance
from trainshed_worker.sandbox import isolation

__all__ = ["make_network", "start_instance"]

if isolation() != "full":
    collect_ignore_glob = ["test_*_sandbox.py"]
