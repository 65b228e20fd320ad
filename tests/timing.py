"""How long something takes, on a machine that does other things as well."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
TRIES = 6


def timed(most: float, work: Callable[[], T]) -> tuple[T, float]:
    """What `work` answers and the seconds it took: the first time that it takes less than `most`, or the last of a few.

    Others who need the processor delay it now and then; what is late by itself is late every time.
    """
    for _ in range(TRIES):
        began = time.monotonic()
        found = work()
        took = time.monotonic() - began
        if took < most:
            break
    return found, took
