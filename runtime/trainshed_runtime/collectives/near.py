"""Messages between ranks on one machine: the receiver reads the sender's memory itself, with one copy.

A sender tells where its tensor lies by a few bytes over a Unix socket; the receiver reads it with process_vm_readv and
says so. Against TCP over loopback this saves a copy and the whole network stack. Linux allows it between processes of
one user unless it is told not to (Yama's ptrace_scope, a container's seccomp rules): `connect` tries it, and gives None
on every rank of the node where any two cannot; the caller then goes over TCP. TRAINSHED_NODE_MEMORY=0 switches it off.

Invariants: messages of one lane between two ranks arrive in the order in which they were sent; whoever waits serves all
others of the node meanwhile, so waiting in any order ends; a rank that dies is noticed at once, since its sockets
close. Where Yama asks for it, the process lets others of its user read its memory, as MPI libraries do, too.
"""

import ctypes
import hmac
import os
import secrets
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

SWITCH = "TRAINSHED_NODE_MEMORY"
_FRAME = struct.Struct("<BBQQ")  # kind, lane, address, bytes
_OFFER, _TAKEN = 1, 2
_SETUP_SECONDS = 10.0
_TOKEN_BYTES = 32
_PR_SET_PTRACER, _PR_SET_PTRACER_ANY = 0x59616D61, -1

_libc = ctypes.CDLL(None, use_errno=True)


