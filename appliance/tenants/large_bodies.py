"""Serializes large request bodies: parsing and validating one holds the interpreter, which blocks all other requests."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext

from .turns import Turns

LARGE_BYTES = 64 << 10
# Parsing and validating the largest body takes less; work that takes longer stops blocking the queue after that.
MAX_TURN_SECONDS = 3.0


def release_nothing() -> None:
    """The release function of a request that holds no turn."""


class LargeBodies:
    """Processes one large body at a time."""

    def __init__(self) -> None:
        self.turns = Turns(1, MAX_TURN_SECONDS)

    def turn(self, tenant_id: str, size: int) -> AbstractAsyncContextManager[Callable[[], None]]:
        """Hold a turn while working on a received body of this size; small ones do not wait.  Yields a function to end the turn."""
        return nullcontext(release_nothing) if size < LARGE_BYTES else self.turns.turn(tenant_id)
