"""These tests take minutes of processor time: `make test-preload` runs them."""

from tests.integration.preload.conftest import needs_isolation, parent, run_job

__all__ = ["needs_isolation", "parent", "run_job"]