class _Span(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class NearFailed(RuntimeError):
    """A rank of the node is gone, late, or its memory cannot be read. `place` is the one."""

    def __init__(self, place: int, text: str) -> None:
        super().__init__(text)
        self.place = place


class NearTransfer:
    """A message under way to or from `place`."""

    __slots__ = ("done", "lane", "place", "tensor")

    def __init__(self, tensor: torch.Tensor, place: int, lane: int) -> None:
        self.tensor, self.place, self.lane = tensor, place, lane
        self.done = False


class Near:
    """The sockets to the other places of a node; `pids` are the processes there."""

    def __init__(self, sockets: dict[int, socket.socket], pids: dict[int, int], timeout: float) -> None:
        self._sockets, self._pids, self._timeout = sockets, pids, timeout
        self._place_of = {one.fileno(): place for place, one in sockets.items()}
        self._poll = select.poll()
        for one in sockets.values():
            one.setblocking(False)
            self._poll.register(one, select.POLLIN)
        self._gone: dict[int, str] = {}
        self._out: dict[int, bytearray] = {place: bytearray() for place in sockets}
        self._in: dict[int, bytearray] = {place: bytearray() for place in sockets}
        self._sent: dict[tuple[int, int], deque[NearTransfer]] = {}
        self._wanted: dict[tuple[int, int], deque[NearTransfer]] = {}
        self._offered: dict[tuple[int, int], deque[tuple[int, int]]] = {}

    def send(self, tensor: torch.Tensor, place: int, lane: int) -> NearTransfer:
        """Offers a contiguous tensor, which must stay as it is until the transfer is done; `flush` sends the offer."""
        transfer = NearTransfer(tensor, place, lane)
        size = tensor.numel() * tensor.element_size()
        self._out[place] += _FRAME.pack(_OFFER, lane, tensor.data_ptr(), size)
        self._sent.setdefault((place, lane), deque()).append(transfer)
        return transfer

    def receive(self, tensor: torch.Tensor, place: int, lane: int) -> NearTransfer:
        """Wants the next message of the lane in a contiguous tensor; it is read while this rank waits for something."""
        transfer = NearTransfer(tensor, place, lane)
        self._wanted.setdefault((place, lane), deque()).append(transfer)
        return transfer

    def wait(self, transfer: NearTransfer) -> None:
        """Until the transfer is done; raises NearFailed."""
        self._match(transfer.place, transfer.lane)
        self.flush()
        deadline = time.monotonic() + self._timeout
        while not transfer.done:
            if transfer.place in self._gone:
                raise NearFailed(transfer.place, self._gone[transfer.place])
            left = deadline - time.monotonic()
            events = self._poll.poll(max(0.0, left) * 1000)
            if not events and left <= 0:
                raise NearFailed(transfer.place, "nothing came within the time limit")
            for descriptor, event in events:
                place = self._place_of[descriptor]
                if event & select.POLLOUT:
                    self._write(place)
                if event & ~select.POLLOUT:
                    self._read(place)

    def flush(self) -> None:
        """Sends the offers that were made since the last time."""
        for place, waiting in self._out.items():
            if waiting:
                self._write(place)

    def close(self) -> None:
        """The others see it as the end of this rank; a wait of this rank in another thread fails."""
        for one in self._sockets.values():
            with suppress(OSError):  # the other end may be gone
                one.shutdown(socket.SHUT_RDWR)  # closing alone would not wake who polls
            one.close()

    def _write(self, place: int) -> None:
        waiting, one = self._out[place], self._sockets[place]
        try:
            sent = one.send(waiting)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._lose(place, f"its socket is closed ({error})")
            return
        del waiting[:sent]
        if place not in self._gone:
            self._poll.modify(one, select.POLLIN | (select.POLLOUT if waiting else 0))

    def _read(self, place: int) -> None:
        try:
            data = self._sockets[place].recv(1 << 16)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(place, f"its socket is closed ({error})")
            return
        if not data:
            self._lose(place, "its process has ended")
            return
        buffer = self._in[place]
        buffer += data
        whole = len(buffer) // _FRAME.size * _FRAME.size
        lanes = set()
        for kind, lane, address, size in _FRAME.iter_unpack(bytes(buffer[:whole])):
            if kind == _TAKEN:
                self._sent[place, lane].popleft().done = True
            else:
                self._offered.setdefault((place, lane), deque()).append((address, size))
                lanes.add(lane)
        del buffer[:whole]
        for lane in lanes:
            self._match(place, lane)

    def _lose(self, place: int, reason: str) -> None:
        """It may have done its part already and left in peace; whoever needs it still is told."""
        if place not in self._gone:
            self._gone[place] = reason
            with suppress(ValueError, OSError):  # another thread has closed it
                self._poll.unregister(self._sockets[place])
        self._out[place].clear()

    def _match(self, place: int, lane: int) -> None:
        offered, wanted = self._offered.get((place, lane)), self._wanted.get((place, lane))
        taken = False
        while offered and wanted:
            (address, size), transfer = offered.popleft(), wanted.popleft()
            expected = transfer.tensor.numel() * transfer.tensor.element_size()
            if size != expected:
                raise NearFailed(place, f"it sends {size} bytes where {expected} are expected")
            read_memory(self._pids[place], address, transfer.tensor.data_ptr(), size, place)
            transfer.done = True
            self._out[place] += _FRAME.pack(_TAKEN, lane, 0, 0)
            taken = True
        if taken:
            self._write(place)


def read_memory(pid: int, source: int, target: int, size: int, place: int = 0) -> None:
    """Copies bytes from an address of another process to one of this; NearFailed where the kernel refuses."""
    done = 0
    while done < size:
        here, there = _Span(target + done, size - done), _Span(source + done, size - done)
        count = _libc.process_vm_readv(
            ctypes.c_int(pid),
            ctypes.byref(here),
            ctypes.c_ulong(1),
            ctypes.byref(there),
            ctypes.c_ulong(1),
            ctypes.c_ulong(0),
        )
        if count <= 0:
            error = ctypes.get_errno()
            raise NearFailed(place, f"its memory cannot be read: {os.strerror(error)}")
        done += count


def connect(
    place: int,
    places: int,
    tell: Callable[[int, torch.Tensor], Any],
    hear: Callable[[int, torch.Tensor], Any],
    timeout: float,
) -> Near | None:
    """Sockets among the `places` of a node, made by all of them together; None, on all, where memory cannot be read.

    `tell(place, tensor)` and `hear(place, tensor)` send and receive over what connects them already; each gives an
    object whose `wait` returns when that is done.
    """
    sockets: dict[int, socket.socket] = {}
    told: list[Any] = []
    near: Near | None = None
    here = torch.zeros(places, dtype=torch.uint8)
    if place == 0:  # from here on nobody is late, so that time limits can be short
        for transfer in [hear(other, here[other : other + 1]) for other in range(1, places)]:
            transfer.wait()
    else:
        told.append(tell(0, here[:1]))
    with suppress(OSError, NearFailed, EOFError):  # all of these mean: over TCP, then
        near = _try(place, places, lambda other, tensor: told.append(tell(other, tensor)), hear, timeout, sockets)
    fine = torch.tensor([near is not None], dtype=torch.uint8)
    others = [other for other in range(places) if other != place]
    told.extend(tell(other, fine) for other in others)
    answers = [torch.empty(1, dtype=torch.uint8) for _ in others]
    for heard in [hear(other, answer) for other, answer in zip(others, answers, strict=True)]:
        heard.wait()
    for transfer in told:
        transfer.wait()
    if near is not None and all(bool(answer.item()) for answer in answers):
        return near
    for one in sockets.values():
        one.close()
    return None


def _try(
    place: int,
    places: int,
    tell: Callable[[int, torch.Tensor], Any],
    hear: Callable[[int, torch.Tensor], Any],
    timeout: float,
    sockets: dict[int, socket.socket],
) -> Near:
    name = torch.zeros(2 * _TOKEN_BYTES, dtype=torch.uint8)
    if place == 0:
        name.copy_(torch.frombuffer(bytearray(secrets.token_bytes(2 * _TOKEN_BYTES)), dtype=torch.uint8))
        said = bytes(name.tolist())
        with socket.socket(socket.AF_UNIX) as listener:
            allowed = os.environ.get(SWITCH, "1").strip() != "0" and hasattr(_libc, "process_vm_readv")
            if allowed:
                listener.bind(_address(said))
                listener.listen(places)
                listener.settimeout(_SETUP_SECONDS)
            for other in range(1, places):
                tell(other, name)
            if not allowed:
                raise OSError("switched off")
            _accept(listener, places, said[_TOKEN_BYTES:], sockets)
        _share_pairs(places, sockets)
    else:
        hear(0, name).wait()
        said = bytes(name.tolist())
        hub = socket.socket(socket.AF_UNIX)
        sockets[0] = hub
        hub.settimeout(_SETUP_SECONDS)
        hub.connect(_address(said))
        hub.sendall(said[_TOKEN_BYTES:] + bytes([place]))
        _, descriptors, _, _ = socket.recv_fds(hub, 1, places)
        others = [other for other in range(1, places) if other != place]
        if len(descriptors) != len(others):
            raise EOFError("the node's first rank gave no sockets")
        for other, descriptor in zip(others, descriptors, strict=True):
            sockets[other] = socket.socket(fileno=descriptor)
    return Near(sockets, _trial(sockets), timeout)


def _address(said: bytes) -> bytes:
    """In the abstract namespace: no file, and gone with its socket."""
    return b"\0trainshed-" + said[:_TOKEN_BYTES].hex().encode()


def _accept(listener: socket.socket, places: int, token: bytes, sockets: dict[int, socket.socket]) -> None:
    deadline = time.monotonic() + _SETUP_SECONDS
    while len(sockets) < places - 1:
        listener.settimeout(max(0.01, deadline - time.monotonic()))
        one, _ = listener.accept()
        one.settimeout(_SETUP_SECONDS)
        credentials = one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        uid = struct.unpack("3i", credentials)[1]
        said = _exactly(one, _TOKEN_BYTES + 1)
        other = said[-1]
        if uid == os.getuid() and hmac.compare_digest(said[:-1], token) and 0 < other < places and other not in sockets:
            sockets[other] = one
        else:
            one.close()


def _share_pairs(places: int, sockets: dict[int, socket.socket]) -> None:
    """A socket for every two places that are not the first."""
    ends: dict[tuple[int, int], socket.socket] = {}
    try:
        for first in range(1, places):
            for second in range(first + 1, places):
                ends[first, second], ends[second, first] = socket.socketpair()
        for place in range(1, places):
            own = [ends[place, other].fileno() for other in range(1, places) if other != place]
            socket.send_fds(sockets[place], [b"x"], own)
    finally:
        for end in ends.values():
            end.close()


def _trial(sockets: dict[int, socket.socket]) -> dict[int, int]:
    """The processes at the other ends, each of whose memory was read once."""
    with suppress(OSError, ValueError):
        if int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text()) == 1:
            _libc.prctl(ctypes.c_int(_PR_SET_PTRACER), ctypes.c_ulong(_PR_SET_PTRACER_ANY & (2**64 - 1)), 0, 0, 0)
    secret = secrets.token_bytes(16)
    memory = ctypes.create_string_buffer(secret, len(secret))
    for one in sockets.values():
        one.settimeout(_SETUP_SECONDS)
        one.sendall(struct.pack("<QQ", os.getpid(), ctypes.addressof(memory)) + secret)
    pids = {}
    for place, one in sockets.items():
        pid, address = struct.unpack("<QQ", _exactly(one, 16))
        expected = _exactly(one, len(secret))
        found = ctypes.create_string_buffer(len(secret))
        read_memory(pid, address, ctypes.addressof(found), len(secret), place)
        if found.raw != expected:
            raise NearFailed(place, "another process has its number here")
        pids[place] = pid
    for one in sockets.values():  # `memory` must live until all have read it
        one.sendall(b"r")
    for one in sockets.values():
        _exactly(one, 1)
    return pids


def _exactly(one: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = one.recv(size - len(data))
        if not more:
            raise EOFError("a socket was closed")
        data += more
    return data
