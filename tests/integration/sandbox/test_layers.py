"""Overlays in a sandbox: a job changes what it sees, and the files below stay as they are, whoever the agent is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.integration.sandbox.test_unprivileged import folder, run_as_ordinary_user

__all__ = ["folder"]

_DRIVER = """
import json, os, sys
from pathlib import Path
from trainshed_worker.data import ObjectCache
from trainshed_worker.data.cache import digest_of
from trainshed_worker.data.listing import RemoteObject
from trainshed_worker.sandbox import *
os.umask(0o077)
root = Path(sys.argv[1], "a, b:c")
root.mkdir()
cache = ObjectCache(root / "cache", 1 << 20, shared=True)
role = cache.for_role("role")
names = ["a", "b", "c", "d"]
for name in names:
    part = root / "part"
    part.write_text("entry " + name)
    item = RemoteObject("bucket", name, 7, "etag", name)
    role.put(item, part, digest_of(part, "crc32"))
def fill(place):
    (place / "lower" / "train").mkdir(parents=True)
    for name in names:
        for entry in role.find([RemoteObject("bucket", name, 7, "etag", name)]).values():
            assert cache.take(entry, place / "lower" / "train" / name)
script = '''
cd /opt/ml/input/data/train || exit 9
cat a b c d; echo
echo changed > a && printf XX | dd of=b conv=notrunc 2>/dev/null && rm c && mv d e && ln e f
mkdir own && echo x > own/x
chmod 600 own/x; touch new; sync new; cat a b e; ls
'''
answer = {"overlay": overlay(root).ok}
for turn in ("first", "second"):
    fill(root / turn)
    done = run_once(SandboxSpec(
        directory=str(root / f"{turn} job"), hostname="algo-1", slot=3 if turn == "first" else 4,
        commands=[Command(["/bin/sh", "-c", script], {"PATH": "/usr/bin:/bin"})],
        binds=[Bind(str(root / turn), "/opt/ml/input/data", writable=True, give=True, layered=True)],
    ))
    answer[turn] = [done.record.exit_code, done.lines]
    prove_empty(root / f"{turn} job")
    remove_tree(root / turn)
    remove_tree(root / f"{turn} job")
answer["entries"] = sorted(path.read_text() for path in (root / "cache" / "objects").rglob("*") if path.is_file())
answer["links"] = [path.stat().st_nlink for path in (root / "cache" / "objects").rglob("*") if path.is_file()]
cache.close()
print(json.dumps(answer))
"""


def check(answer: dict[str, Any]) -> None:
    assert answer["overlay"] is True
    code, lines = answer["first"]
    assert code == 0, lines
    assert lines[0] == "entry aentry bentry centry d"
    assert lines[1] == "changed"
    assert lines[2] == "XXtry bentry da"  # without a newline between them, and the listing begins
    assert lines[3:8] == ["b", "e", "f", "new", "own"]
    assert answer["second"] == answer["first"]
    assert answer["entries"] == ["entry a", "entry b", "entry c", "entry d"]
    assert answer["links"] == [1, 1, 1, 1]


def test_as_an_ordinary_user(folder: Path) -> None:
    check(run_as_ordinary_user(_DRIVER, folder))


@pytest.mark.skipif(os.geteuid() != 0, reason="root's way needs root")
def test_as_root() -> None:
    place = tempfile.mkdtemp(prefix="trainshed layers ")
    try:
        done = subprocess.run(
            [sys.executable, "-c", _DRIVER, place], capture_output=True, text=True, timeout=200, check=False
        )
        assert done.returncode == 0, done.stderr
        check(json.loads(done.stdout.splitlines()[-1]))
    finally:
        shutil.rmtree(place)
