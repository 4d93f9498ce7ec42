from tests.integration.core.conftest import api, join, start_api

__all__ = ["api", "join", "start_api"]
