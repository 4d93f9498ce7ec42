"""One process of the service: started with variables and a log of its own, awaited until it answers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import httpx

from tests.support.forks import ForkedProcess, fork
from tests.support.wait import wait_until

# Plain HTTP, so no certificates, which take long to load; never through a proxy.
_HTTP = httpx.Client(trust_env=False, verify=False, timeout=5)


# Without the last, a client whose libraries are not compiled yet compiles them at its first start alone: seconds each.
_DROPPED = ("AWS_", "TRAINSHED_", "PYTHONDONTWRITEBYTECODE")


def plain_environment() -> dict[str, str]:
    """This process's environment without anything that points AWS clients or Trainshed somewhere."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}


def start_process(module: str, settings: Mapping[str, object], log: Path, url: str) -> ForkedProcess:
    """Run a module's `main`; `settings` become TRAINSHED_* variables. Returns when GET `url` answers 200."""
    variables = {f"TRAINSHED_{name.upper()}": str(value) for name, value in settings.items()}
    process = fork(module, plain_environment() | variables, log)

    def answers() -> bool:
        if process.poll() is not None:
            raise AssertionError(f"{module} ended with {process.returncode}:\n{log.read_text()[-8000:]}")
        try:
            return _HTTP.get(url).status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_until(answers, timeout=120, what=f"{url} answers; log: {log}")
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process
