"""Measures how long something takes on a machine that is busy with other things."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
TRIES = 6


def timed(most: float, work: Callable[[], T]) -> tuple[T, float]:
    """The result of `work` and the seconds it took: of the first attempt below `most`, or else of the last of TRIES.

    Other processes delay an attempt now and then; work that is really slow is slow every time.
    """
    for _ in range(TRIES):
        began = time.monotonic()
        result = work()
        took = time.monotonic() - began
        if took < most:
            break
    return result, took
