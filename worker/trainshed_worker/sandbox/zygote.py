"""The process that supervisors and netds are forked from: everything imported, one thread, nothing else.

    python -m trainshed_worker.sandbox.zygote <socket descriptor>

Invariant: it holds no state. It ends when its agent does (the socket ends), and what it forked goes on: each child has
a session of its own, a log for its output, and none of the agent's descriptors. A fork costs a few milliseconds, where
an interpreter with these imports takes over a hundred.
"""

import array
import gc
import json
import os
import signal
import socket
import sys
import traceback
from typing import NoReturn

from trainshed_worker.sandbox import continuation, netd, procs, supervisor, syscalls

_MAINS = {"supervisor": supervisor.main, "spare": supervisor.spare, "netd": netd.main}
_MAX_REQUEST = 65536


def serve(channel: socket.socket) -> None:
    """Requests are {"module": …, "directory": …} with two descriptors: the sign of readiness, the log.

    Each is answered by a byte once it is forked. Returns when the agent has gone. What is forked is nobody's to wait
    for: the kernel reaps it. RuntimeError where a thread has appeared: a fork of several threads is not to be trusted.
    """
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    buffer = bytearray(_MAX_REQUEST)
    while True:
        size, descriptors = _receive(channel, buffer)
        if not size:
            return
        if len(os.listdir("/proc/self/task")) != 1:
            raise RuntimeError(f"this process has threads: {os.listdir('/proc/self/task')}")
        if os.fork() == 0:
            request = json.loads(buffer[:size])
            _become(request["module"], request["directory"], *descriptors)
        buffer[:size] = bytes(size)  # so that a later fork finds no name of an earlier one's folder
        for descriptor in descriptors:
            os.close(descriptor)
        try:
            channel.send(b"f")
        except BrokenPipeError:
            return  # the agent ended meanwhile


def _receive(channel: socket.socket, buffer: bytearray) -> tuple[int, list[int]]:
    """The size of the next request, which is in the buffer then, and its descriptors; 0 where the agent has gone."""
    numbers = array.array("i")
    size, ancillary, _, _ = channel.recvmsg_into([buffer], socket.CMSG_SPACE(2 * numbers.itemsize))
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
    return size, list(numbers)


def _become(module: str, directory: str, ready_fd: int, log_fd: int) -> NoReturn:
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        null = os.open("/dev/null", os.O_RDONLY)
        for source, target in ((null, 0), (log_fd, 1), (log_fd, 2)):
            os.dup2(source, target)
        procs.close_all_but([ready_fd])
        syscalls.set_name(f"trainshed-{module}")
        status = _MAINS[module](directory, ready_fd)
    except continuation.Script:
        raise
    except BaseException:  # noqa: BLE001 (the last frame of a process: whatever it was goes to its log)
        traceback.print_exc()
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(status)


def main(descriptor: int) -> int:
    os.chdir("/")
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with socket.socket(fileno=descriptor) as channel:
        serve(channel)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
