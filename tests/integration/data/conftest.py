"""The real object store."""

from tests.support.seaweed import make_store, seaweed_store

__all__ = ["make_store", "seaweed_store"]
