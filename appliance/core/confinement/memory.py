"""What the C library does with memory that is given back."""

import ctypes
from contextlib import suppress

# Names and values of glibc's <malloc.h>.
_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
_LARGE_BYTES, _ARENAS = 128 << 10, 2


def give_back() -> None:
    """Let large blocks go back to the system when they are freed, in this process from now on.

    glibc makes an arena for every thread, up to eight for each core, and each keeps what the largest request of its thread took;
    and once it has freed a large block it keeps the next of that size.  Other C libraries do neither, and have no such function.
    """
    with suppress(AttributeError):
        adjust = ctypes.CDLL(None).mallopt
        adjust(_ARENA_MAX, _ARENAS)
        adjust(_MMAP_THRESHOLD, _LARGE_BYTES)
