"""Which hosts the way out lets pip reach, by what the node's pip is configured with."""

import sys
from pathlib import Path

import pytest

from trainshed_worker.environments import pip_settings as module
from trainshed_worker.environments.base import describe
from trainshed_worker.environments.pip_settings import pip_settings


def test_pip_s_own_index_is_let_through_where_no_other_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    base = describe(Path(sys.prefix))
    monkeypatch.setattr(module, "_node_settings", lambda python: (("extra-index-url", "http://more.example/simple"),))
    first, *own = pip_settings(base, {}).index_hosts
    assert first == "more.example:80"
    assert len(own) == 2 and all(host.endswith(":443") for host in own)
    monkeypatch.setattr(module, "_node_settings", lambda python: (("index-url", "https://mirror.example:8443/simple"),))
    assert pip_settings(base, {}).index_hosts == ("mirror.example:8443",)
