"""Collects named attempts against one surface; the test runs all of them before it fails with those that got through."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

LEAST = 20
"""The fewest attempts that a test of a surface has to make."""


class Attempts:
    """Counts what was tried against a surface and collects what got through."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._broken: list[str] = []

    def check(self, name: str, holds: bool, seen: object = "") -> None:
        """Record one attempt: `holds` is whether it had no effect, `seen` what happened instead."""
        assert name not in self.names, f"two attempts are called {name!r}"
        self.names.append(name)
        if not holds:
            self._broken.append(f"{name}: {str(seen)[:400]}")

    def refused(self, name: str, attempt: Callable[[], object], *errors: type[Exception]) -> None:
        """Record one attempt that must raise one of these errors."""
        try:
            seen: object = attempt()
        except Exception as error:  # noqa: BLE001  an accident is no refusal
            self.check(name, isinstance(error, errors), f"ended in an accident: {error!r}")
        else:
            self.check(name, False, f"was not refused: {seen!r}")

    def finish(self, least: int = LEAST) -> None:
        """Fail with everything that got through, or when too little was tried."""
        assert not self._broken, "got through:\n" + "\n".join(self._broken)
        assert len(self.names) >= least, f"{len(self.names)} attempts are too few"


@contextmanager
def attempts(least: int = LEAST) -> Iterator[Attempts]:
    """A table of attempts, checked when the block ends."""
    table = Attempts()
    yield table
    table.finish(least)
