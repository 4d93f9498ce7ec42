"""A system-call filter that takes away what a job without rights could still use to gain some: user namespaces.

Invariant: inside an instance no process can make a user namespace (in which it would be root and could mount, or open
parts of the kernel that are closed to users), nor reach the keyrings of the machine. All else is allowed: training code
uses much of the kernel. A machine of another architecture gets no filter, and a notice.
"""

import ctypes
import errno
import platform
import struct

from trainshed_worker.sandbox import syscalls

_LD_WORD, _JUMP_EQUAL, _JUMP_SET, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENT_0 = 0, 4, 16
_X32_BIT = 0x40000000
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2

_TABLES = {
    # architecture constant, clone, unshare, clone3, keyctl, add_key, request_key
    "x86_64": (0xC000003E, 56, 272, 435, 250, 248, 249),
    "aarch64": (0xC00000B7, 220, 97, 435, 219, 217, 218),
}


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def is_supported() -> bool:
    return platform.machine() in _TABLES


def install() -> None:
    """For this process and all it starts, for good. Needs no_new_privs. Raises OSError."""
    program = _program(platform.machine())
    filter_program = _Program(len(program) // 8, program)
    syscalls.prctl_pointer(_PR_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), ctypes.byref(filter_program))


def _program(machine: str) -> bytes:
    """clone3 is answered as unknown (its flags lie in memory, where a filter can't look), and libraries use clone."""
    architecture, clone, unshare, clone3, *keys = _TABLES[machine]
    deny, unknown = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    steps = [
        _step(_LD_WORD, 0, 0, _ARCHITECTURE),
        _step(_JUMP_EQUAL, 1, 0, architecture),
        _step(_RETURN, 0, 0, unknown),  # 32-bit calls have other numbers
        _step(_LD_WORD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        steps += [_step(_JUMP_SET, 0, 1, _X32_BIT), _step(_RETURN, 0, 0, unknown)]
    steps += [_step(_JUMP_EQUAL, 0, 1, clone3), _step(_RETURN, 0, 0, unknown)]
    for number in keys:
        steps += [_step(_JUMP_EQUAL, 0, 1, number), _step(_RETURN, 0, 0, unknown)]
    steps += [
        _step(_JUMP_EQUAL, 1, 0, clone),
        _step(_JUMP_EQUAL, 0, 3, unshare),
        _step(_LD_WORD, 0, 0, _ARGUMENT_0),
        _step(_JUMP_SET, 0, 1, syscalls.CLONE_NEWUSER),
        _step(_RETURN, 0, 0, deny),
        _step(_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(steps)


def _step(code: int, if_true: int, if_false: int, value: int) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
