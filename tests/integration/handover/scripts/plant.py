"""The first job: leaves everything that a process can leave, and says what the system let it do."""

import ctypes
import json
import mmap
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

MARK = os.environ["LEFTOVER_MARK"]
KEY = 0x7453
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
# Not empty where the environment itself is mounted below /tmp.
said: dict[str, object] = {"tmp before": sorted(os.listdir("/tmp"))}


def daemon(work: str) -> int:
    """Double fork with a session of its own; returns when it runs. SIGTERM does not end it."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.write(write, str(os.getpid()).encode())
        os.close(write)
        os.execve(sys.executable, [sys.executable, "-c", work, MARK], dict(os.environ))
    os.close(write)
    os.wait()
    return int(os.read(read, 20))


def planted(path: str, text: str = MARK) -> None:
    place = pathlib.Path(path)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        said[path] = True
    except OSError as error:
        said[path] = error.errno


ready = pathlib.Path("/opt/ml/model/ready")
writer = "import time\nwhile True:\n    open('/opt/ml/model/written', 'a').write('x'); time.sleep(0.01)\n"
said["writer"] = daemon(writer)
listener = (
    "import socket, time\n"
    "s = socket.create_server(('', 7777)); a = socket.socket(socket.AF_UNIX); a.bind('\\0leftover'); a.listen()\n"
    "open('/opt/ml/model/ready', 'w').close()\n"
    "while True: time.sleep(1)\n"
)
said["listener"] = daemon(listener)
said["cron"] = daemon("import os, time\nwhile True:\n    os.system('touch /tmp/from-cron'); time.sleep(0.05)\n")
try:
    subprocess.run(["at", "now"], input="touch /tmp/from-at", text=True, check=True)
    said["at"] = True
except (OSError, subprocess.CalledProcessError) as error:
    said["at"] = repr(error)
for folder in ("/tmp", "/var/tmp", "/dev/shm", "/run", "/var/spool/cron/crontabs", os.path.expanduser("~")):
    planted(f"{folder}/leftover")
planted(os.path.expanduser("~/.bashrc"), f"export LEFTOVER={MARK}\n")
planted(os.path.expanduser("~/.pip/pip.conf"), "[global]\nindex-url = http://127.0.0.1:9/leftover\n")
import site  # noqa: E402
import sysconfig  # noqa: E402

hook = "import builtins, os\nbuiltins.LEFTOVER = True\nos.environ['LEFTOVER'] = '1'\n"
for folder in {sysconfig.get_path("purelib"), site.getusersitepackages(), *site.getsitepackages()}:
    planted(f"{folder}/sitecustomize.py", hook)
    planted(f"{folder}/usercustomize.py", hook)
    planted(f"{folder}/leftover.pth", "import builtins; builtins.LEFTOVER = True\n")
    planted(f"{folder}/leftover_module.py", "here = True\n")
import torch  # noqa: E402

planted(str(pathlib.Path(torch.__file__).with_name("leftover_module.py")))
planted("/etc/ld.so.preload", "/tmp/leftover.so\n")
planted("/opt/ml/code/leftover")
planted("/opt/ml/input/config/leftover")
planted("/opt/ml/checkpoints/leftover")
os.environ["LD_PRELOAD"] = "/tmp/leftover.so"
os.environ["LEFTOVER"] = MARK
channel = pathlib.Path(os.environ["SM_CHANNEL_TRAIN"])
(channel / "a.txt").write_text("changed by the first job")
with (channel / "b.bin").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
    mapped[:7] = b"CHANGED"
(channel / "leftover").write_text(MARK)
(channel / "sub" / "c.txt").unlink()
said["channel written"] = (channel / "a.txt").read_text()

memory = libc.shmget(KEY, 4096, 0o1600)  # IPC_CREAT
address = libc.shmat(memory, None, 0)
ctypes.memmove(address, MARK.encode(), len(MARK))
said["shm"] = memory
said["msg"] = libc.msgget(KEY, 0o1600)
said["sem"] = libc.semget(KEY, 1, 0o1600)
try:
    rt = ctypes.CDLL("librt.so.1", use_errno=True)
    said["mq"] = rt.mq_open(b"/leftover", os.O_CREAT | os.O_RDWR, 0o600, None)
except OSError as error:
    said["mq"] = repr(error)
from multiprocessing import shared_memory  # noqa: E402

posix = shared_memory.SharedMemory(name="leftover-memory", create=True, size=4096)
posix.buf[:8] = b"leftover"
said["keyring"] = libc.syscall(248, b"user", b"leftover", b"secret", 6, -4)  # add_key to the user's keyring
os.makedirs("/tmp/mounted", exist_ok=True)
said["mount"] = libc.mount(b"tmpfs", b"/tmp/mounted", b"tmpfs", 0, None)
said["mount errno"] = ctypes.get_errno()

cache = pathlib.Path(os.environ["SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY"])
said["cache before"] = sorted(path.name for path in cache.iterdir())
(cache / "kept").write_text(MARK)
(cache / "token").write_text(
    json.dumps([os.environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"], os.environ["AWS_CONTAINER_AUTHORIZATION_TOKEN"]])
)
(cache / "link").symlink_to("/etc/passwd")
os.mkfifo(cache / "pipe")
(cache / "closed").mkdir(mode=0o700)
(cache / "closed" / "file").touch()
(cache / "closed").chmod(0)
descriptor = os.open(cache, os.O_RDONLY)
for _ in range(1500):
    os.mkdir("deep", dir_fd=descriptor)
    inner = os.open("deep", os.O_RDONLY, dir_fd=descriptor)
    os.close(descriptor)
    descriptor = inner
os.close(descriptor)

while not ready.exists():
    time.sleep(0.01)
with socket.create_connection((os.environ["SM_CURRENT_HOST"], 7777), timeout=10):
    said["listening"] = True
print("PLANTED " + json.dumps(said))
