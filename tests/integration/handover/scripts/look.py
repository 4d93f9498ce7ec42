"""The next job: looks for all that `plant.py` has left, before it has made anything itself."""

import builtins
import ctypes
import importlib.util
import json
import os
import pathlib
import socket
import subprocess
import sys
import urllib.error
import urllib.request

KEY = 0x7453
MARK = os.environ["LEFTOVER_MARK"]
libc = ctypes.CDLL(None, use_errno=True)
found: dict[str, object] = {}


def names(folder: str) -> list[str]:
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def refused(family: int, address: object) -> bool:
    with socket.socket(family) as probe:
        probe.settimeout(5)
        try:
            probe.connect(address)  # type: ignore[arg-type]
        except OSError:
            return True
        return False


others = []
for entry in os.listdir("/proc"):
    if entry.isdigit() and int(entry) not in (1, os.getpid()):
        try:
            words = pathlib.Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        others.append([word.decode("utf-8", "replace")[:80] for word in words])
found["processes"] = others
home = os.path.expanduser("~")
found["tmp"] = names("/tmp")
found["var tmp"] = names("/var/tmp")
found["shm"] = names("/dev/shm")
found["run"] = names("/run")
found["spool"] = names("/var/spool")
found["home"] = names(home)
found["model"] = names("/opt/ml/model")
found["checkpoints"] = names("/opt/ml/checkpoints")
found["code"] = names("/opt/ml/code")
found["config"] = [name for name in names("/opt/ml/input/config") if "leftover" in name]
found["hook ran"] = hasattr(builtins, "LEFTOVER") or "leftover.pth" in str(sys.flags)
found["modules"] = [
    name for name in ("sitecustomize", "usercustomize", "leftover_module") if importlib.util.find_spec(name) is not None
]
import torch  # noqa: E402

found["in torch"] = pathlib.Path(torch.__file__).with_name("leftover_module.py").exists()
found["preload"] = [os.environ.get("LD_PRELOAD"), os.path.exists("/etc/ld.so.preload")]
found["variables"] = sorted(key for key, value in os.environ.items() if key == "LEFTOVER" or value == "leftover.so")
found["shell"] = subprocess.run(["bash", "-ic", "echo -n $LEFTOVER"], capture_output=True, text=True).stdout
found["port is closed"] = refused(socket.AF_INET, (os.environ["SM_CURRENT_HOST"], 7777))
found["loopback is closed"] = refused(socket.AF_INET, ("127.0.0.1", 7777))
found["abstract is closed"] = refused(socket.AF_UNIX, "\0leftover")
found["sysv"] = [libc.shmget(KEY, 0, 0), libc.msgget(KEY, 0), libc.semget(KEY, 0, 0)]
rt = ctypes.CDLL("librt.so.1", use_errno=True)
found["mq"] = rt.mq_open(b"/leftover", os.O_RDWR)
found["keyring"] = libc.syscall(250, 10, -4, b"user", b"leftover", 0)  # keyctl search
found["mounts"] = [line for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if "/mounted" in line]
channel = pathlib.Path(os.environ["SM_CHANNEL_TRAIN"])
found["channel"] = {
    str(path.relative_to(channel)): path.read_bytes()[:20].decode() for path in channel.rglob("*") if path.is_file()
}

cache = pathlib.Path(os.environ["SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY"])
found["cache"] = sorted(path.name for path in cache.iterdir())
if "kept" in found["cache"]:
    found["kept is whole"] = (cache / "kept").read_text() == MARK
    url, token = json.loads((cache / "token").read_text())
    request = urllib.request.Request(url, headers={"Authorization": token})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            found["old token"] = answer.status
    except urllib.error.HTTPError as error:
        found["old token"] = error.code
found["cache is writable"] = os.access(cache, os.W_OK)
found["cache's owner is me"] = cache.stat().st_uid == os.getuid()
pathlib.Path("/opt/ml/model/only").write_text("mine")
print("FOUND " + json.dumps(found))
