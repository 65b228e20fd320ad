"""Values that were read from the database and are kept in memory for a while."""

from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Cache(dict[K, V]):
    """At most `size` values by key: one that would be too many empties the cache first.  Opening a database empties every cache."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        _caches.append(self)

    def __setitem__(self, key: K, value: V) -> None:
        if len(self) >= self._size and key not in self:
            self.clear()
        super().__setitem__(key, value)


_caches: list[Cache[Any, Any]] = []


def empty_all() -> None:
    """Empty every cache of this process."""
    for each in _caches:
        each.clear()
