"""Make the parent's memory cheap to fork: a fork copies one entry for 2 MiB instead of 512.

Invariant: an economy alone; where the kernel does not offer it (Linux 6.1 does), nothing else changes.
"""

import ctypes

HUGE = 2 << 20
_MADV_COLLAPSE = 25


def collapse() -> int:
    """Collapse the private anonymous memory of this process; returns how many huge pages it now has at least."""
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    done = 0
    for start, end in _regions():
        for address in range(-(-start // HUGE) * HUGE, end - HUGE + 1, HUGE):
            if libc.madvise(address, HUGE, _MADV_COLLAPSE) == 0:
                done += 1
    return done


def _regions() -> list[tuple[int, int]]:
    """Writable private memory without a file."""
    found = []
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        for line in file:
            fields = line.split(None, 5)
            if fields[1].startswith("rw-p") and (len(fields) < 6 or fields[5].strip() == "[heap]"):
                start, _, end = fields[0].partition("-")
                found.append((int(start, 16), int(end, 16)))
    return found
