"""Makes the C library return freed memory to the system, and the garbage collector pass over what stays."""

import ctypes
import gc
from contextlib import suppress

# Names and values of glibc's <malloc.h>.
_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
_LARGE_BYTES, _ARENAS = 128 << 10, 2
# Collections of new objects before one of older ones, and of those before one of all, which pauses every thread for 20 ms.
_YOUNG, _OLDER = 10, 50


def give_back() -> None:
    """Return large blocks to the system as soon as they are freed, in this process from now on.

    By default glibc uses up to eight arenas per core, each of which keeps the peak of its threads, and after freeing one large
    block it keeps the next ones of that size.  Other C libraries do neither and have no `mallopt`.
    """
    with suppress(AttributeError):
        adjust = ctypes.CDLL(None).mallopt
        adjust(_ARENA_MAX, _ARENAS)
        adjust(_MMAP_THRESHOLD, _LARGE_BYTES)


def keep_loaded() -> None:
    """Collect garbage from now on, among new objects only: what is loaded stays, and scanning it pauses all threads for 0.2 s.

    Call it again when more was loaded.
    """
    gc.freeze()
    gc.set_threshold(gc.get_threshold()[0], _YOUNG, _OLDER)
    gc.enable()
