"""What our processes get of the user's environment."""

from trainshed_service.embedded.plan import base_environment


def test_what_would_change_our_processes_stays_outside() -> None:
    kept = {"PATH": "/bin", "HTTPS_PROXY": "http://proxy:1", "TZ": "UTC"}
    dropped = {
        "AWS_PROFILE": "work",
        "TRAINSHED_HOME": "/elsewhere",
        "PYTHONPATH": "/mine",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LD_PRELOAD": "x.so",
    }
    found = base_environment({**kept, **dropped, "NO_PROXY": "example.org"})
    assert kept.items() <= found.items()
    assert dropped.keys().isdisjoint(found)
    assert found["NO_PROXY"] == found["no_proxy"] == "example.org,127.0.0.1,localhost"
